// Jobs whose ranks begin rounds in their own time, and what they must compute, replayed.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sync/free/free_windows.h"
#include "tests/sim/random_job.h"

namespace selmcast::testing_jobs {

/// Computes in double precision what every rank's parameters must be, from the order of events
/// alone: a departure copies them, a frame that is added is one of the sender's copies, a merge is
/// the mean of the own value and of what was added to that frame since the merge before.
class Replay {
 public:
  Replay(const std::vector<std::vector<float>>& start, std::uint32_t frame_bytes)
      : frame_(((frame_bytes - kFrameHeaderBytes) / 8 * 8) / sizeof(float)) {
    for (std::size_t r = 0; r < start.size(); ++r) {
      ranks_.push_back(std::make_unique<One>(*this, start[r]));
    }
  }

  std::vector<FreeObserver*> observers() {
    std::vector<FreeObserver*> out;
    for (const auto& rank : ranks_) out.push_back(rank.get());
    return out;
  }
  std::vector<double>& parameters(Rank rank) { return ranks_[rank]->w; }
  std::uint32_t ended(Rank rank) const { return ranks_[rank]->ended_rounds; }
  std::size_t departures(Rank rank) const { return ranks_[rank]->sent.size(); }
  /// Of rounds whose receivers were selected online.
  struct Selected {
    std::vector<Rank> receivers;
    bool alone = false;
  };
  const std::map<std::uint32_t, Selected>& selected(Rank rank) const {
    return ranks_[rank]->selected_rounds;
  }
  const std::vector<double>& last_sent(Rank rank) const {
    return ranks_[rank]->sent.rbegin()->second;
  }

 private:
  struct One final : FreeObserver {
    One(Replay& replay, const std::vector<float>& start)
        : all(replay), w(start.begin(), start.end()), sums(w.size(), 0.0), counts(w.size(), 0) {}

    void departed(std::uint32_t round) noexcept override { sent[round] = w; }
    void selected(std::uint32_t round, std::span<const Rank> to, bool alone) noexcept override {
      selected_rounds[round] = {{to.begin(), to.end()}, alone};
    }
    void ended(std::uint32_t round) noexcept override { ended_rounds = round + 1; }
    void added(Rank sender, std::uint32_t round, std::uint32_t frame) noexcept override {
      const auto& from = all.ranks_[sender]->sent.at(round);
      const std::size_t end = std::min(w.size(), (frame + 1) * all.frame_);
      for (std::size_t i = frame * all.frame_; i < end; ++i) {
        sums[i] += from[i];
        ++counts[i];
      }
    }
    void merged() noexcept override {
      for (std::size_t i = 0; i < w.size(); ++i) {
        w[i] = (w[i] + sums[i]) / (counts[i] + 1);
        sums[i] = counts[i] = 0;
      }
    }

    Replay& all;
    std::vector<double> w, sums;
    std::vector<int> counts;
    std::map<std::uint32_t, std::vector<double>> sent;
    std::map<std::uint32_t, Selected> selected_rounds;
    std::uint32_t ended_rounds = 0;
  };

  std::size_t frame_;
  std::vector<std::unique_ptr<One>> ranks_;
};

/// What applications did, in order of time.
struct StepLog {
  struct Event {
    Rank rank;
    std::uint32_t step;
    bool begins;  ///< To compute that step; otherwise hands it over.
    TimePoint at;
    std::vector<std::uint32_t> ended;  ///< Begins only: rounds that each rank had ended by then.
  };
  std::vector<Event> events;

  /// When the rank began that step; with the number of all steps: when it had the last one back.
  TimePoint begin_of(Rank rank, std::uint32_t step) const {
    for (const auto& event : events) {
      if (event.begins && event.rank == rank && event.step == step) return event.at;
    }
    return kNever;
  }
  /// Most rounds that one of `among`, as it began a step, had done steps beyond the ended rounds of
  /// another of them or its own.
  std::uint32_t most_beyond_ended(const std::vector<Rank>& among) const {
    std::uint32_t most = 0;
    for (const auto& event : events) {
      if (!event.begins || std::find(among.begin(), among.end(), event.rank) == among.end())
        continue;
      for (const Rank rank : among) {
        const std::uint32_t ended = event.ended[rank];
        if (ended < event.step) most = std::max(most, event.step - ended);
      }
    }
    return most;
  }
  /// Most steps that one of `among` had handed over, as it began one, beyond another of them.
  std::uint32_t most_ahead(const std::vector<Rank>& among) const {
    std::map<Rank, std::uint32_t> done;
    for (const Rank rank : among) done[rank] = 0;
    std::uint32_t most = 0;
    for (const auto& event : events) {
      if (!done.contains(event.rank)) continue;
      if (!event.begins) {
        done[event.rank] = event.step + 1;
        continue;
      }
      for (const auto& [rank, steps] : done) {
        if (steps < event.step) most = std::max(most, event.step - steps);
      }
    }
    return most;
  }
};

struct FreeOutcome {
  Result<SimJobResult> result;
  std::vector<std::vector<float>> end;
  std::unique_ptr<Replay> replay;
  StepLog log;
};

/// Runs the job with everything recorded. `step(rank, step, i)` is added to element i; null:
/// nothing. `faults(job)` may schedule faults.
template <class Faults>
FreeOutcome run_free(SimJobConfig config, const std::vector<std::vector<float>>& start,
                     float (*step)(Rank, std::uint32_t, std::size_t), Faults faults) {
  FreeOutcome out{Error(), start, nullptr, {}};
  out.replay = std::make_unique<Replay>(start, config.network.max_frame_bytes);
  config.observers = out.replay->observers();
  config.on_step = [&out](Rank rank, std::uint32_t s, TimePoint now) {
    out.log.events.push_back({rank, s, true, now, {}});
    for (Rank r = 0; r < out.end.size(); ++r) {
      out.log.events.back().ended.push_back(out.replay->ended(r));
    }
  };
  config.work = [&out, step](Rank rank, std::uint32_t s, std::span<float> w) {
    out.log.events.push_back({rank, s, false, TimePoint(), {}});
    if (step == nullptr) return;
    auto& replayed = out.replay->parameters(rank);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] += step(rank, s, i);
      replayed[i] += static_cast<double>(step(rank, s, i));
    }
  };
  SimJob job(config, out.end);
  faults(job);
  out.result = job.run();
  return out;
}

inline FreeOutcome run_free(const SimJobConfig& config,
                            const std::vector<std::vector<float>>& start,
                            float (*step)(Rank, std::uint32_t, std::size_t) = nullptr) {
  return run_free(config, start, step, [](SimJob&) {});
}

/// Largest difference between what a rank holds and what the replay says.
inline double worst_replayed(const FreeOutcome& out, Rank rank) {
  double worst = 0.0;
  const auto& want = out.replay->parameters(rank);
  for (std::size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(out.end[rank][i]) - want[i]));
  }
  return worst;
}

}  // namespace selmcast::testing_jobs
