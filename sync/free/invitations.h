// Which rounds of others this rank is a receiver of: by the program, or (pace=ssp:s,eta) by
// invitation, with the groups that are joined for single rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sync/rounds/epoch_state.h"

namespace selmcast {

/// The driver's thread. Allocates in its constructor, and where a group is joined for a round.
class Invitations {
 public:
  Invitations(Transport& transport, std::uint32_t world) : transport_(transport), last_(world) {}

  /// The first of the sender's rounds from `from` on in which this rank is a receiver.
  std::optional<std::uint32_t> next(const EpochState& epoch, Rank sender,
                                    std::uint32_t from) const noexcept;
  /// A TAIL: true when it was news.
  bool invited(const EpochState& epoch, const FrameHeader& header) noexcept;
  /// An EVICT: this rank is out of the round.
  void cut(const FrameHeader& header) noexcept;

  /// The sender's group, for a round that is about to be heard; where programs say who receives,
  /// all are joined already. False: it cannot be joined, see error().
  bool join(EpochState& epoch, Rank sender) noexcept;
  void leave(EpochState& epoch, Rank sender) noexcept;
  const std::optional<Error>& error() const noexcept { return error_; }
  /// Groups joined and left since the call before.
  std::uint32_t take_changes() noexcept { return std::exchange(changes_, 0U); }

 private:
  struct Invitation {
    std::uint32_t epoch = 0, round = 0;
    std::uint32_t not_below = 0;  ///< This rank was cut out of the rounds below.
  };

  Transport& transport_;
  std::vector<Invitation> last_;  ///< By sender.
  std::optional<Error> error_;
  std::uint32_t changes_ = 0;
};

}  // namespace selmcast
