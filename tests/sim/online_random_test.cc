// Seeded jobs under pace=ssp:s,eta with random links, compute times and faults. A failure prints
// its seed; run it alone with
//   SELMCAST_SEED=<seed> test_sim --gtest_filter=RandomOnlineJobs.KeepTheRules
#include "tests/sim/online_random.h"

#include <gtest/gtest.h>

#include "tests/sim/seeds.h"

namespace selmcast {
namespace {

using testing_jobs::OnlineCounts;
using testing_jobs::play_online;
using testing_jobs::seeds;

TEST(RandomOnlineJobs, KeepTheRules) {
  const auto [first, last] = seeds(60);
  OnlineCounts counts;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    EXPECT_EQ(play_online(seed, &counts), "") << "SELMCAST_SEED=" << seed;
  }
  std::printf("%lu rounds, %lu of them chosen by the sender alone, %lu receivers left out later\n",
              static_cast<unsigned long>(counts.rounds), static_cast<unsigned long>(counts.alone),
              static_cast<unsigned long>(counts.cut));
}

TEST(RandomOnlineJobs, ReplayBitForBit) {
  const auto [first, last] = seeds(10);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    std::uint64_t one = 0, other = 1;
    play_online(seed, nullptr, &one);
    play_online(seed, nullptr, &other);
    EXPECT_EQ(one, other) << "SELMCAST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace selmcast
