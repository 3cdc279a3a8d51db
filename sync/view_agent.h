// View agreement: which view holds from which round on, the same for every member.
//
// Protocol, all of it through the job's one store. The acting publisher (the lowest live rank that
// no live one suspects) creates `view/<e>/propose`. Each member compiles it, joins its groups,
// promises not to begin a round beyond r and writes `view/<e>/ack/<rank>` = r.
// When every live member has acknowledged, the publisher creates `view/<e>/commit` = the largest r:
// the first round of epoch e. A member that acknowledged waits at its boundary until it has read
// the commit, so no two members act on different views in the same round. Where ranks begin rounds
// in their own time the round of the commit says only that all are prepared: each goes over at its
// own next round, and a round is planned by the view named in its frames (sync/free/). Keys are
// created, never overwritten: a second publisher that takes over continues what the first began.
// (But for `suspect/<rank>`, whom that rank suspects now.)
//
// Death. The store says who is lost; a rank whose peers reported it silent, in rounds or because it
// did not acknowledge or commit a view within the timeout, is evicted by the publisher. Evictions
// are numbered (`verdict/<i>`), so of two that exclude each other only the first is made. Both lead
// to a new view without the rank.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/axes/policy.h"
#include "plan/compile.h"
#include "plan/view.h"
#include "store/rendezvous.h"
#include "sync/driver.h"

namespace selmcast {

/// Makes a rank's program of a view; compile() of the policy, or a test's own.
using Compile = std::function<Result<Program>(const View&, Rank)>;

struct AgentConfig {
  Policy policy;
  std::uint64_t seed = 1;
  Duration timeout{std::chrono::seconds(10)};
  /// Links of every rank, known alike to all ranks before the agent starts.
  std::vector<Kbps> tx_kbps, rx_kbps;
  Compile compile = {};
};

/// One rank's part of the agreement: a state machine that step() moves. The control thread only.
class ViewAgent {
 public:
  ViewAgent(Rendezvous& store, Driver& driver, AgentConfig config);

  /// Does what can be done now. Error: this rank must leave the job; the text says why.
  Result<void> step(TimePoint now);

  /// Epochs that have been in force here; 0 = none yet.
  std::uint32_t epoch() const noexcept { return epoch_; }
  /// True while a proposal waits for acknowledgements or the commit: step() soon again.
  bool busy() const noexcept { return open_.has_value() || epoch_ == 0; }
  /// Ranks out of the job, ascending.
  std::vector<Rank> failed_ranks() const;
  bool alive(Rank rank) const noexcept { return gone_[rank] == 0; }
  const PlanReport& plan() const noexcept { return plan_; }

 private:
  struct Open {
    Open() {}  // Not defaulted: clang 14 would then not let std::optional make one in here.
    View view;
    Policy policy;
    PlanReport plan;
    bool acknowledged = false;
    bool activated = false;
    std::size_t missing = ~std::size_t{0};  ///< Members that had not acknowledged it.
    TimePoint since{};  ///< Of the last that changed: its acknowledgements, its members.
  };

  using Suspicion = std::pair<Rank, std::string>;  ///< Who, and what it did: "says it <text>".

  Result<void> notice_losses(TimePoint now);
  std::string who_holds_up();
  Result<void> report_suspects(TimePoint now);
  Result<void> evict_suspects(TimePoint now);
  Result<void> propose();
  Result<void> commit();
  Result<void> follow(TimePoint now);
  Result<ScheduleFacts> facts_of_open() const;
  Result<void> take_proposal(const Bytes& bytes, TimePoint now);
  void lose(Rank rank, TimePoint now);
  /// Takes decisions: the lowest rank that is in the job and that nobody in it suspects. Where two
  /// believe that they do, what is created first holds.
  Rank first_in_charge() const noexcept;
  bool publishes() const noexcept { return first_in_charge() == store_.rank(); }
  Result<void> publish_suspicions(TimePoint now);
  std::vector<Suspicion> late_in_agreement(TimePoint now);
  std::vector<Suspicion> suspicions_of(Rank by) const;
  void count_votes();
  std::string key(std::string_view what) const;
  std::string name() const;

  Rendezvous& store_;
  Driver& driver_;
  AgentConfig config_;
  std::uint32_t epoch_ = 0;
  std::uint32_t verdicts_ = 0;  ///< Evictions taken in so far.
  std::vector<Rank> members_;   ///< Of the view in force.
  std::vector<std::uint8_t> gone_;
  std::vector<std::uint32_t> votes_;   ///< Ranks in the job that suspect each of those in it.
  std::vector<Suspicion> suspicions_;  ///< By this rank's rounds, each rank once.
  std::vector<Suspicion> late_;        ///< And by the agreement on a view.
  Bytes written_;                      ///< Both as they were published last.
  std::optional<TimePoint> suspicion_since_;
  std::optional<TimePoint> unechoed_;  ///< When written_ was, if it has not been heard back yet.
  std::optional<Open> open_;
  PlanHistory history_;  ///< Of the views compiled so far; every rank compiles each once, in order.
  PlanReport plan_;
};

}  // namespace selmcast
