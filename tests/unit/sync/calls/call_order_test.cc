// Every sequence of a Worker's calls up to a length; see call_sequences.h.
#include <gmock/gmock.h>

#include "tests/sim/seeds.h"
#include "tests/unit/sync/calls/call_sequences.h"

namespace selmcast::calls {
namespace {

/// Jobs are ten times as slow under a sanitizer, so there one call less.
#ifdef SELMCAST_TEST_SANITIZED
constexpr std::size_t kLess = 1;
#else
constexpr std::size_t kLess = 0;
#endif

struct Pace {
  const char* name;
  const char* policy;
  friend std::ostream& operator<<(std::ostream& out, const Pace& pace) {
    return out << pace.policy;
  }
};

class Paces : public Sequences, public testing::WithParamInterface<Pace> {};

TEST_P(Paces, OneRankMakesItsCallsInAnyOrder) {
  try_all(GetParam().policy, 1, "A", "pwysfml", 4 - kLess);
}

TEST_P(Paces, TwoRanksMakeTheSameCallsInAnyOrder) {
  try_all(GetParam().policy, 2, "A", "pwysfl", 3 - kLess);
}

INSTANTIATE_TEST_SUITE_P(All, Paces,
                         testing::Values(Pace{"bsp", "select=all"}, Pace{"overlap", "osp"},
                                         Pace{"async", "pace=async"}, Pace{"ssp", "pace=ssp:2"},
                                         Pace{"stages", "osp2 pace=stages:0.4"},
                                         Pace{"late", "select=all pace=periodic:2 mix=stale:1"}),
                         [](const auto& param) { return std::string(param.param.name); });

using CallOrders = Sequences;

TEST_F(CallOrders, AllCallsAtAnyTime) {
  try_all("p3", 1, "", "ALpwysf012abmol", 3 - kLess);
}

TEST_F(CallOrders, LayersInAnyOrder) {
  try_all("p3", 1, "L", "01wal", 5 - kLess);
  try_all("p3", 2, "L", "01wa", 4 - kLess);
}

/// The calls of `sequence` in a job that has failed because its store is gone. What this rank had
/// handed over before may have closed.
void make_in_failed_job(Worker& worker, std::vector<float>& parameters, const std::string& begun,
                        const std::string& sequence) {
  const bool whole = begun == "Ap" || begun == "L01";
  std::optional<Error> parting;
  for (const char letter : sequence) {
    const auto call = static_cast<Call>(letter);
    const auto error = make(worker, parameters, call);
    const std::string name = begun + ", failure, " + sequence + ": " + letter;
    const bool layer_there = call == Call::wait_first && begun[0] == 'L';
    if (!error) {
      EXPECT_TRUE(!parting && (layer_there || (call == Call::wait && whole))) << name;
    } else if (call == Call::leave) {
      EXPECT_EQ(error->kind, ErrorKind::failed) << name;
      EXPECT_EQ(error->message, parting.value_or(*error).message) << name;
      parting = error;
    } else if (parting || call == Call::add_parameters || call == Call::add_layers ||
               (call == Call::wait_first && !layer_there)) {
      EXPECT_EQ(error->kind, ErrorKind::bad_input) << name;
    } else {
      EXPECT_EQ(error->kind, ErrorKind::failed) << name;
      EXPECT_THAT(error->message, testing::HasSubstr("lost the job's store")) << name;
    }
  }
}

TEST_F(CallOrders, AfterAFailureEveryCallTellsIt) {
  for (const std::string begun : {"A", "Ap", "Apw", "L", "L0", "L01", "L01w"}) {
    for_all("", "ALpwysf01amol", 2, [&](const std::string& sequence) {
      on_ranks("p3", 1, begun + ", failure, " + sequence,
               [&](const WorkerConfig& config, auto& store) {
                 std::vector<float> parameters(kCount);
                 auto worker = Worker::join(config);
                 ASSERT_TRUE(worker) << worker.error().message;
                 make_all(**worker, parameters, config.policy, begun);
                 store.reset();
                 while ((*worker)->publish("x", {})) std::this_thread::sleep_for(1ms);
                 make_in_failed_job(**worker, parameters, begun, sequence);
               });
    });
  }
}

}  // namespace
}  // namespace selmcast::calls
