// The backends that every machine has.
#include "tests/conformance/fixture.h"
#include "tests/conformance/host_backend.h"

namespace selmcast::conformance {
namespace {

std::vector<TransportConfig> loopback() {
  TransportConfig config;
  config.interface = "lo";
  return {config};
}

INSTANTIATE_TEST_SUITE_P(Host, Conformance,
                         testing::Values(host_backend("shm", true, loopback()),
                                         host_backend("uring", false, loopback())),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace selmcast::conformance
