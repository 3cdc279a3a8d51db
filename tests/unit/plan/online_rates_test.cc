// Weighted max-min rates: cases by hand, and what makes them that (Bertsekas and Gallager, 6.5.2):
// every stream has a full card on which none has more for its weight.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "plan/online/rates.h"

namespace selmcast {
namespace {

std::vector<double> weighted(const std::vector<Kbps>& tx, const std::vector<Kbps>& rx,
                             std::vector<PacedStream> streams) {
  weighted_rates(tx, rx, streams);
  std::vector<double> out;
  for (const auto& stream : streams) out.push_back(stream.rate);
  return out;
}

TEST(OnlineRates, OneStreamHasItsSlowestCard) {
  EXPECT_EQ(weighted({100, 100, 100}, {100, 70, 90}, {{0, {1, 2}, 0.3}})[0], 70.0);
  EXPECT_EQ(weighted({50, 100, 100}, {100, 70, 90}, {{0, {1, 2}, 1e6}})[0], 50.0);
  EXPECT_EQ(weighted({50, 100}, {100, 70}, {{0, {}, 1.0}})[0], 0.0);
  EXPECT_TRUE(weighted({50, 100}, {100, 70}, {}).empty());
}

// Both end at rank 2, weighted 1 to 3; rank 1's own card then stops it at 40, and 0 takes the rest.
TEST(OnlineRates, WeightsShareACardAndTheRestIsUsed) {
  EXPECT_EQ(weighted({100, 100, 1}, {1, 1, 100}, {{0, {2}, 1.0}, {1, {2}, 3.0}}),
            (std::vector<double>{25, 75}));
  EXPECT_EQ(weighted({100, 40, 1}, {1, 1, 100}, {{0, {2}, 1.0}, {1, {2}, 3.0}}),
            (std::vector<double>{60, 40}));
}

TEST(OnlineRates, EveryStreamHasAFullCardWhereNoneIsBetterOff) {
  SplitMix64 random(7);
  for (int instance = 0; instance < 300; ++instance) {
    const auto n = static_cast<std::uint32_t>(2 + random.below(9));
    std::vector<Kbps> tx, rx;
    for (Rank r = 0; r < n; ++r) {
      tx.push_back(1 + random.below(100));
      rx.push_back(1 + random.below(100));
    }
    std::vector<PacedStream> streams;
    for (Rank sender = 0; sender < n; ++sender) {
      PacedStream stream{sender, {}, 0.01 + random.unit()};
      for (Rank to = 0; to < n; ++to) {
        if (to != sender && random.below(2) == 0) stream.receivers.push_back(to);
      }
      if (!stream.receivers.empty()) streams.push_back(stream);
    }
    weighted_rates(tx, rx, streams);
    std::vector<double> load(n, 0.0), most(n, 0.0);  // Of receivers; a sender has one stream.
    for (const auto& stream : streams) {
      EXPECT_LE(stream.rate, static_cast<double>(tx[stream.sender]) * (1 + 1e-9));
      for (const Rank to : stream.receivers) {
        load[to] += stream.rate;
        most[to] = std::max(most[to], stream.rate / stream.weight);
      }
    }
    for (Rank r = 0; r < n; ++r) EXPECT_LE(load[r], static_cast<double>(rx[r]) * (1 + 1e-9));
    for (const auto& stream : streams) {
      const auto full = [](double used, Kbps card) {
        return used >= static_cast<double>(card) * (1 - 1e-9);
      };
      const bool held =
          full(stream.rate, tx[stream.sender]) ||
          std::any_of(stream.receivers.begin(), stream.receivers.end(), [&](Rank to) {
            return full(load[to], rx[to]) && stream.rate / stream.weight >= most[to] * (1 - 1e-9);
          });
      EXPECT_TRUE(held) << "instance " << instance << ", sender " << stream.sender;
    }
  }
}

}  // namespace
}  // namespace selmcast
