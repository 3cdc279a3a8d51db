// Stepper: when rounds begin and end relative to the application's own steps (the pace).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/axes/policy.h"
#include "selmcast/worker.h"

namespace selmcast {

class DeltaExchange;
class StageExchange;

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

/// One class a kind of pace: see make_stepper(). One thread. Allocates in its constructor and for
/// the reports that it returns.
class Stepper {
 public:
  virtual ~Stepper() = default;

  /// Memory that the rounds send from and mix into.
  virtual std::span<float> stream() noexcept { return parameters_; }
  /// The application has changed the parameters by one step. The reports of the rounds that were
  /// closed by this call; the parameters then hold the mixed result.
  virtual Result<std::vector<RoundReport>> step() = 0;
  /// After the last step: rounds until every rank has come here and all own changes are merged
  /// (bsp, periodic: at most one, for the steps since the last; the ranks must have done equally
  /// many; mix=stale: one more, which leaves all ranks the plain mean). With mix=compensate all
  /// ranks that lived to the end then hold equal parameters.
  virtual Result<std::vector<RoundReport>> finish() = 0;
  /// Whether finish() is this rank's last word, which no further step may follow.
  virtual bool ends() const noexcept { return false; }

  /// One round of everything done so far, whatever the pace.
  Result<RoundReport> synchronize();
  void push() { depart(false); }
  Result<RoundReport> wait();

  virtual const StageExchange* stages() const noexcept { return nullptr; }
  virtual const DeltaExchange* exchange() const noexcept { return nullptr; }
  /// A round that step(), push() or an error in the middle of one has left open.
  bool under_way() const noexcept { return under_way_; }
  /// Steps that the round now under way, or else the last one, carries of this rank.
  std::uint32_t steps_carried() const noexcept { return carried_; }

 protected:
  Stepper(std::span<float> parameters, Rounds& rounds) : parameters_(parameters), rounds_(rounds) {}

  /// Before a round of everything leaves. `last`: this rank will do nothing more.
  virtual void prepare(bool last) = 0;
  /// After it.
  virtual void merge(const RoundReport& report) = 0;

  void depart(bool last);
  /// As wait(), and appends the report.
  Result<void> close(std::vector<RoundReport>& reports);

  std::span<float> parameters_;
  Rounds& rounds_;
  std::uint32_t steps_ = 0;  ///< Since the last departure.
  std::uint32_t carried_ = 0;
  bool under_way_ = false;
};

/// bsp: a round after every step. periodic:H: after every H steps. overlap:K (OSP, LOSP): a round
/// is always under way while the worker steps on, at most K steps beyond the last departure; what
/// it merges was computed from the parameters of the round before, so its lag is exactly one
/// (delta_steps.h).
/// stages: a round of what matters most after every step, and one of the rest during the next
/// (stage_steps.h).
/// periodic:H with mix=stale:S: after every H steps a round departs, which is merged S <= H steps
/// later (stale_steps.h).
/// ssp, async: every step is handed over, and what becomes of it is decided below; a step() then
/// reports rounds that ended, not the one that it began.
///
/// `parameters` and `rounds` must outlive the stepper; `seed` is the same on all ranks.
std::unique_ptr<Stepper> make_stepper(const Policy& policy, std::span<float> parameters,
                                      Rounds& rounds, std::uint64_t seed);

}  // namespace selmcast
