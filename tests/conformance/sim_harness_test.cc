// The simulator, plain and behind the faulty decorator, as backends of the conformance suite.
#include "tests/conformance/fixture.h"
#include "tests/faulty/faulty_transport.h"
#include "transport/sim/sim_network.h"

namespace selmcast::conformance {
namespace {

class SimHarness final : public Harness {
 public:
  SimHarness(std::size_t ranks, SimConfig config, const FaultPlan* plan,
             std::optional<Mortal> mortal)
      : net_(links(ranks, config)), mortal_(mortal) {
    for (std::size_t r = 0; r < ranks; ++r) {
      ranks_.push_back(net_.attach(static_cast<Rank>(r)));
      if (plan == nullptr) continue;
      FaultPlan own = *plan;
      own.seed += r;
      ranks_.back() = make_faulty_transport(std::move(ranks_.back()), own);
    }
    if (!mortal || mortal->polls) return;
    mortal_membership_ =
        std::move(ranks_[mortal->rank]->join({kMortalGroup}, JoinAs::receiver)).value();
  }

  Transport& at(std::size_t rank) override { return *ranks_[rank]; }
  PeerAddress address(std::size_t rank) override { return ranks_[rank]->address(); }
  void pass(Duration time) override {
    net_.advance_to(net_.clock().now() + time);
    if (mortal_ && mortal_->polls) poll_mortal();
  }
  void close(std::size_t rank) override { ranks_[rank].reset(); }
  void kill_mortal() override { net_.crash(static_cast<Rank>(mortal_->rank), 1ms); }

 private:
  static SimConfig& links(std::size_t ranks, SimConfig& config) {
    config.links.assign(ranks, SimLink{.tx_kbps = 1'000'000, .rx_kbps = 1'000'000});
    return config;
  }
  void poll_mortal() {
    Completion c;
    while (ranks_[mortal_->rank]->poll({&c, 1}) == 1) {
      const ReceiveRequest back{c.token};
      if (c.kind == Completion::Kind::receive) ranks_[mortal_->rank]->post_receives({&back, 1});
    }
  }

  SimNetwork net_;
  std::optional<Mortal> mortal_;
  std::vector<std::unique_ptr<Transport>> ranks_;
  Membership mortal_membership_;
};

Backend simulated(std::string name, bool lossless, const FaultPlan* plan = nullptr) {
  Backend backend;
  backend.name = std::move(name);
  backend.clean = plan == nullptr || plan->drop == 0.0;
  backend.refuses_at_will = plan != nullptr;
  backend.open = [=](std::size_t ranks,
                     std::optional<Mortal> mortal) -> Result<std::unique_ptr<Harness>> {
    SimConfig config;
    config.lossless = lossless;
    config.join_settle = 2ms;
    config.receive_buffers = 128;
    return std::unique_ptr<Harness>(std::make_unique<SimHarness>(ranks, config, plan, mortal));
  };
  return backend;
}

const FaultPlan kReluctant{.backpressure = 0.3};
const FaultPlan kUnfair{.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .backpressure = 0.1};

INSTANTIATE_TEST_SUITE_P(Sim, Conformance,
                         testing::Values(simulated("lossless", true), simulated("datagrams", false),
                                         simulated("reluctant", true, &kReluctant),
                                         simulated("unfair", true, &kUnfair)),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace selmcast::conformance
