// Accumulator: where received updates are added, straight from the receive buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/large_array.h"
#include "multicast/stream_shape.h"
#include "plan/axes/policy.h"
#include "sync/mix/kernels.h"
#include "sync/mix/pair_credit.h"

namespace selmcast {

/// One open round of one stream. Keeps a contributor count per frame, so that a sender that dies
/// in mid-round leaves whole frames, each divided by its own count. One thread.
///
/// `sent` is what this rank sends itself: its parameters as they travel, Q(own), and with f32 the
/// parameters. Others are compared with that, so that rounding for the way cancels where ranks
/// agree:
///
/// `average`: own += sum(update - sent) / (contributors + 1), the gossip mean in difference form,
/// which leaves equal inputs equal bit for bit and, where rounding matters, keeps what own has
/// beyond the type that travels (Xiao and Boyd 2004 give the weights for equal degrees; Frasca,
/// Carli, Fagnani and Zampieri 2009 show that this form keeps the mean over all ranks). It is off
/// the exact mean by at most sum(|Q(u) - u| + |Q(own) - own|) / (contributors + 1).
/// `sgd`: own = (sent + sum(update)) / (contributors + 1), the all-reduce mean of gradients: own is
/// rounded as it is for all others, so that whoever adds the same set in the same order (when
/// deterministic, in any) gets the same bits.
/// `age`: own += sum(weight (update - sent)), in difference form for the same reasons, with the
/// weights of a PairCredit, which together are below 1, so that no result leaves the range of what
/// was mixed but by rounding.
class Accumulator {
 public:
  /// `shape` is the stream's as it travels. Allocates a sum of 4 bytes per element (8 when
  /// deterministic) and the counts. `credit` is there with MixKind::age and only then.
  Accumulator(const StreamShape& shape, MixKind mix, bool deterministic,
              WireElement element = WireElement::f32, std::optional<PairCredit> credit = {});

  /// Forgets everything, for a round of `bytes` bytes, at most the stream's. O(frames).
  void begin(std::uint64_t bytes) noexcept;
  /// The same with what `age` needs to know: the round is of `epoch` with so many members (this
  /// rank is one), and `senders` are to be heard. O(frames + senders).
  void begin(std::uint64_t bytes, std::uint32_t epoch, std::size_t members,
             std::span<const Rank> senders) noexcept;
  /// A round of the whole stream.
  void begin(std::uint32_t epoch, std::size_t members, std::span<const Rank> senders) noexcept {
    begin(stream_bytes_, epoch, members, senders);
  }
  /// Adds one received frame. `sent` is the start of this rank's stream.
  /// `weight`: the sum of so many ranks' values; more than one under `sgd` only.
  void add(std::uint32_t frame, Rank sender, std::span<const std::byte> payload,
           const std::byte* sent, std::uint32_t weight = 1) noexcept;
  /// All frames of this sender were added; once per round and sender.
  void complete(Rank sender) noexcept;
  /// `average`, float32, not deterministic: what was added so far was compared with `sent`; makes
  /// it a comparison with `own`, so that finish(own) is right although `own` moved away from
  /// `sent`.
  void move_to(const float* own, const std::byte* sent) noexcept;
  /// Mixes the sums into the parameters `own`. Frames without a contributor stay as they are.
  void finish(float* own, const std::byte* sent) noexcept;
  /// The same of one frame; finish() then leaves it alone.
  void finish(std::uint32_t frame, float* own, const std::byte* sent) noexcept;

  /// Adds the own values to a frame, so that its sum may be sent from sums(), with its weight from
  /// weights(); finish() then leaves it alone. `sgd`, float32, not deterministic.
  void sum_up(std::uint32_t frame, const std::byte* sent) noexcept;
  /// Empty when deterministic.
  std::span<const float> sums() noexcept {
    return {sums_.data(), deterministic_ ? 0 : stream_bytes_ / bytes_of(element_)};
  }
  const std::uint16_t* weights() const noexcept { return weights_.data(); }

  std::uint32_t contributors(std::uint32_t frame) const noexcept { return counts_[frame]; }

 private:
  void add_floating(float* sum, bool fresh, Rank sender, std::span<const std::byte> payload,
                    const std::byte* own) noexcept;
  void add_fixed(std::int64_t* sum, Rank sender, std::span<const std::byte> payload,
                 const std::byte* own) noexcept;
  void finish_frame(std::uint32_t frame, float* own, const std::byte* sent) noexcept;

  StreamShape shape_;  ///< Of the round.
  std::uint64_t stream_bytes_;
  MixKind mix_;
  bool deterministic_;
  WireElement element_;
  std::optional<PairCredit> credit_;
  LargeArray<float> sums_;
  LargeArray<std::int64_t> fixed_sums_;
  std::vector<std::uint16_t> counts_;   ///< By frame: what was added.
  std::vector<std::uint16_t> weights_;  ///< And how many ranks are in it.
};

}  // namespace selmcast
