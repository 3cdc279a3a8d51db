// The conformance suite over the RDMA devices of this machine: ranks spread over them, shared and
// own receive queues, and every rank striping over all of them.
#include "tests/conformance/fixture.h"
#include "tests/conformance/host_backend.h"
#include "tests/guest/devices.h"

namespace selmcast::conformance {
namespace {

using guest::device_names;

Backend verbs(const std::string& name, std::vector<TransportConfig> places) {
  Backend backend = host_backend("verbs", false, std::move(places));
  backend.name = name;
  return backend;
}

std::vector<TransportConfig> spread(bool shared) {
  std::vector<TransportConfig> out;
  for (const std::string& device : device_names()) {
    TransportConfig config;
    config.interface = device;
    config.shared_receive_queue = shared;
    out.push_back(config);
  }
  return out;
}

std::vector<TransportConfig> striped() {
  TransportConfig config;
  for (const std::string& device : device_names()) {
    config.interface += (config.interface.empty() ? "" : "+") + device;
  }
  return {config};
}

std::vector<TransportConfig> ipv6() {
  std::vector<TransportConfig> out;
  for (const std::string& device : device_names()) {
    TransportConfig config;
    config.interface = device + ":1:" + std::to_string(guest::ipv6_gid_index(device));
    out.push_back(config);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Verbs, Conformance,
                         testing::Values(verbs("shared", spread(true)), verbs("own", spread(false)),
                                         verbs("striped", striped()), verbs("ipv6", ipv6())),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace selmcast::conformance
