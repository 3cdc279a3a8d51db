// Ten thousand jobs, in two halves that may run side by side; see random_job_test.cc.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

void play_five_thousand(std::uint64_t first) {
  constexpr std::uint64_t kJobs = 5'000;
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + kJobs - 1));
  for (std::uint64_t seed = first; seed < first + kJobs; ++seed) {
    ASSERT_EQ(testing_jobs::play(seed).broken, "") << "SELMCAST_SEED=" << seed;
    if (seed % 1000 == 999)
      std::printf("%llu done\n", static_cast<unsigned long long>(seed - first + 1));
  }
}

TEST(TenThousandJobs, KeepTheRules) {
  play_five_thousand(100'000);
}
TEST(TenThousandJobs, KeepTheRulesToo) {
  play_five_thousand(105'000);
}

}  // namespace
}  // namespace selmcast
