// What ranks exchange when a worker's own steps go on while older ones are under way: the agreed
// parameters with the steps that are not merged yet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sync/steps/coordinates.h"

namespace selmcast {

/// Three copies of the model beside the application's w: `agreed` (equal on all ranks), `own` (this
/// rank's changes that are neither merged nor under way) and `stream` (what a round sends, and
/// where its mean arrives).
///
/// depart: stream = agreed + own, own = 0. arrive: agreed = mean of all ranks' streams,
/// w = agreed + gamma * own. So the agreed parameters move by the mean of what the ranks did, and:
/// - gamma = 0 is OSP (Wang et al., ICPP 2019, "Overlap synchronous parallel"): a worker goes on
///   from the merged parameters and its steps in the meantime reach it with the next round;
/// - gamma > 0 is LOSP: steps that are not merged yet are kept in w, weighted; gamma is in units of
///   the learning rate (its authors use 1.5).
/// Values travel, not differences, so ranks whose agreed parameters differ (somebody died in the
/// middle of a round) agree again with the next exchange.
///
/// With 16-bit elements what travels is Q(agreed + own), and own keeps the rest, (agreed + own) -
/// Q(agreed + own), for the next round: error feedback (Seide et al., "1-bit stochastic gradient
/// descent", Interspeech 2014; Karimireddy et al., ICML 2019). So the agreed parameters are means
/// of rounded ones, and nothing is lost: what a round rounds away travels once it has grown to half
/// a unit of the type's last place.
///
/// With Slim-DP's coordinates only those of a round travel; the others keep what the rank did to
/// them in `own`, so nothing is lost. The ranks' sets are compared by a fingerprint
/// in the stream: a round with different sets (after a death, see above) merges nothing, and the
/// next blocks() rounds exchange everything once, in order.
///
/// One thread at a time, and never during a round. Allocates in its constructor only.
class DeltaExchange {
 public:
  /// `parameters`, at most 2^32 - 2 (check_parameters() says so to users), must outlive the
  /// exchange. `seed` is the same on all ranks. `element` is the type
  /// in which the rounds send the stream; one of 16 bits only without coordinates.
  DeltaExchange(std::span<float> parameters, double gamma, std::optional<SlimShares> slim,
                std::uint64_t seed, WireElement element = WireElement::f32);

  /// Memory of the rounds: the values of one round and two words about the rank.
  std::span<float> stream() noexcept { return stream_; }

  /// Before a round: takes over what the application did to the parameters. `last`: this rank will
  /// do nothing more.
  void depart(bool last);
  /// After it: merges. The application may have changed the parameters
  /// in the meantime.
  void arrive();
  /// All ranks heard in the last round had said that they will do nothing more.
  bool all_last() const noexcept { return all_last_; }
  /// From now on this rank says that it has seen all_last() in a round that lacked nobody.
  void say_all_last() noexcept { says_all_last_ = true; }
  /// Some rank said so in the last round, this one included: the round was everybody's last one.
  /// Not the first with all_last(), which a rank that dies in it may have shown to some only.
  bool ended() const noexcept { return ended_; }
  /// Rounds that exchange what is left in `own` of all ranks, to be run after ended(): 0 when
  /// everything travels in every round.
  std::uint32_t flush_rounds() const noexcept;
  /// Makes the next flush_rounds() rounds exchange every coordinate once.
  void begin_flush() noexcept;
  /// The last round lacked something here: the next one merges nothing, at any rank, and counts as
  /// one of different sets.
  void doubt() noexcept { doubts_ = true; }

  std::span<const float> agreed() const noexcept { return agreed_; }
  /// Own changes that are neither merged nor under way, the application's last ones excluded.
  std::span<const float> own() const noexcept { return own_; }
  /// Rounds that merged nothing because the sets differed.
  std::uint32_t mismatches() const noexcept { return mismatches_; }

 private:
  void take_over();
  void round_off();
  void hand_back();
  void choose();
  void give_back();

  std::span<float> parameters_;
  float gamma_;
  WireElement element_;
  std::uint64_t seed_;
  std::uint32_t values_;  ///< Of one round.
  std::optional<SlimCoordinates> coordinates_;
  std::vector<float> agreed_, own_, base_, stream_;
  std::vector<float> under_way_, change_;  ///< With coordinates only.
  std::uint32_t blocks_left_ = 0, mismatches_ = 0;
  bool all_last_ = false, says_all_last_ = false, ended_ = false;
  bool doubts_ = false;
};

}  // namespace selmcast
