#include "transport/backends/open.h"

#include "transport/shm/shm_transport.h"
#if SELMCAST_HAVE_URING
#include "transport/uring/uring_transport.h"
#endif
#if SELMCAST_HAVE_VERBS
#include "transport/verbs/device_port.h"
#include "transport/verbs/verbs_transport.h"
#endif

namespace selmcast {
namespace {

using Opener = Result<std::unique_ptr<Transport>> (*)(const TransportConfig&);

struct Backend {
  const char* name;
  Opener open;       ///< Null: this build is without it.
  const char* note;  ///< For doctor: what it is when it opens, or how to have it built.
  std::vector<std::string> (*details)() = nullptr;  ///< More, where that depends on the machine.
};

Result<std::unique_ptr<Transport>> open_shm_default(const TransportConfig& config) {
  return open_shm(config);
}

// One row a backend.
constexpr Backend kBackends[] = {
    {"shm", &open_shm_default, "ranks of one host, one copy"},
#if SELMCAST_HAVE_URING
    {"uring", &open_uring, "UDP over io_uring, IP multicast"},
#else
    {"uring", nullptr, "liburing, and configure with -D SELMCAST_URING=ON"},
#endif
#if SELMCAST_HAVE_VERBS
    {"verbs", &open_verbs, "RDMA devices, multicast groups of the network", &verbs::describe_ports},
#else
    {"verbs", nullptr, "libibverbs and librdmacm, and configure with -D SELMCAST_VERBS=ON"},
#endif
};

Result<std::unique_ptr<Transport>> open_backend(const Backend& backend,
                                                const TransportConfig& config) {
  if (backend.open != nullptr) return backend.open(config);
  return unavailable(std::string(backend.name) +
                     ": this build was made without that transport; to have it, install " +
                     backend.note);
}

/// For `auto`: those that work across hosts first.
Result<std::unique_ptr<Transport>> open_first(const TransportConfig& config) {
  auto first = open_transport("uring", config);
  if (first) return first;
  if (auto verbs = open_transport("verbs", config)) return verbs;
  if (config.interface.empty()) {  // shm would not use it.
    if (auto shm = open_transport("shm", config)) return shm;
  }
  return first;
}

}  // namespace

std::vector<std::string> transport_names() {
  std::vector<std::string> out{"auto"};
  for (const Backend& backend : kBackends) out.emplace_back(backend.name);
  return out;
}

Result<std::unique_ptr<Transport>> open_transport(const std::string& name,
                                                  const TransportConfig& config) {
  if (name == "auto") return open_first(config);
  for (const Backend& backend : kBackends) {
    if (name == backend.name) return open_backend(backend, config);
  }
  std::string allowed;
  for (const auto& known : transport_names()) allowed += (allowed.empty() ? "" : ", ") + known;
  return bad_input("transport '" + name + "' is not known; allowed are " + allowed);
}

std::vector<BackendState> backend_states() {
  std::vector<BackendState> out;
  for (const Backend& backend : kBackends) {
    const auto opened = open_backend(backend, TransportConfig{});
    std::string reason = opened ? backend.note : opened.error().message;
    if (opened && backend.details != nullptr) {
      for (const std::string& line : backend.details()) reason += "; " + line;
    }
    out.push_back({backend.name, opened.has_value(), std::move(reason)});
  }
  return out;
}

}  // namespace selmcast
