// Stepper: when rounds begin and end relative to the application's own steps (the pace).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/axes/policy.h"
#include "selmcast/worker.h"
#include "sync/steps/delta_exchange.h"
#include "sync/steps/stage_exchange.h"
#include "sync/steps/stale_merge.h"

namespace selmcast {

/// The rounds below: a driver's, or a test's. One round at a time.
class Rounds {
 public:
  virtual ~Rounds() = default;
  virtual void push() = 0;
  /// With `count` values of the stream from `first` on only, the same ones on all ranks.
  virtual void push_part(std::size_t first, std::size_t count) = 0;
  /// Whether every pushed round has closed or cannot close any more.
  virtual bool settled() const noexcept = 0;
  /// Waits until the pushed round has closed.
  virtual Result<RoundReport> wait() = 0;
  /// Instead of the three above where rounds are free (sync/free/): hands over one more step, or
  /// says that there is none (`last`), waits until the parameters are mixed, and appends the rounds
  /// of this rank that ended since.
  virtual Result<void> pass(bool last, std::vector<RoundReport>& ended) = 0;
};

/// bsp: a round after every step. periodic:H: after every H steps. overlap:K (OSP, LOSP): a round
/// is always under way while the worker steps on, at most K steps beyond the last departure; what
/// it merges was computed from the parameters of the round before, so its lag is exactly one.
/// stages: a round of what matters most after every step, and one of the rest during the next.
/// periodic:H with mix=stale:S: after every H steps a round departs, which is merged S <= H steps
/// later.
/// ssp, async: every step is handed over, and what becomes of it is decided below; a step() then
/// reports rounds that ended, not the one that it began.
///
/// One thread. Allocates in its constructor and for the reports that it returns.
class Stepper {
 public:
  /// `parameters` and `rounds` must outlive the stepper; `seed` is the same on all ranks.
  Stepper(const Policy& policy, std::span<float> parameters, Rounds& rounds, std::uint64_t seed);

  /// Memory that the rounds send from and mix into.
  std::span<float> stream() noexcept {
    if (stages_) return stages_->stream();
    if (stale_) return stale_->stream();
    return exchange_ ? exchange_->stream() : parameters_;
  }

  /// The application has changed the parameters by one step. The reports of the rounds that were
  /// closed by this call; the parameters then hold the mixed result.
  Result<std::vector<RoundReport>> step();
  /// After the last step: rounds until every rank has come here and all own changes are merged
  /// (bsp, periodic: at most one, for the steps since the last; the ranks must have done equally
  /// many; mix=stale: one more, which leaves all ranks the plain mean). With mix=compensate all
  /// ranks that lived to the end then hold equal parameters.
  Result<std::vector<RoundReport>> finish();
  /// One round of everything done so far, whatever the pace.
  Result<RoundReport> synchronize();
  void push();
  Result<RoundReport> wait();

  const StageExchange* stages() const noexcept { return stages_ ? &*stages_ : nullptr; }
  const DeltaExchange* exchange() const noexcept { return exchange_ ? &*exchange_ : nullptr; }
  /// A round that step(), push() or an error in the middle of one has left open.
  bool under_way() const noexcept { return under_way_; }
  /// Whether finish() is this rank's last word, which no further step may follow.
  bool ends() const noexcept { return free_ || overlaps_; }
  /// Steps that the round now under way, or else the last one, carries of this rank.
  std::uint32_t steps_carried() const noexcept { return carried_; }

 private:
  void depart(bool last);
  Result<std::vector<RoundReport>> pass(bool last);
  Result<std::vector<RoundReport>> step_in_stages();
  Result<std::vector<RoundReport>> end_stages();
  Result<std::vector<RoundReport>> step_late();
  Result<std::vector<RoundReport>> finish_late();

  bool overlaps_;
  bool free_;
  std::uint32_t limit_;  ///< Steps per round (bsp, periodic) or beyond a departure (overlap).
  std::span<float> parameters_;
  Rounds& rounds_;
  std::optional<DeltaExchange> exchange_;
  std::optional<StageExchange> stages_;
  std::uint32_t late_;  ///< Steps from a departure to its merge (mix=stale).
  std::optional<StaleMerge> stale_;
  std::uint32_t steps_ = 0, carried_ = 0;
  bool under_way_ = false;
};

}  // namespace selmcast
