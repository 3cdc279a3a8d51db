// Jobs whose frames are small: what is said about many lost frames at once fits them.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using namespace testing_jobs;

struct SmallFrames {
  std::uint32_t frame_bytes;
  int copies;  ///< Of every other frame, lost: 1 = what is sent first, 2 = also its first repair.
};

class SmallFrameJobs : public testing::TestWithParam<SmallFrames> {};

// Frames come so fast that hundreds of gaps are known when the first NACK is due.
TEST_P(SmallFrameJobs, EveryOtherFrameIsLostAndTheRoundCompletes) {
  auto c = config("select=all", 3, 10'000'000);
  c.rounds = 2;
  c.timeout = seconds(1);
  c.deadline = seconds(60);
  c.network.max_frame_bytes = GetParam().frame_bytes;
  std::map<std::tuple<Rank, Rank, std::uint32_t, std::uint64_t>, int> lost;
  c.network.loses = [&](Rank from, Rank to, std::span<const std::byte> bytes) {
    const auto frame = parse_frame(bytes, 1);
    const FrameHeader& h = frame.header;
    const std::uint64_t payload = (GetParam().frame_bytes - kFrameHeaderBytes) / 8 * 8;
    if (h.kind != FrameKind::data || h.offset / payload % 2 == 0) return false;
    return lost[{from, to, h.round, h.offset}]++ < GetParam().copies;
  };
  const auto start = initial(3, 500'000);
  auto parameters = start;
  SimJob job(c, parameters);
  const auto result = job.run();
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->timed_out);
  EXPECT_TRUE(result->failed_ranks.empty());
  for (Rank r = 0; r < 3; ++r) {
    EXPECT_EQ(job.network().oversize_requests(r), 0U) << "rank " << r;
    EXPECT_EQ(result->errors[r], "");
    ASSERT_EQ(result->reports[r].size(), 2U);
    for (const auto& report : result->reports[r]) {
      EXPECT_EQ(report.receivers.size(), 2U);
      EXPECT_TRUE(report.verified);
    }
  }
  EXPECT_LT(worst_difference(parameters, expected_average(start, result->reports)), tolerance(c));
}

// 548: Ethernet packets of 576 bytes; 1024: a RoCE port of that MTU.
INSTANTIATE_TEST_SUITE_P(FrameBytes, SmallFrameJobs,
                         testing::Values(SmallFrames{548, 1}, SmallFrames{548, 2},
                                         SmallFrames{1024, 1}, SmallFrames{1024, 2}));

TEST(SmallFrameJob, SelectionOnlineAmongMoreWorkersThanAFrameListsIsRefused) {
  // 508 bytes behind the header, two for each worker.
  constexpr std::uint32_t kRoom = 254;
  auto c = config("selmcast-ssp", kRoom + 1);
  c.network.max_frame_bytes = 548;
  auto parameters = initial(kRoom + 1, 10);
  SimJob job(c, parameters);
  const auto result = job.run();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(
      result.error().message,
      "rank 0: with eta in pace=ssp:s,eta a request lists all workers in one frame. Frames of "
      "548 bytes have room for 254, but the job has 255 and needs frames of 550 bytes; use a "
      "larger MTU on all hosts, fewer workers, or drop eta");
}

}  // namespace
}  // namespace selmcast
