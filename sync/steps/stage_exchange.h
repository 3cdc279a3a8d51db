// What ranks exchange in two stages: the important share behind a barrier, the rest while the next
// step computes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sync/steps/importance.h"

namespace selmcast {

/// Two-stage synchronisation (Chen, Shi, Liu, Li, Liu, Xu: "OSP: Boosting Distributed Model
/// Training with 2-stage Synchronization", ICPP 2023) without a server: every rank keeps the
/// parameters that all agree on.
///
/// After a step, stage 1 exchanges the blocks that matter most (ImportantBlocks) and waits for
/// their mean. The others depart, too, and their mean arrives at the end of the next step: lag
/// exactly 1. Meanwhile the worker goes on from its own guess, agreed + own step (local-gradient
/// based parameter correction, LGP), which the mean then replaces; what the worker did to them in
/// the meantime stays on top. So nothing is dropped, and nothing counted twice.
///
/// The share of stage 1 is fixed, or adapts: it begins with 1 (BSP); while somebody says that the
/// rest of the last step had arrived before it was needed, more is put off, up to kPutOffMax of
/// the model; when all had to wait, less (the slowest rank sets the time of a step, and who waits
/// for the rest before it would wait for that rank as well). Levels are announced a step ahead and
/// taken by all ranks or none; the ranks' sets are compared by a fingerprint. After a death in the
/// middle of a round ranks may differ in either: that step then exchanges everything in the order
/// of the parameters, after which they agree again.
///
/// Six copies of the model beside the application's. One thread at a time, and never during a round
/// of its own. Allocates in its constructor only.
class StageExchange {
 public:
  /// The most that is put off, in 1/kLevels of the model.
  static constexpr std::uint32_t kLevels = 32, kPutOffMax = 26;

  /// `parameters` must outlive the exchange. `share` of the parameters, 0..1, is exchanged behind
  /// the barrier; absent: it adapts.
  StageExchange(std::span<float> parameters, std::optional<double> share);

  /// Memory of the rounds.
  std::span<float> stream() noexcept { return stream_; }
  /// Values of stream() that stage 1 and the rest take, from the front.
  std::size_t first_count() const noexcept { return kWords + important_; }
  std::size_t rest_count() const noexcept { return blocks_.places() - important_; }

  /// Before stage 1: takes over what the application did and chooses the blocks.
  void depart_first();
  /// After it. False: the ranks' sets differed and nothing was merged; now comes depart_all().
  bool arrive_first();
  /// Everything, instead of the rest or of both stages, in one exchange of the whole stream().
  void depart_all();
  void arrive_all();
  /// Before the rest leaves (rest_count() > 0): the parameters then hold the own guess.
  void depart_rest();
  /// After it. The application may have changed the parameters meanwhile. `early`: it had arrived
  /// before the application asked.
  void arrive_rest(bool early);

  std::span<const float> agreed() const noexcept { return agreed_; }
  /// Of the parameters, in the step that comes next.
  double share() const noexcept;
  std::uint32_t mismatches() const noexcept { return mismatches_; }

 private:
  static constexpr std::uint32_t kWords = 3;  ///< Vote, fingerprint and level, before the values.

  void take_over();
  void hand_back();
  void adapt(bool early);

  std::span<float> parameters_;
  std::optional<double> fixed_share_;
  ImportantBlocks blocks_;
  std::uint32_t level_ = 0, next_level_ = 0;
  bool early_ = true;  ///< Of this rank, about the last rest.
  std::size_t important_ = 0;
  std::uint32_t mismatches_ = 0;
  std::vector<float> agreed_, own_, base_, change_, under_way_, stream_;
};

}  // namespace selmcast
