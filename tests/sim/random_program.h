// Programs drawn from a seed: stars, chains, trees and quorums, a tree or chain per part.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/shuffle.h"
#include "plan/program.h"

namespace selmcast::testing_jobs {

inline std::uint32_t below(SplitMix64& random, std::size_t bound) {
  return static_cast<std::uint32_t>(random.below(static_cast<std::uint32_t>(bound)));
}

/// What every rank does, from which each rank's program is cut.
struct Drawing {
  /// One part reduced to a root along a tree and handed out along another one.
  struct Tree {
    Shard part;
    std::vector<Rank> up;    ///< By rank: to whom its sum goes; the root's is itself.
    std::vector<Rank> down;  ///< By rank: from whom the mean comes; the root's is itself.
    Rank root = 0;
    bool multicast = false;  ///< The root hands out by a group, to all at once.
    bool quorum = false;     ///< A star whose root takes the first half that comes.
  };
  std::uint32_t ranks = 2;
  std::vector<Tree> trees;

  std::string text() const {
    std::string out = std::to_string(ranks) + " ranks";
    for (const Tree& tree : trees) {
      out += "; part " + std::to_string(tree.part.index) + (tree.quorum ? " quorum" : "") +
             (tree.multicast ? " multicast" : "") + " up";
      for (const Rank rank : tree.up) out += " " + std::to_string(rank);
      out += " down";
      for (const Rank rank : tree.down) out += " " + std::to_string(rank);
    }
    return out;
  }
};

enum class Shape : std::uint8_t { star, chain, ring, tree, quorum };

/// A random tree in which each rank of `order` hangs below one before it; a chain below the last
/// one, a star below the first.
inline std::vector<Rank> hang(const std::vector<std::uint32_t>& order, Shape kind,
                              SplitMix64& random) {
  std::vector<Rank> above(order.size());
  above[order[0]] = order[0];
  for (std::uint32_t i = 1; i < order.size(); ++i) {
    const std::uint32_t at = kind == Shape::tree ? below(random, i) : i - 1;
    above[order[i]] = kind == Shape::star || kind == Shape::quorum ? order[0] : order[at];
  }
  return above;
}

inline Drawing draw(Shape kind, std::uint64_t seed) {
  SplitMix64 random(mix_seed(seed));
  Drawing out;
  out.ranks = 2 + below(random, 11);
  const std::uint32_t parts =
      kind == Shape::ring ? out.ranks : 1 + below(random, std::min(out.ranks, 4U));
  for (std::uint32_t part = 0; part < parts; ++part) {
    std::vector<std::uint32_t> order(out.ranks);
    std::iota(order.begin(), order.end(), 0U);
    if (kind == Shape::ring) {
      // Up along the ring to the part's owner, and down from it on.
      std::rotate(order.begin(), order.begin() + part, order.end());
    } else {
      shuffle(order, random);
    }
    Drawing::Tree tree;
    tree.part = {part, parts};
    tree.root = order[0];
    tree.down = hang(order, kind, random);
    if (kind == Shape::ring) std::reverse(order.begin() + 1, order.end());
    tree.up = hang(order, kind, random);
    tree.quorum = kind == Shape::quorum;
    tree.multicast = kind == Shape::star || kind == Shape::quorum;
    out.trees.push_back(std::move(tree));
  }
  return out;
}

inline std::vector<Rank> children_of(const std::vector<Rank>& above, Rank rank) {
  std::vector<Rank> out;
  for (Rank r = 0; r < above.size(); ++r) {
    if (above[r] == rank && r != rank) out.push_back(r);
  }
  return out;
}

/// Two phases a tree: up, then down. Groups: one per tree.
inline Program program_of(const Drawing& drawing, std::uint32_t epoch, Rank self,
                          const RateFraction& rate) {
  Program out;
  out.epoch = epoch;
  for (Rank rank = 0; rank < drawing.ranks; ++rank) out.members.push_back(rank);
  out.phases = static_cast<std::uint16_t>(2 * drawing.trees.size());
  out.rate = out.rate_without_k = rate;
  out.period_k = 1;
  out.add_round(rate);
  for (std::uint16_t t = 0; t < drawing.trees.size(); ++t) {
    const auto& tree = drawing.trees[t];
    const auto up = static_cast<std::uint16_t>(2 * t), down = static_cast<std::uint16_t>(2 * t + 1);
    const auto children = children_of(tree.up, self);
    for (const Rank child : children) {
      const bool leaf = children_of(tree.up, child).empty();
      out.receive({.relayed = !leaf, .phase = up, .part = tree.part}, child);
    }
    auto expects = static_cast<std::uint16_t>(children.size());
    if (tree.quorum) expects = static_cast<std::uint16_t>((children.size() + 1) / 2);
    if (self != tree.root) {
      const Leg leg{.source = children.empty() ? Leg::Source::snapshot : Leg::Source::sum,
                    .phase = up,
                    .fed_by = up,
                    .expects = expects,
                    .part = tree.part};
      out.send_each(leg, {&tree.up[self], 1});
      out.receive(
          {.combine = Leg::Combine::replace, .relayed = true, .phase = down, .part = tree.part},
          tree.down[self]);
    }
    Leg leg{.source = self == tree.root ? Leg::Source::mean : Leg::Source::arrived,
            .phase = down,
            .fed_by = self == tree.root ? up : down,
            .expects = expects,
            .part = tree.part};
    const auto to = children_of(tree.down, self);
    if (tree.multicast && self == tree.root) {
      leg.group = t;
      out.send(leg, to);
      out.send_groups.push_back(t);
    } else {
      out.send_each(leg, to);
      if (tree.multicast) out.receive_groups.push_back(t);
    }
  }
  return out;
}

}  // namespace selmcast::testing_jobs
