// Fifteen hundred jobs under pace=async and ssp:s; see free_random_test.cc.
#include <gtest/gtest.h>

#include "tests/sim/free_random.h"

namespace selmcast {
namespace {

TEST(FifteenHundredFreeJobs, KeepTheRules) {
  for (std::uint64_t seed = 200'000; seed < 201'500; ++seed) {
    ASSERT_EQ(testing_jobs::play_free(seed), "") << "SELMCAST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace selmcast
