// Ten thousand jobs; see random_job_test.cc.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

TEST(TenThousandJobs, KeepTheRules) {
  constexpr std::uint64_t kFirst = 100'000, kJobs = 10'000;
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(kFirst),
              static_cast<unsigned long long>(kFirst + kJobs - 1));
  for (std::uint64_t seed = kFirst; seed < kFirst + kJobs; ++seed) {
    ASSERT_EQ(testing_jobs::play(seed).broken, "") << "SELMCAST_SEED=" << seed;
    if (seed % 1000 == 999)
      std::printf("%llu done\n", static_cast<unsigned long long>(seed - kFirst + 1));
  }
}

}  // namespace
}  // namespace selmcast
