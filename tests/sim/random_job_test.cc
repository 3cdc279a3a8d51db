// Seeded jobs with random policies, links and faults. A failure prints its seed; run it alone with
//   SELMCAST_SEED=<seed> test_sim --gtest_filter=RandomJobs.KeepTheRules
#include "tests/sim/random_job.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace selmcast {
namespace {

using testing_jobs::play;

TEST(RandomJobs, KeepTheRules) {
  const char* chosen = std::getenv("SELMCAST_SEED");
  const std::uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const std::uint64_t last = chosen != nullptr ? first : 300;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    EXPECT_EQ(play(seed).broken, "") << "SELMCAST_SEED=" << seed;
  }
}

TEST(RandomJobs, ReplayBitForBit) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    EXPECT_EQ(play(seed).trace_hash, play(seed).trace_hash) << "SELMCAST_SEED=" << seed;
  }
  EXPECT_NE(play(1).trace_hash, play(2).trace_hash);
}

}  // namespace
}  // namespace selmcast
