// Division of the samples: test set and shards (declared in dataset.h).
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/shuffle.h"
#include "train/dataset.h"

namespace selmcast {
namespace {

using Indices = std::vector<std::uint32_t>;
using Counts = std::array<std::uint32_t, Dataset::kClasses>;

// Streams of random numbers that must not repeat one another under the same seed.
constexpr std::uint64_t kTestStream = 0x7465737473657400U;
constexpr std::uint64_t kShardStream = 0x7368617264730000U;

/// Shares of `total` in proportion to `counts`, rounded by largest remainders (ties: lower class).
Counts proportional(const Counts& counts, std::uint32_t total) {
  const std::uint64_t sum = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  Counts quota{};
  std::vector<std::pair<std::uint64_t, std::uint32_t>> remainders;
  std::uint32_t given = 0;
  for (std::uint32_t c = 0; c < Dataset::kClasses; ++c) {
    const std::uint64_t scaled = std::uint64_t{counts[c]} * total;
    quota[c] = static_cast<std::uint32_t>(scaled / sum);
    given += quota[c];
    remainders.emplace_back(scaled % sum, c);
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::uint32_t i = 0; given < total; ++i, ++given) ++quota[remainders[i].second];
  return quota;
}

/// The samples class after class, classes in a random order and each class shuffled.
Indices ordered_by_class(const Dataset& data, std::span<const std::uint32_t> train,
                         SplitMix64& random, std::uint32_t& largest_class) {
  std::array<Indices, Dataset::kClasses> by_class;
  for (const std::uint32_t sample : train) by_class[data.labels[sample]].push_back(sample);
  Indices classes(Dataset::kClasses);
  std::iota(classes.begin(), classes.end(), 0U);
  shuffle(classes, random);
  Indices ordered;
  largest_class = 0;
  for (const std::uint32_t c : classes) {
    shuffle(by_class[c], random);
    largest_class = std::max(largest_class, static_cast<std::uint32_t>(by_class[c].size()));
    ordered.insert(ordered.end(), by_class[c].begin(), by_class[c].end());
  }
  return ordered;
}

/// Cuts into `count` runs of consecutive elements whose sizes differ by at most one.
std::vector<Indices> cut(const Indices& samples, std::size_t count) {
  std::vector<Indices> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = static_cast<std::ptrdiff_t>(samples.size() * i / count);
    const auto to = static_cast<std::ptrdiff_t>(samples.size() * (i + 1) / count);
    pieces.emplace_back(samples.begin() + from, samples.begin() + to);
  }
  return pieces;
}

/// Orders 2n pieces so that the i-th and the (i+n)-th belong together: see make_shards().
std::vector<Indices> matched(std::vector<Indices> pieces, const Dataset& data) {
  const auto straddles = [&](const Indices& piece) {
    return data.labels[piece.front()] != data.labels[piece.back()];
  };
  // Straddling pieces first: with at most 9 of them among 20 pieces or more, each then meets a pure
  // one half the list away, and pure ones meet across half of the pure classes.
  std::stable_partition(pieces.begin(), pieces.end(), straddles);
  return pieces;
}

}  // namespace

std::string_view to_string(ShardKind kind) noexcept {
  return kind == ShardKind::skew ? "skew" : "iid";
}

TrainTestSplit split_train_test(const Dataset& data, std::uint64_t seed) {
  SplitMix64 random(mix_seed(seed ^ kTestStream));
  std::array<Indices, Dataset::kClasses> by_class;
  for (std::uint32_t i = 0; i < data.size(); ++i) by_class[data.labels[i]].push_back(i);
  Counts counts{};
  for (std::uint32_t c = 0; c < Dataset::kClasses; ++c) {
    counts[c] = static_cast<std::uint32_t>(by_class[c].size());
  }
  const auto kept = static_cast<std::uint32_t>(std::uint64_t{data.size()} * 4 / 5);
  const Counts quota = proportional(counts, data.size() - kept);
  TrainTestSplit split;
  for (std::uint32_t c = 0; c < Dataset::kClasses; ++c) {
    shuffle(by_class[c], random);
    const auto middle = by_class[c].begin() + quota[c];
    split.test.insert(split.test.end(), by_class[c].begin(), middle);
    split.train.insert(split.train.end(), middle, by_class[c].end());
  }
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.test.begin(), split.test.end());
  return split;
}

std::vector<std::vector<std::uint32_t>> make_shards(const Dataset& data,
                                                    std::span<const std::uint32_t> train,
                                                    std::uint32_t workers, ShardKind kind,
                                                    std::uint64_t seed) {
  SELMCAST_CHECK(workers >= 1 && workers <= train.size() / 2, "every worker needs two samples");
  SplitMix64 random(mix_seed(seed ^ kShardStream));
  if (kind == ShardKind::iid) {
    Indices samples(train.begin(), train.end());
    shuffle(samples, random);
    return cut(samples, workers);
  }
  std::uint32_t largest_class = 0;
  const Indices ordered = ordered_by_class(data, train, random, largest_class);
  if (train.size() / workers > largest_class) return cut(ordered, workers);
  auto shards = matched(cut(ordered, std::size_t{2} * workers), data);
  for (std::uint32_t i = 0; i < workers; ++i) {
    const Indices& other = shards[i + workers];
    shards[i].insert(shards[i].end(), other.begin(), other.end());
  }
  shards.resize(workers);
  return shards;
}

}  // namespace selmcast
