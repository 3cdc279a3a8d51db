// Slim-DP with explorers of the ranks' own: pairs of index and value through accumulator and
// exchange, as the engine carries them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "sync/accumulator.h"
#include "sync/steps/delta_exchange.h"

namespace selmcast {
namespace {

using Floats = std::vector<float>;

TEST(KeyedSums, AddUpInAnyOrderAndIgnoreWhatHasNoPlace) {
  SplitMix64 random(1);
  std::vector<std::pair<std::uint32_t, float>> pairs;
  std::vector<double> sum(7, 0.0);
  std::vector<std::uint32_t> count(7, 0);
  for (int i = 0; i < 200; ++i) {
    const auto index = static_cast<std::uint32_t>(random.below(7));
    const auto value = static_cast<float>(random.unit() * 2 - 1);
    pairs.emplace_back(index, value);
    sum[index] += static_cast<double>(value);
    ++count[index];
  }
  pairs.emplace_back(7, 1.0F);
  pairs.emplace_back(0xFFFFFFFFU, 1.0F);
  std::vector<double> first;
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::shuffle(pairs.begin(), pairs.end(), random);
    KeyedSums sums(7);
    for (const auto& [index, value] : pairs) sums.add(index, value);
    std::vector<double> means;
    for (std::uint32_t i = 0; i < 7; ++i) {
      EXPECT_EQ(sums.count(i), count[i]);
      EXPECT_NEAR(sums.mean(i), sum[i] / count[i], 1e-9);
      means.push_back(sums.mean(i));
      sums.clear(i);
      EXPECT_EQ(sums.count(i), 0U);
    }
    if (attempt == 0) first = means;
    EXPECT_EQ(means, first);
  }
  KeyedSums extreme(2);
  extreme.add(0, std::nanf(""));
  extreme.add(1, INFINITY);
  EXPECT_EQ(extreme.mean(0), -0x1p28);
  EXPECT_EQ(extreme.mean(1), 0x1p28);
}

/// A stream of 10 places and 15 pairs in frames of 6 elements: one frame holds both kinds.
TEST(Accumulator, AddsPairsToTheirSumsAndMixesOnlyWhatHasPlaces) {
  constexpr std::uint32_t kPlaces = 10, kPairs = 15, kWords = kPlaces + 2 * kPairs;
  const StreamShape shape{kWords * 4, 24, 4};
  for (const bool deterministic : {false, true}) {
    KeyedSums sums(100);
    Accumulator accumulator(shape, MixKind::average, deterministic, WireElement::f32, {},
                            {kPlaces, &sums});
    Floats own(kWords, 1.0F), update(kWords, 3.0F);
    for (std::uint32_t i = 0; i < kPairs; ++i) {
      const std::uint32_t index = 6 * i + 1;
      std::memcpy(&update[kPlaces + 2 * i], &index, 4);
      update[kPlaces + 2 * i + 1] = static_cast<float>(i) / 4;
    }
    const auto before = own;
    const auto* sent = std::as_bytes(std::span(own)).data();
    accumulator.begin(1, 2, {});
    for (std::uint32_t f = 0; f < shape.frames(); ++f) {
      if (f == 4) continue;  // Lost: pairs 7 to 9.
      accumulator.add(
          f, 1, std::as_bytes(std::span(update)).subspan(shape.offset_of(f), shape.length_of(f)),
          sent);
    }
    accumulator.finish(own.data(), sent);
    for (std::uint32_t i = 0; i < kPlaces; ++i) EXPECT_EQ(own[i], 2.0F) << i;
    for (std::uint32_t i = kPlaces; i < kWords; ++i) EXPECT_EQ(own[i], before[i]) << i;
    for (std::uint32_t c = 0; c < 100; ++c) {
      const auto pair = (c - 1) / 6;
      const bool came = c % 6 == 1 && pair < kPairs && (pair < 7 || pair > 9);
      ASSERT_EQ(sums.count(c), came ? 1U : 0U) << c;
      if (came) {
        EXPECT_EQ(sums.mean(c), pair / 4.0);
      }
    }
  }
}

/// n ranks whose rounds are carried by their accumulators, frame by frame.
class Indexed {
 public:
  Indexed(std::uint32_t n, std::uint32_t elements, const SlimShares& shares, double gamma = 1.0)
      : models(n, Floats(elements, 0.0F)) {
    exchanges.reserve(n);
    for (std::uint32_t r = 0; r < n; ++r) exchanges.emplace_back(models[r], gamma, shares, 8, r);
    shape_ = {exchanges[0].stream().size() * 4, 40, 4};
    for (auto& exchange : exchanges) {
      accumulators_.emplace_back(shape_, MixKind::average, true, WireElement::f32,
                                 std::optional<PairCredit>(), exchange.keyed());
    }
  }

  void depart() {
    for (auto& exchange : exchanges) exchange.depart(false);
  }
  void carry() {
    const auto n = static_cast<Rank>(exchanges.size());
    std::vector<Floats> sent;
    for (auto& exchange : exchanges) {
      sent.emplace_back(exchange.stream().begin(), exchange.stream().end());
    }
    for (Rank r = 0; r < n; ++r) {
      const auto* own = std::as_bytes(std::span(sent[r])).data();
      accumulators_[r].begin(1, n, {});
      for (Rank s = 0; s < n; ++s) {
        for (std::uint32_t f = 0; s != r && f < shape_.frames(); ++f) {
          const auto all = std::as_bytes(std::span(sent[s]));
          accumulators_[r].add(f, s, all.subspan(shape_.offset_of(f), shape_.length_of(f)), own);
        }
      }
      accumulators_[r].finish(exchanges[r].stream().data(), own);
    }
  }
  void arrive() {
    for (auto& exchange : exchanges) exchange.arrive(static_cast<std::uint32_t>(exchanges.size()));
  }
  void round() {
    depart();
    carry();
    arrive();
  }

