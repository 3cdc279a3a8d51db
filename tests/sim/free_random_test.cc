// Seeded jobs under pace=async and ssp:s with random links, compute times and faults. A failure
// prints its seed; run it alone with
//   SELMCAST_SEED=<seed> test_sim --gtest_filter=RandomFreeJobs.KeepTheRules
#include "tests/sim/free_random.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace selmcast {
namespace {

using testing_jobs::play_free;

TEST(RandomFreeJobs, KeepTheRules) {
  const char* chosen = std::getenv("SELMCAST_SEED");
  const std::uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const std::uint64_t last = chosen != nullptr ? first : 200;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    EXPECT_EQ(play_free(seed), "") << "SELMCAST_SEED=" << seed;
  }
}

TEST(RandomFreeJobs, ReplayBitForBit) {
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    std::uint64_t one = 0, other = 1;
    play_free(seed, &one);
    play_free(seed, &other);
    EXPECT_EQ(one, other) << "SELMCAST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace selmcast
