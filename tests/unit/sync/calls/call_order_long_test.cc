// Longer sequences of calls, and ranks that do not make the same ones; see call_sequences.h.
#include "tests/unit/sync/calls/call_sequences.h"

namespace selmcast::calls {
namespace {

const std::string kAll = "ALpwysf012abmol";

class First : public Sequences, public testing::WithParamInterface<char> {};

TEST_P(First, AllSequencesOfFourCalls) {
  try_all("p3", 1, std::string(1, GetParam()), kAll, 3);
}

INSTANTIATE_TEST_SUITE_P(Call, First, testing::ValuesIn(kAll),
                         [](const auto& param) { return std::string(1, param.param); });

/// One rank's calls fail, or wait for the other until a deadline says that it is gone. Here only
/// the watchdog judges, which waits for many times the timeout.
TEST_F(Sequences, RanksThatMakeDifferentCallsAllEnd) {
  for (const char* policy : {"select=all", "osp", "pace=async", "osp2 pace=stages:0.4"}) {
    for_all("", "pwysfml", 2, [&](const std::string& both) {
      std::barrier all(2);
      on_ranks(policy, 2, both, [&](WorkerConfig config, auto&) {
        config.timeout = 1s;
        std::vector<float> parameters(kCount);
        auto worker = Worker::join(config);
        if (worker && (*worker)->add_parameters(parameters)) {
          static_cast<void>(make(**worker, parameters, static_cast<Call>(both[config.rank])));
          static_cast<void>(make(**worker, parameters, Call::leave));
        }
        all.arrive_and_wait();
      });
    });
  }
}

}  // namespace
}  // namespace selmcast::calls
