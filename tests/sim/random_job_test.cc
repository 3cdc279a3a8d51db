// Seeded jobs with random policies, links and faults. A failure prints its seed; run it alone with
//   SELMCAST_SEED=<seed> test_sim --gtest_filter=RandomJobs.KeepTheRules
#include "tests/sim/random_job.h"

#include <gtest/gtest.h>

#include "tests/sim/seeds.h"

namespace selmcast {
namespace {

using testing_jobs::play;
using testing_jobs::seeds;

TEST(RandomJobs, KeepTheRules) {
  const auto [first, last] = seeds(300);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    EXPECT_EQ(play(seed).broken, "") << "SELMCAST_SEED=" << seed;
  }
}

TEST(RandomJobs, ReplayBitForBit) {
  const auto [first, last] = seeds(30);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    EXPECT_EQ(play(seed).trace_hash, play(seed).trace_hash) << "SELMCAST_SEED=" << seed;
  }
  EXPECT_NE(play(1).trace_hash, play(2).trace_hash);
}

}  // namespace
}  // namespace selmcast
