// The pure parts of the probe: packet, rate of a curve, schedule, ping plan, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/checksum.h"
#include "base/random.h"
#include "base/wire.h"
#include "probes/arrival_curve.h"
#include "probes/ping.h"
#include "probes/probe_packet.h"
#include "probes/report.h"
#include "probes/schedule.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Packet.

ProbePacket some_packet() {
  return {.kind = ProbeKind::ack,
          .job = 0x11223344,
          .sender = 5,
          .train = 0x01020304,
          .sequence = 0x0A0B0C0D,
          .count = 7,
          .stamp = 0x1122334455667788,
          .flags = 1};
}

TEST(ProbePacket, GoldenHeader) {
  Bytes frame(kProbeHeaderBytes);
  encode_probe(some_packet(), frame);
  // Written by hand from the layout comment.
  const std::vector<int> golden{0xB0, 0x5E, 1,    3,    0x44, 0x33, 0x22, 0x11, 5, 0, 0, 0,
                                4,    3,    2,    1,    0x0D, 0x0C, 0x0B, 0x0A, 7, 0, 0, 0,
                                0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 0, 0, 0};
  for (std::size_t i = 0; i < golden.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(frame[i]), golden[i]) << i;
  }
  EXPECT_EQ(load_le<std::uint32_t>(frame.data() + 36), crc32c(0, std::span(frame).first(36)));
  EXPECT_EQ(parse_probe(frame, 0x11223344, 6), some_packet());
}

TEST(ProbePacket, ForeignAndMalformedPacketsAreDropped) {
  Bytes frame(200, std::byte{0x77});
  encode_probe(some_packet(), frame);
  ASSERT_TRUE(parse_probe(frame, 0x11223344, 6));
  EXPECT_FALSE(parse_probe(frame, 0x11223345, 6)) << "another job";
  EXPECT_FALSE(parse_probe(frame, 0x11223344, 5)) << "no such sender";
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_probe(cut, 0x11223344, 6)) << size;
  }
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(parse_probe(frame, 0x11223344, 6)) << bit;
    frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(ProbePacket, UnknownKindsAreDroppedThoughTheChecksumIsRight) {
  for (const int kind : {0, 6, 255}) {
    Bytes frame(kProbeHeaderBytes);
    ProbePacket packet = some_packet();
    packet.kind = static_cast<ProbeKind>(kind);
    encode_probe(packet, frame);
    EXPECT_FALSE(parse_probe(frame, 0x11223344, 6)) << kind;
  }
}

// Rates.

/// Arrivals of frames behind a token bucket: `burst` bytes at the line's rate, then the token rate.
ArrivalCurve token_bucket(double burst, double line_kbps, double rate_kbps, std::uint32_t frames,
                          TimePoint* end) {
  constexpr double kFrame = 1514;
  ArrivalCurve curve;
  double tokens = burst, ns = 0;
  for (std::uint32_t i = 1; i <= frames; ++i) {
    const double at_line = kFrame * 8e6 / line_kbps;
    ns += at_line;
    tokens += at_line * rate_kbps / 8e6 - kFrame;
    if (tokens < 0) {
      ns += -tokens * 8e6 / rate_kbps;
      tokens = 0;
    }
    *end = TimePoint(Duration(static_cast<Duration::rep>(ns)));
    curve.add(*end, i * 1514ULL);
  }
  return curve;
}

TEST(ArrivalCurve, TheBurstOfATokenBucketDoesNotCount) {
  struct Case {
    double burst, rate_kbps;
    std::uint32_t frames;
  };
  for (const Case& c : {Case{32e3, 100e3, 500}, Case{250e3, 100e3, 600}, Case{1e6, 400e3, 2500},
                        Case{1e6, 10e3, 720}}) {
    TimePoint end{};
    const ArrivalCurve curve = token_bucket(c.burst, 10e6, c.rate_kbps, c.frames, &end);
    const auto rate = curve.steady_rate(TimePoint{}, end);
    ASSERT_TRUE(rate);
    EXPECT_NEAR(static_cast<double>(*rate), c.rate_kbps, 0.02 * c.rate_kbps);
  }
}

TEST(ArrivalCurve, RateNeedsTwoSamplesWithTimeBetween) {
  ArrivalCurve curve;
  EXPECT_FALSE(curve.steady_rate(TimePoint{}, TimePoint{} + milliseconds(9)));
  curve.add(TimePoint{} + milliseconds(1), 1000);
  EXPECT_FALSE(curve.steady_rate(TimePoint{}, TimePoint{} + milliseconds(9)));
  curve.add(TimePoint{} + milliseconds(1), 2000);
  EXPECT_FALSE(curve.steady_rate(TimePoint{}, TimePoint{} + milliseconds(9)));
  curve.add(TimePoint{} + milliseconds(2), 3000);
  // Both samples lie in the first third, so all of it counts: 1000 bytes in 1 ms, for the first
  // 2000 arrived in one instant.
  const auto rate = curve.steady_rate(TimePoint{}, TimePoint{} + milliseconds(9));
  ASSERT_TRUE(rate);
  EXPECT_EQ(*rate, 8000U);
}

