// Credit of pairs: how much a receiver lets each sender move it (mix=age).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// Gossip with age credit, of one receiver. Each ordered pair earns gamma / n per round, n being
/// the members of the view in force, and spends what it has when an update is delivered:
/// own += sum(a_i (update_i - own)) with the credit a_i, all of a round together at most 1 - 1/n.
/// Over time every sender so moves every receiver equally far, however often the two met, and the
/// fixed point does not lean towards ranks that are heard more often, as that of the plain gossip
/// mean does. (This project's; compare the weights of Xiao and Boyd, "Fast linear iterations for
/// distributed averaging", 2004, which need to know all degrees of a fixed graph.)
///
/// Counted in whole units of 2^-24, which a float32 holds exactly, so that what is spent is what
/// was applied, and for each pair spent() + outstanding() = earned(), bit for bit. Earned is, in an
/// epoch, the whole part of gamma * rounds / n. Over the cap, each pair's credit (what exceeds the
/// cap alone left aside) is reduced by the same factor, cut to units, and the rest stays to be
/// spent.
///
/// Only a complete delivery spends. Of a sender that dies in mid-round those frames count that
/// came, with the same weight, and its credit stays unspent, as nobody will hear it again.
///
/// Weights are fixed when a round begins. Allocates in its constructor only. One thread.
class PairCredit {
 public:
  static constexpr std::uint64_t kUnit = std::uint64_t{1} << 24U;  ///< A weight of 1.

  /// 0 < gamma <= 1, rounded to units.
  PairCredit(std::uint32_t world, double gamma);

  /// A round of this epoch, with this many members, in which these ranks are to be heard.
  void begin(std::uint32_t epoch, std::size_t members, std::span<const Rank> senders) noexcept;
  /// Of a sender of this round, in units: below kUnit.
  std::uint32_t weight(Rank sender) const noexcept { return weights_[sender]; }
  /// The sender's update of this round is merged completely; once per round.
  void delivered(Rank sender) noexcept { spent_[sender] += weights_[sender]; }

  // In units, of this receiver with one sender:
  std::uint64_t earned() const noexcept { return earned_; }
  std::uint64_t spent(Rank sender) const noexcept { return spent_[sender]; }
  std::uint64_t outstanding(Rank sender) const noexcept { return earned_ - spent_[sender]; }

 private:
  std::uint64_t gamma_;
  std::uint32_t epoch_ = 0;
  std::uint64_t rounds_ = 0, before_epoch_ = 0;  ///< Rounds of the epoch; earned before it.
  std::uint64_t earned_ = 0;
  std::vector<std::uint64_t> spent_;    ///< By rank.
  std::vector<std::uint32_t> weights_;  ///< By rank; of this round's senders.
};

}  // namespace selmcast
