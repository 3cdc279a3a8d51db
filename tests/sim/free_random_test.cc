// Seeded jobs under pace=async and ssp:s with random links, compute times and faults. A failure
// prints its seed; run it alone with
//   SELMCAST_SEED=<seed> test_sim --gtest_filter=RandomFreeJobs.KeepTheRules
#include "tests/sim/free_random.h"

#include <gtest/gtest.h>

#include "tests/sim/seeds.h"

namespace selmcast {
namespace {

using testing_jobs::play_free;
using testing_jobs::seeds;

TEST(RandomFreeJobs, KeepTheRules) {
  const auto [first, last] = seeds(200);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    EXPECT_EQ(play_free(seed), "") << "SELMCAST_SEED=" << seed;
  }
}

TEST(RandomFreeJobs, ReplayBitForBit) {
  const auto [first, last] = seeds(15);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    std::uint64_t one = 0, other = 1;
    play_free(seed, &one);
    play_free(seed, &other);
    EXPECT_EQ(one, other) << "SELMCAST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace selmcast
