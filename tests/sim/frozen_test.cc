// Ranks that hang and keep their connections: only deadlines can notice, also where no round is
// under way that would miss them.
#include <gtest/gtest.h>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing_jobs::config;
using testing_jobs::initial;

constexpr std::uint32_t kFrozenJob = 6;
constexpr auto kUnnoticed = std::chrono::hours(1);  ///< The store does not notice.

/// Rank 5 dies, and `frozen` hangs `after` that: while the view without rank 5 is agreed.
void play(Rank frozen, microseconds after, const char* policy) {
  SCOPED_TRACE("rank " + std::to_string(frozen) + " after " + std::to_string(after.count()) +
               " us, " + policy);
  auto job_config = config(policy, kFrozenJob);
  job_config.rounds = 40;  // The job lasts beyond the agreement.
  job_config.timeout = milliseconds(200);
  auto parameters = initial(kFrozenJob, 20'000);
  SimJob job(job_config, parameters);
  job.at(TimePoint(milliseconds(6)), [](SimJob& j) { j.kill(5, milliseconds(1)); });
  job.at(TimePoint(milliseconds(6) + after), [frozen](SimJob& j) { j.kill(frozen, kUnnoticed); });
  const auto result = job.run();
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_FALSE(result->timed_out);
  for (Rank r = 0; r < 5; ++r) {
    if (r == frozen) continue;
    EXPECT_EQ(result->errors[r], "") << r;
    EXPECT_EQ(result->reports[r].size(), 40U) << r;
  }
  EXPECT_EQ(result->failed_ranks, (std::vector<Rank>{frozen, 5}));
}

/// Rank 5 dies, and `paused` does nothing for `time` from `after` that on.
std::vector<Rank> failed_with_pause(Rank paused, microseconds after, milliseconds time,
                                    const char* policy) {
  auto job_config = config(policy, kFrozenJob);
  job_config.rounds = 60;
  job_config.timeout = milliseconds(200);
  auto parameters = initial(kFrozenJob, 20'000);
  SimJob job(job_config, parameters);
  job.at(TimePoint(milliseconds(6)), [](SimJob& j) { j.kill(5, milliseconds(1)); });
  job.at(TimePoint(milliseconds(6) + after), [=](SimJob& j) { j.pause(paused, time); });
  const auto result = job.run();
  if (!result || result->timed_out) return {99};
  for (Rank r = 0; r < 5; ++r) {
    if (r == paused) continue;
    EXPECT_EQ(result->errors[r], "") << r;
  }
  return result->failed_ranks;
}

class Frozen : public testing::TestWithParam<const char*> {};

TEST_P(Frozen, AMemberWhileAViewIsAgreedIsEvictedAlone) {
  for (int us = 0; us < 20'000; us += 1'700) play(3, microseconds(us), GetParam());
}

TEST_P(Frozen, WhoeverDecidesWhileAViewIsAgreedIsEvictedAlone) {
  for (int us = 0; us < 20'000; us += 1'700) play(0, microseconds(us), GetParam());
}

// Whoever comes back within the timeout loses nobody, himself included; later, himself alone.
TEST_P(Frozen, AMemberThatOnlyPausesStays) {
  for (const Rank paused : {Rank{0}, Rank{3}}) {
    for (int us = 0; us < 6'000; us += 430) {
      SCOPED_TRACE(us);
      EXPECT_EQ(failed_with_pause(paused, microseconds(us), milliseconds(150), GetParam()),
                std::vector<Rank>{5});
    }
  }
}

// The agreement takes longer than the timeout, by a rank that comes back as it is suspected.
TEST_P(Frozen, SuspicionsAreTakenBack) {
  for (int ms = 196; ms < 217; ms += 3) {
    SCOPED_TRACE(ms);
    for (int us = 900; us < 2'400; us += 600) {
      const auto failed = failed_with_pause(3, microseconds(us), milliseconds(ms), GetParam());
      EXPECT_TRUE(failed == std::vector<Rank>{5} || failed == (std::vector<Rank>{3, 5}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Frozen,
                         testing::Values("select=all", "select=selmcast:2",
                                         "select=all route=ps:2"));

}  // namespace
}  // namespace selmcast
