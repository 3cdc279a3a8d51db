// The backends of this host, several ranks in one process, as backends of the conformance suite.
#include <unistd.h>

#include <thread>

#include "tests/conformance/fixture.h"
#include "transport/open.h"

namespace selmcast::conformance {
namespace {

class HostHarness final : public Harness {
 public:
  explicit HostHarness(std::vector<std::unique_ptr<Transport>> ranks) : ranks_(std::move(ranks)) {}

  Transport& at(std::size_t rank) override { return *ranks_[rank]; }
  void pass(Duration time) override { std::this_thread::sleep_for(time); }
  void kill(std::size_t rank) override { ranks_[rank].reset(); }

 private:
  std::vector<std::unique_ptr<Transport>> ranks_;
};

Result<std::unique_ptr<Harness>> open_ranks(const std::string& name, std::size_t ranks) {
  static std::uint64_t jobs = 0;
  TransportConfig config;
  // Tests run in parallel as processes of one host: each job needs a number of its own.
  config.job = (static_cast<std::uint64_t>(::getpid()) << 16U) + ++jobs;
  config.world = static_cast<std::uint32_t>(ranks);
  config.interface = "lo";
  config.groups_max = 16;
  std::vector<std::unique_ptr<Transport>> out;
  for (std::size_t r = 0; r < ranks; ++r) {
    config.rank = static_cast<Rank>(r);
    auto transport = open_transport(name, config);
    if (!transport) return std::move(transport).error();
    out.push_back(std::move(transport).value());
  }
  return std::unique_ptr<Harness>(std::make_unique<HostHarness>(std::move(out)));
}

Backend host(const std::string& name, bool notices_death) {
  Backend backend;
  backend.name = name;
  backend.notices_death = notices_death;
  backend.real_time = true;
  backend.open = [name](std::size_t ranks) { return open_ranks(name, ranks); };
  return backend;
}

INSTANTIATE_TEST_SUITE_P(Host, Conformance,
                         testing::Values(host("shm", true), host("uring", false)),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace selmcast::conformance