TEST(ArrivalCurve, OnlySamplesWithinTheTimesCount) {
  ArrivalCurve curve;
  for (int ms = 0; ms <= 100; ++ms) {
    curve.add(TimePoint{} + milliseconds(ms), static_cast<std::uint64_t>(ms < 50 ? ms : 50) * 1000);
  }
  EXPECT_EQ(curve.rate_between(TimePoint{}, TimePoint{} + milliseconds(50)), 8000U);
  EXPECT_EQ(curve.rate_between(TimePoint{} + milliseconds(50), TimePoint{} + milliseconds(99)), 0U);
  EXPECT_EQ(curve.rate_between(TimePoint{} + microseconds(100), TimePoint{} + microseconds(900)),
            std::nullopt);
  EXPECT_EQ(curve.rate_between(TimePoint{} + milliseconds(101), kNever), std::nullopt);
  EXPECT_EQ(curve.rate_between(TimePoint{} - milliseconds(9), TimePoint{} - milliseconds(1)),
            std::nullopt);
}

TEST(ArrivalCurve, BatchesOfALateReaderDoNotRaiseTheRate) {
  // 1 MB/s, looked at every 20 ms, then read in several portions within 300 us.
  ArrivalCurve curve;
  for (int look = 0; look <= 3; ++look) {
    for (int portion = 0; portion < 4; ++portion) {
      curve.add(TimePoint{} + milliseconds(20 * look) + microseconds(100 * portion),
                static_cast<std::uint64_t>(20'000 * look - 5'000 * (look > 0 ? 3 - portion : 0)));
    }
  }
  const auto rate = curve.steady_rate(TimePoint{}, TimePoint{} + microseconds(60'300));
  ASSERT_TRUE(rate);
  EXPECT_NEAR(static_cast<double>(*rate), 8000, 400);
}

TEST(ArrivalCurve, StorageIsBounded) {
  ArrivalCurve curve;
  for (std::uint64_t i = 0; i <= 1'000'000; ++i) {
    curve.add(TimePoint{} + microseconds(10) * static_cast<Duration::rep>(i), i * 100);
  }
  EXPECT_EQ(curve.rate_between(TimePoint{}, kNever), 80'000U);
}

TEST(ArrivalCurve, MedianOf) {
  EXPECT_EQ(median_of({5}), 5U);
  EXPECT_EQ(median_of({9, 1, 5}), 5U);
  EXPECT_EQ(median_of({9, 1, 5, 7}), 5U);
}

// Schedule.

TEST(ProbeSchedule, OneHostIsOnePattern) {
  const auto steps = probe_schedule(std::vector<std::uint32_t>{4, 4, 4});
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_THAT(steps[0].senders, ElementsAre(0, 1, 2));
  EXPECT_THAT(steps[0].receivers, ElementsAre(0, 1, 2));
  EXPECT_TRUE(steps[0].measures_transmit && steps[0].measures_receive);
}

TEST(ProbeSchedule, TwoHostsNeedTwoPatterns) {
  const auto steps = probe_schedule(std::vector<std::uint32_t>{1, 0, 1});
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_THAT(steps[0].senders, ElementsAre(1));
  EXPECT_THAT(steps[0].receivers, ElementsAre(0, 2));
  EXPECT_THAT(steps[1].senders, ElementsAre(0, 2));
}

TEST(ProbeSchedule, LoneRanksHaveNone) {
  EXPECT_THAT(probe_schedule({}), IsEmpty());
  EXPECT_THAT(probe_schedule(std::vector<std::uint32_t>{7}), IsEmpty());
}

TEST(ProbeSchedule, EveryRankIsMeasuredOnceEachWay) {
  SplitMix64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint32_t> hosts(2 + random.below(9));
    for (auto& host : hosts) host = static_cast<std::uint32_t>(random.below(4));
    const auto steps = probe_schedule(hosts);
    for (Rank r = 0; r < hosts.size(); ++r) {
      int transmit = 0, receive = 0;
      for (const ProbeStep& step : steps) {
        const bool sends = std::count(step.senders.begin(), step.senders.end(), r) == 1;
        const bool receives = std::count(step.receivers.begin(), step.receivers.end(), r) == 1;
        EXPECT_EQ(step.sends(r), sends);
        EXPECT_EQ(step.receives(r), receives);
        transmit += step.measures_transmit && sends ? 1 : 0;
        receive += step.measures_receive && receives ? 1 : 0;
        EXPECT_EQ(step.measures(r),
                  (step.measures_transmit && sends) || (step.measures_receive && receives));
      }
      EXPECT_EQ(transmit, 1);
      EXPECT_EQ(receive, 1);
    }
    // The ranks that are measured in a step all share one host.
    for (const ProbeStep& step : steps) {
      std::set<std::uint32_t> measured;
      for (const Rank r : step.measures_transmit ? step.senders : step.receivers) {
        measured.insert(hosts[r]);
      }
      EXPECT_EQ(measured.size(), 1U);
    }
  }
}

// Pings.

TEST(PingPlan, FastLinksGetWhatWasAsked) {
  const PingPlan plan = plan_pings(512, milliseconds(100), 9, 1'000'000, 82);
  EXPECT_EQ(plan.per_peer, 64U);
  EXPECT_EQ(plan.spacing, Duration(100'000'000 / 512));
}

TEST(PingPlan, SlowLinksGetFewerAndGentler) {
  // 82 bytes are 656 us at 1000 kbit/s; a tenth of the rate allows one in 6.56 ms.
  const PingPlan plan = plan_pings(512, milliseconds(100), 3, 1000, 82);
  EXPECT_EQ(plan.spacing, microseconds(6560));
  EXPECT_EQ(plan.per_peer, 30U);  // 400 ms / (2 * 6.56 ms)
  EXPECT_GE(plan_pings(512, milliseconds(100), 3, 0, 82).per_peer, 1U);
  EXPECT_GE(plan_pings(0, milliseconds(100), 1000, 1'000'000, 82).per_peer, 1U);
}

// Reports.

RankReport report_of(std::vector<Kbps> tx, std::vector<Kbps> rx, std::uint32_t per_peer,
                     std::vector<std::uint32_t> arrived) {
  RankReport report;
  report.transmit = std::move(tx);
  report.receive = std::move(rx);
  report.latency = microseconds(30);
  report.pings_per_peer = per_peer;
  report.pings_arrived = std::move(arrived);
  return report;
}

TEST(ProbeReport, EstimatesHaveMedianSpreadAndLoss) {
  const std::vector<RankReport> reports{report_of({30, 10, 20}, {5, 6, 7}, 100, {0, 90, 100}),
                                        report_of({1, 1, 1}, {2, 2, 2}, 100, {100, 0, 50}),
                                        report_of({1, 1, 1}, {2, 2, 2}, 100, {120, 100, 0})};
  const auto estimates = estimates_of(reports, TimePoint{} + milliseconds(5));
  ASSERT_EQ(estimates.size(), 3U);
  EXPECT_EQ(estimates[0].transmit.available_kbps, 20U);
  EXPECT_EQ(estimates[0].transmit.low_kbps, 10U);
  EXPECT_EQ(estimates[0].transmit.high_kbps, 30U);
  EXPECT_EQ(estimates[0].receive.available_kbps, 6U);
  EXPECT_DOUBLE_EQ(estimates[0].receive.loss, 1.0 - 190.0 / 200.0);
  EXPECT_DOUBLE_EQ(estimates[0].transmit.loss, 0.0) << "duplicates do not make up for losses";
  EXPECT_DOUBLE_EQ(estimates[1].transmit.loss, 1.0 - 190.0 / 200.0);
  EXPECT_DOUBLE_EQ(estimates[2].transmit.loss, 0.25);
  EXPECT_EQ(estimates[1].latency, microseconds(30));
  EXPECT_EQ(estimates[2].rank, 2U);
  EXPECT_EQ(estimates[2].repeats, 3U);
}

TEST(ProbeReport, RoundTripAndHostileBytes) {
  const RankReport report = report_of({1, 2}, {3}, 4, {5, 6});
  const Bytes bytes = serialize(report);
  const auto parsed = parse_reports(std::vector<Bytes>{bytes, bytes});
  ASSERT_TRUE(parsed);
  EXPECT_EQ((*parsed)[1].transmit, report.transmit);
  EXPECT_EQ((*parsed)[1].receive, report.receive);
  EXPECT_EQ((*parsed)[1].latency, report.latency);
  EXPECT_EQ((*parsed)[1].pings_per_peer, 4U);
  EXPECT_EQ((*parsed)[1].pings_arrived, report.pings_arrived);
  EXPECT_FALSE(parse_reports(std::vector<Bytes>{bytes})) << "counts for another world size";
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const auto result = parse_reports(std::vector<Bytes>{bytes, cut});
    ASSERT_FALSE(result) << size;
    EXPECT_THAT(result.error().message, HasSubstr("rank 1"));
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(parse_reports(std::vector<Bytes>{longer, bytes}));
  const Bytes empty = serialize(report_of({}, {3}, 4, {}));
  EXPECT_FALSE(parse_reports(std::vector<Bytes>{empty, bytes})) << "no rate";
}

TEST(ProbeReport, OneLineHasNoControlCharacters) {
  const std::string text = std::string("a\nb\x1b[31m") + std::string(600, 'x');
  const std::string line = one_line(std::as_bytes(std::span(text)));
  EXPECT_EQ(line.substr(0, 8), "a b [31m");
  EXPECT_EQ(line.size(), 500U);
}

}  // namespace
}  // namespace selmcast
