#include "transport/open.h"

#include "transport/shm/shm_transport.h"
#include "transport/uring/uring_transport.h"
#include "transport/verbs/device_port.h"
#include "transport/verbs/verbs_transport.h"

namespace selmcast {
namespace {

using Opener = Result<std::unique_ptr<Transport>> (*)(const TransportConfig&);

Result<std::unique_ptr<Transport>> open_shm_default(const TransportConfig& config) {
  return open_shm(config);
}

struct Backend {
  const char* name;
  Opener open;
  const char* note;                                 ///< For doctor, when it opens.
  std::vector<std::string> (*details)() = nullptr;  ///< The same, where it depends on the machine.
};

constexpr Backend kBackends[] = {
    {"shm", &open_shm_default, "ranks of one host, one copy"},
    {"uring", &open_uring, "UDP over io_uring, IP multicast"},
    {"verbs", &open_verbs, "RDMA devices, multicast groups of the network", &verbs::describe_ports},
};

/// For `auto`: those that work across hosts first.
Result<std::unique_ptr<Transport>> open_first(const TransportConfig& config) {
  auto uring = open_uring(config);
  if (uring) return uring;
  if (auto verbs = open_verbs(config)) return verbs;
  if (config.interface.empty()) {  // shm would not use it.
    if (auto shm = open_shm(config)) return shm;
  }
  return uring;
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
    if (name == backend.name) return backend.open(config);
  }
  std::string allowed;
  for (const auto& known : transport_names()) allowed += (allowed.empty() ? "" : ", ") + known;
  return bad_input("transport '" + name + "' is not known; allowed are " + allowed);
}

std::vector<BackendState> backend_states() {
  std::vector<BackendState> out;
  for (const Backend& backend : kBackends) {
    const auto opened = backend.open(TransportConfig{});
    std::string reason = opened ? backend.note : opened.error().message;
    if (opened && backend.details != nullptr) {
      for (const std::string& line : backend.details()) reason += "; " + line;
    }
    out.push_back({backend.name, opened.has_value(), std::move(reason)});
  }
  return out;
}

}  // namespace selmcast