  std::vector<Floats> models;
  std::vector<DeltaExchange> exchanges;

 private:
  StreamShape shape_;
  std::vector<Accumulator> accumulators_;
};

TEST(SlimIndexed, BytesAreBetaAndTwiceTheExplorer) {
  for (const auto& [alpha, beta] : {std::pair(0.3, 0.15), {0.3, 0.0}, {0.5, 0.4}, {1.0, 0.1}}) {
    Indexed ranks(2, 10'000, {alpha, beta, 20, true, true});
    const double share = static_cast<double>(ranks.exchanges[0].stream().size()) / 10'000;
    const double formula = beta + 2 * (alpha - beta);
    EXPECT_NEAR(share, formula, 0.01 * formula);
  }
}

TEST(SlimIndexed, LosesNoStepAndCountsNoneTwice) {
  constexpr std::uint32_t n = 4, elements = 61;
  for (const auto& shares : {SlimShares{0.3, 0.15, 4, true, true},
                             {0.2, 0.0, 1, true, true},
                             {0.4, 0.4, 3, true, true}}) {
    Indexed ranks(n, elements, shares);
    SplitMix64 random(3);
    std::vector<double> done(elements, 0.0);
    const auto step = [&] {
      for (auto& model : ranks.models) {
        for (std::uint32_t c = 0; c < elements; ++c) {
          const float change = (static_cast<float>(random.below(129)) - 64.0F) / 1024.0F;
          model[c] += change;
          done[c] += static_cast<double>(change) / n;
        }
      }
    };
    for (int round = 0; round < 60; ++round) {
      step();
      ranks.depart();
      step();  // While the round is under way.
      ranks.carry();
      ranks.arrive();
      for (std::uint32_t c = 0; c < elements; ++c) {
        double sum = 0.0;
        for (auto& exchange : ranks.exchanges) {
          sum += static_cast<double>(exchange.agreed()[c] + exchange.own()[c]) / n;
          // Bit for bit, although each heard the others in another order and itself not at all.
          ASSERT_EQ(exchange.agreed()[c], ranks.exchanges[0].agreed()[c]);
        }
        // Own changes pass through float32 and fixed point once a round.
        ASSERT_NEAR(sum, done[c], 1e-6 * (1 + round)) << "round " << round;
      }
    }
    for (const auto& exchange : ranks.exchanges) EXPECT_EQ(exchange.mismatches(), 0U);
  }
}

TEST(SlimIndexed, RanksExploreDifferentCoordinatesAndTheirCoreIsOne) {
  constexpr std::uint32_t n = 3, elements = 1000;
  Indexed ranks(n, elements, {0.2, 0.1, 5, true, true});
  for (auto& model : ranks.models) {
    for (std::uint32_t c = 0; c < elements; ++c) model[c] = 1.0F + static_cast<float>(c) / 1000.0F;
  }
  ranks.depart();
  std::vector<std::vector<std::uint32_t>> explored(n);
  for (Rank r = 0; r < n; ++r) {
    const auto stream = ranks.exchanges[r].stream();
    for (std::uint64_t at = ranks.exchanges[r].keyed().first; at < stream.size(); at += 2) {
      std::uint32_t index = 0;
      std::memcpy(&index, &stream[at], 4);
      explored[r].push_back(index);
    }
    EXPECT_EQ(explored[r].size(), 100U);
  }
  EXPECT_NE(explored[0], explored[1]);
  EXPECT_NE(explored[1], explored[2]);
  ranks.carry();
  ranks.arrive();
  // m of n ranks sent 1 + c/1000 over an agreed 0: m/n of it. The core went from all.
  std::vector<std::uint32_t> senders(elements, 0);
  for (const auto& list : explored) {
    for (const auto c : list) ++senders[c];
  }
  std::uint32_t core = 0;
  for (std::uint32_t c = 0; c < elements; ++c) {
    const double value = 1.0 + c / 1000.0;
    const double moved = static_cast<double>(ranks.exchanges[0].agreed()[c]);
    if (senders[c] == 0 && moved != 0.0) {
      EXPECT_NEAR(moved, value, 1e-6);
      ++core;
    } else {
      EXPECT_NEAR(moved, value * senders[c] / n, 1e-6) << c;
    }
  }
  EXPECT_EQ(core, 100U);
}

TEST(SlimIndexed, TheEndExchangesEverything) {
  constexpr std::uint32_t n = 3, elements = 50;
  Indexed ranks(n, elements, {0.3, 0.1, 5, true, true});
  for (Rank r = 0; r < n; ++r) {
    for (float& x : ranks.models[r]) x = 3.0F * static_cast<float>(r);
  }
  ranks.round();
  ranks.round();
  for (auto& exchange : ranks.exchanges) exchange.begin_flush();
  for (auto left = ranks.exchanges[0].flush_rounds(); left > 0; --left) ranks.round();
  for (const auto& model : ranks.models) {
    for (const float x : model) EXPECT_NEAR(x, 3.0, 1e-5);
  }
  EXPECT_EQ(ranks.models[0], ranks.models[1]);
  EXPECT_EQ(ranks.models[0], ranks.models[2]);
}

}  // namespace
}  // namespace selmcast
