#include "base/units.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/random.h"

namespace selmcast {
namespace {

using std::chrono::nanoseconds;

TEST(TransmissionTime, ClosedForms) {
  EXPECT_EQ(transmission_time(125, 1000), std::chrono::milliseconds(1));  // 1000 bit at 1 Mbit/s.
  EXPECT_EQ(transmission_time(1'250'000'000, 10'000'000), std::chrono::seconds(1));  // 10 Gbit/s.
  EXPECT_EQ(transmission_time(0, 1), nanoseconds(0));
  EXPECT_EQ(transmission_time(1, 3), nanoseconds(2'666'667));    // 8e6/3, rounded up.
  EXPECT_EQ(transmission_time(1, 400'000'000), nanoseconds(1));  // 0.02 ns, rounded up.
  EXPECT_EQ(transmission_time(1500, 1'000'000), nanoseconds(12'000));
}

TEST(TransmissionTime, IsTheLeastSufficientNanosecond) {
  SplitMix64 random(23);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bytes = random() >> 30U;  // Below 2^34: the check below must not overflow.
    const Kbps rate = 1 + random.below(1'000'000'000);
    const auto t = static_cast<std::uint64_t>(transmission_time(bytes, rate).count());
    // bits = kbit/s * ns / 10^6, so t suffices iff t * rate >= 8 * 10^6 * bytes.
    const double need = 8e6 * static_cast<double>(bytes);
    EXPECT_GE(static_cast<double>(t) * static_cast<double>(rate), need * (1 - 1e-12));
    if (t == 0) continue;
    EXPECT_LT(static_cast<double>(t - 1) * static_cast<double>(rate), need * (1 + 1e-12));
  }
}

TEST(TransmissionTime, HoldsAtItsStatedLimit) {
  // 2^40 - 1 bytes at 1 kbit/s: (2^40 - 1) * 8 * 10^6 ns still fits the signed 64-bit count.
  EXPECT_EQ(transmission_time((std::uint64_t{1} << 40U) - 1, 1).count(),
            ((std::int64_t{1} << 40U) - 1) * 8'000'000);
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.now(), TimePoint{});
  clock.advance(std::chrono::microseconds(3));
  EXPECT_EQ(clock.now() - TimePoint{}, nanoseconds(3000));
  clock.set(TimePoint(nanoseconds(7)));
  EXPECT_EQ(clock.now().time_since_epoch(), nanoseconds(7));
}

TEST(SteadyClock, NeverRunsBackwards) {
  const SteadyClock clock;
  TimePoint last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = clock.now();
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_LT(last, kNever);
}

}  // namespace
}  // namespace selmcast
