#include "transport/open.h"

#include "transport/shm/shm_transport.h"
#include "transport/uring/uring_transport.h"

namespace selmcast {
namespace {

using Opener = Result<std::unique_ptr<Transport>> (*)(const TransportConfig&);

Result<std::unique_ptr<Transport>> open_shm_default(const TransportConfig& config) {
  return open_shm(config);
}

struct Backend {
  const char* name;
  Opener open;
  const char* note;  ///< For doctor, when it opens.
};

constexpr Backend kBackends[] = {
    {"shm", &open_shm_default, "ranks of one host, one copy"},
    {"uring", &open_uring, "UDP over io_uring, IP multicast"},
};

/// `auto` is the one that works across hosts.
constexpr const char* kAuto = "uring";

}  // namespace

std::vector<std::string> transport_names() {
  std::vector<std::string> out{"auto"};
  for (const Backend& backend : kBackends) out.emplace_back(backend.name);
  return out;
}

Result<std::unique_ptr<Transport>> open_transport(const std::string& name,
                                                  const TransportConfig& config) {
  const std::string wanted = name == "auto" ? kAuto : name;
  for (const Backend& backend : kBackends) {
    if (wanted == backend.name) return backend.open(config);
  }
  std::string allowed;
  for (const auto& known : transport_names()) allowed += (allowed.empty() ? "" : ", ") + known;
  return bad_input("transport '" + name + "' is not known; allowed are " + allowed);
}

std::vector<BackendState> backend_states() {
  std::vector<BackendState> out;
  for (const Backend& backend : kBackends) {
    const auto opened = backend.open(TransportConfig{});
    out.push_back(
        {backend.name, opened.has_value(), opened ? backend.note : opened.error().message});
  }
  return out;
}

}  // namespace selmcast
