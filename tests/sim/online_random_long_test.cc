// More jobs under pace=ssp:s,eta; see online_random_test.cc.
#include <gtest/gtest.h>

#include "tests/sim/online_random.h"

namespace selmcast {
namespace {

TEST(OneHundredOnlineJobs, KeepTheRules) {
  for (std::uint64_t seed = 300'000; seed < 300'100; ++seed) {
    ASSERT_EQ(testing_jobs::play_online(seed), "") << "SELMCAST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace selmcast
