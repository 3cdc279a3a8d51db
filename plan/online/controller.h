// Who receives which multicast, decided while they run: TSC 2024 Algorithm 2 as a state machine.
//
// A rank that is about to multicast requests its receivers; all requests of one turn are decided
// together, over everything that is under way, by select_published_ssp(). The outcome is a plan per
// multicast (receivers and rate), which goes to its sender under a number. Receivers only ever
// leave a plan. Rates follow the deadlines (weighted_rates()), anew whenever a multicast starts or
// ends. A sender's reports name the number of the plan it follows, so a plan that was lost is sent
// again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "plan/select/published_ssp.h"

namespace selmcast {

/// Of one epoch.
struct OnlineSettings {
  std::uint32_t p = 1;      ///< Least receivers of a multicast, as far as there are so many.
  std::uint32_t k = 0;      ///< A pair not served in k rounds of its sender is forced; 0 = never.
  std::uint32_t slack = 0;  ///< s of pace=ssp:s.
  double eta = 0.75;        ///< See SspSelection.
};

/// Plain state of the selecting rank; nothing of it is needed by another rank that takes over: what
/// is under way then is learned from its senders' reports and stays as it is. Blocking times are
/// forecast from when ranks requested: a rank is expected to need as long as lately.
///
/// One thread. Allocates as multicasts start and end, O(m n) for m that are under way. Ranks are
/// numbers below `world`; all calls with others are bugs.
class OnlineController {
 public:
  struct Target {
    Rank receiver = 0;
    std::uint32_t age = 0;   ///< Requests: rounds since the sender reached it.
    std::uint64_t left = 0;  ///< Reports: of the volume.
  };
  struct Multicast {
    bool open = false;
    std::uint32_t epoch = 0, round = 0;
    bool started = false;  ///< Not selected for yet.
    bool kept = false;     ///< Its receivers stay: the sender chose them, or another controller.
    std::vector<OpenMulticast::Target> targets;
    TimePoint deadline{};
    TimePoint heard{};
    Kbps rate = 0;
    bool news = false;         ///< To be told to the sender, perhaps once more.
    bool changed = false;      ///< Since it was told last.
    std::uint64_t number = 0;  ///< Of the plan it was told last; 0 = none.
  };

  /// `volume_bits`: of one copy of a round on the wire.
  OnlineController(std::uint32_t world, std::uint64_t volume_bits);

  /// Epoch `epoch` begins here. What is under way in another one is not changed any more.
  void configure(std::uint32_t epoch, const OnlineSettings& settings) noexcept;
  void set_rates(Rank rank, Kbps tx, Kbps rx) noexcept;

  /// The sender wants to begin the round. The same again asks for the same plan again; an older
  /// round is ignored.
  void request(TimePoint now, Rank sender, std::uint32_t epoch, std::uint32_t round,
               std::span<const Target> targets);
  /// The sender is in the round, these are its receivers, and it follows the plan of that `number`
  /// (0: another controller's, or none). `alone`: it chose them itself.
  void report(TimePoint now, Rank sender, std::uint32_t epoch, std::uint32_t round,
              std::span<const Target> targets, std::uint64_t number, bool alone);
  /// Rounds below `rounds` of the rank have ended; `stopped`: nobody waits for more of them.
  void ended(Rank rank, std::uint32_t rounds, bool stopped) noexcept;
  void lose(Rank rank) noexcept;

  /// Decides if anything calls for it. Whether there may be plans to be sent: to_tell().
  bool decide(TimePoint now);
  const Multicast& of(Rank sender) const noexcept { return multicasts_[sender]; }
  /// Whether the sender's plan is to be sent to it. One of another epoch waits for the next
  /// request.
  bool to_tell(Rank sender) const noexcept;
  /// The plan is being sent: the number it goes under, larger than all before it unless it is told
  /// again as it was.
  std::uint64_t issue(Rank sender) noexcept;
  /// How long the bound would hold `sender` up if its open multicast ended now.
  TransferTime blocked(Rank sender, TimePoint now) const noexcept;

 private:
  struct Pace {
    std::uint32_t ended = 0;
    bool stopped = false, lost = false;
    std::uint32_t asked_round = 0;
    bool asked = false;
    TimePoint asked_at{};
    Duration period{};  ///< Between requests, smoothed; 0 = not known.
  };

  void tell(Multicast& m) noexcept { m.news = news_ = true; }
  void change(Multicast& m) noexcept { m.news = m.changed = news_ = true; }
  void note_request(TimePoint now, Rank sender, std::uint32_t round) noexcept;
  void forget_silent(TimePoint now) noexcept;
  void select(TimePoint now);
  void share(TimePoint now);

  std::uint64_t volume_;
  OnlineSettings settings_;
  std::uint32_t epoch_ = 0;
  std::uint64_t numbers_ = 0;  ///< Of the plans issued.
  std::vector<Kbps> tx_, rx_;
  std::vector<Multicast> multicasts_;  ///< By sender.
  std::vector<Pace> paces_;            ///< By rank.
  bool start_ = false, share_ = false;
  bool news_ = false;  ///< Some plan may have news.
};

}  // namespace selmcast
