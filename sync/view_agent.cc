#include "sync/view_agent.h"

#include <algorithm>

#include "store/keys.h"

namespace selmcast {

namespace {

Bytes number_bytes(std::uint32_t value) {
  return WireWriter().put(value).take();
}

std::optional<std::uint32_t> number_in(const std::optional<Bytes>& bytes) {
  if (!bytes) return std::nullopt;
  WireReader in(*bytes);
  const auto value = in.get<std::uint32_t>();
  return in.finished() ? value : std::nullopt;
}

// A value of the store has a bound; beyond this only the ranks are told.
constexpr std::size_t kReasonsMax = 256U << 10U;

}  // namespace

ViewAgent::ViewAgent(Rendezvous& store, Driver& driver, AgentConfig config)
    : store_(store),
      driver_(driver),
      config_(std::move(config)),
      gone_(store.world(), 0),
      votes_(store.world(), 0) {}

std::string ViewAgent::key(std::string_view what) const {
  return keys::view(epoch_ + 1, what);
}

std::string ViewAgent::name() const {
  return "rank " + std::to_string(store_.rank());
}

std::vector<Rank> ViewAgent::failed_ranks() const {
  std::vector<Rank> out;
  for (Rank r = 0; r < store_.world(); ++r) {
    if (gone_[r] != 0) out.push_back(r);
  }
  return out;
}

Result<void> ViewAgent::step(TimePoint now) {
  if (auto ok = notice_losses(now); !ok) return ok;
  if (auto ok = report_suspects(now); !ok) return ok;
  count_votes();
  if (publishes()) {
    if (auto ok = evict_suspects(now); !ok) return ok;
    if (auto ok = propose(); !ok) return ok;
    if (auto ok = commit(); !ok) return ok;
  }
  return follow(now);
}

Result<void> ViewAgent::notice_losses(TimePoint now) {
  while (const auto verdict = store_.try_get(keys::verdict(verdicts_))) {
    ++verdicts_;
    WireReader in(*verdict);
    const auto rank = in.get<std::uint32_t>();
    const auto why = in.get_bytes();
    if (!why || !in.finished() || *rank >= store_.world()) {
      return failed(name() + ": the published eviction is malformed");
    }
    if (*rank == store_.rank()) {
      return failed(name() + " was evicted from the job: " + text_in(*why));
    }
    lose(*rank, now);
  }
  for (Rank r = 0; r < store_.world(); ++r) {
    if (r != store_.rank() && store_.lost(r)) lose(r, now);
  }
  return {};
}

void ViewAgent::lose(Rank rank, TimePoint now) {
  if (gone_[rank] != 0) return;
  gone_[rank] = 1;
  // The others get their time anew, and time to take back what they said of one another.
  if (open_) open_->since = now;
  suspicion_since_.reset();
  driver_.mark_lost(rank);
}

Result<void> ViewAgent::report_suspects(TimePoint now) {
  bool changed = false;
  while (auto suspect = driver_.next_suspect()) {
    if (gone_[suspect->first] != 0) continue;
    suspicions_.push_back(*suspect);
    changed = true;
  }
  // These are taken back when what was missed comes after all.
  if (auto late = late_in_agreement(now); late != late_) {
    late_ = std::move(late);
    changed = true;
  }
  if (changed) {
    suspicion_since_ = now;
    if (auto ok = publish_suspicions(now); !ok) return ok;
  }
  // A store whose host hangs still takes writes. It shows only by not giving them back.
  if (unechoed_ && store_.try_get(keys::of_rank(keys::kSuspect, store_.rank())) == written_)
    unechoed_.reset();
  if (unechoed_ && now - *unechoed_ > config_.timeout) {
    return failed(name() +
                  ": the job's store does not answer; the process that hosts it (rank 0, "
                  "or the launcher) hangs");
  }
  return {};
}

Result<void> ViewAgent::publish_suspicions(TimePoint now) {
  WireWriter out;
  std::size_t reasons = 0;
  std::vector<Suspicion> all = suspicions_;
  for (const Suspicion& late : late_) {
    // A rank has one vote on each other one.
    const bool known = std::any_of(suspicions_.begin(), suspicions_.end(),
                                   [&](const auto& other) { return other.first == late.first; });
    if (!known) all.push_back(late);
  }
  for (const auto& [rank, why] : all) {
    const bool fits = (reasons += why.size()) <= kReasonsMax;
    out.put(std::uint32_t{rank}).put_text(fits ? why : std::string());
  }
  written_ = out.take();
  if (!unechoed_) unechoed_ = now;
  if (auto ok = put_own(store_, keys::kSuspect, written_); !ok) return ok;
  return store_.put(keys::kSuspicion, {});
}

std::vector<ViewAgent::Suspicion> ViewAgent::late_in_agreement(TimePoint now) {
  // Whoever agrees waits at the boundary and begins no round, so no round misses the others. The
  // first view is waited for by all ranks alike, and who misses it is named in the end.
  if (!open_ || epoch_ == 0 || !open_->acknowledged || store_.try_get(key("commit"))) return {};
  std::vector<Suspicion> out;
  const std::string epoch = "the view of epoch " + std::to_string(epoch_ + 1);
  for (const Rank member : open_->view.members) {
    if (gone_[member] != 0 || store_.try_get(keys::of_rank(key("ack"), member))) continue;
    if (member == store_.rank()) continue;
    out.emplace_back(member, "did not acknowledge " + epoch + " within the timeout");
  }
  if (std::exchange(open_->missing, out.size()) != out.size()) open_->since = now;
  if (now - open_->since <= config_.timeout) return {};
  const Rank first = first_in_charge();
  if (out.empty() && first != store_.rank()) {
    out.emplace_back(first, "did not commit " + epoch + " within the timeout");
  }
  return out;
}

std::vector<ViewAgent::Suspicion> ViewAgent::suspicions_of(Rank by) const {
  std::vector<Suspicion> out;
  const auto bytes = store_.try_get(keys::of_rank(keys::kSuspect, by));
  if (!bytes) return out;
  WireReader in(*bytes);
  while (in.remaining() > 0) {
    const auto rank = in.get<std::uint32_t>();
    const auto why = in.get_bytes();
    if (!why || *rank >= store_.world()) break;
    out.emplace_back(*rank, text_in(*why));
  }
  return out;
}

void ViewAgent::count_votes() {
  std::fill(votes_.begin(), votes_.end(), 0U);
  if (!store_.try_get(keys::kSuspicion)) return;
  for (Rank by = 0; by < store_.world(); ++by) {
    if (gone_[by] != 0) continue;
    for (const auto& suspicion : suspicions_of(by)) ++votes_[suspicion.first];
  }
  for (Rank of = 0; of < store_.world(); ++of) {
    if (gone_[of] != 0) votes_[of] = 0;
  }
}

Rank ViewAgent::first_in_charge() const noexcept {
  Rank first = 0;
  while (first < store_.rank() && (gone_[first] != 0 || votes_[first] != 0)) ++first;
  return first;
}

Result<void> ViewAgent::evict_suspects(TimePoint now) {
  // Whoever most ranks cannot reach goes first; its own suspicions then count no more. Waiting a
  // little lets the reports of one incident come together.
  Rank worst = 0;
  for (Rank of = 1; of < store_.world(); ++of) {
    // Of equal ones the highest, and this rank last: only a majority keeps it from judging.
    const bool own = votes_[worst] == votes_[of] && of == store_.rank();
    if (votes_[of] >= votes_[worst] && !own) worst = of;
  }
  const std::uint32_t most = votes_[worst];
  if (most == 0) {
    suspicion_since_.reset();
    return {};
  }
  if (!suspicion_since_) suspicion_since_ = now;
  const Duration settle = std::min<Duration>(config_.timeout / 10, std::chrono::milliseconds(200));
  if (now - *suspicion_since_ < settle) return {};
  if (worst == store_.rank()) {
    return failed(name() + " leaves the job: " + std::to_string(most) +
                  " ranks say it makes no progress");
  }
  for (Rank by = 0; by < store_.world(); ++by) {
    if (gone_[by] != 0) continue;
    for (const auto& [rank, why] : suspicions_of(by)) {
      if (rank != worst) continue;
      const std::string text = "rank " + std::to_string(by) + " says it " + why;
      return store_.create(keys::verdict(verdicts_), WireWriter().put(worst).put_text(text).take());
    }
  }
  return {};
}

Result<void> ViewAgent::propose() {
  if (open_ || store_.try_get(key("propose"))) return {};
  View view;
  view.epoch = epoch_ + 1;
  view.seed = config_.seed;
  for (Rank r = 0; r < store_.world(); ++r) {
    if (gone_[r] != 0) continue;
    view.members.push_back(r);
    view.tx_kbps.push_back(config_.tx_kbps[r]);
    view.rx_kbps.push_back(config_.rx_kbps[r]);
  }
  if (epoch_ > 0 && view.members == members_) return {};
  return store_.create(key("propose"), serialize(view));
}

Result<void> ViewAgent::commit() {
  if (!open_ || store_.try_get(key("commit"))) return {};
  std::uint32_t first_round = 0;
  for (const Rank member : open_->view.members) {
    if (gone_[member] != 0) continue;
    const auto ack = number_in(store_.try_get(keys::of_rank(key("ack"), member)));
    if (!ack) return {};
    first_round = std::max(first_round, *ack);
  }
  return store_.create(key("commit"), number_bytes(first_round));
}

Result<void> ViewAgent::take_proposal(const Bytes& bytes, TimePoint now) {
  auto view = parse_view(bytes);
  if (!view) return failed(name() + ": the published view is malformed: " + view.error().message);
  const auto& members = view->members;
  if (view->epoch != epoch_ + 1 || members.empty() || members.back() >= store_.world()) {
    return failed(name() + ": the published view of epoch " + std::to_string(view->epoch) +
                  " is not one of this job");
  }
  if (!std::binary_search(members.begin(), members.end(), store_.rank())) {
    return failed(name() + " is not a member of epoch " + std::to_string(view->epoch));
  }
  Policy policy = config_.policy;
  const auto others = static_cast<std::uint32_t>(members.size() - 1);
  // After losses there may be fewer than p peers left; the job goes on with those there are.
  policy.lower_receivers(others);
  auto program = config_.compile ? config_.compile(*view, store_.rank())
                                 : compile(*view, policy, store_.rank(), history_);
  if (!program) return std::move(program).error();
  auto epoch = std::make_unique<EpochState>();
  epoch->program = std::move(program).value();
  const Program& p = epoch->program;
  open_.emplace();
  open_->view = std::move(view).value();
  open_->since = now;
  open_->policy = policy;
  open_->plan.epoch = p.epoch;
  open_->plan.members = static_cast<std::uint32_t>(p.members.size());
  open_->plan.k = p.period_k;
  open_->plan.group_entries_max = p.group_entries_max;
  open_->plan.joins_per_round_max = p.joins_per_round_max;
  // A member alone needs no rate and may have none.
  if (p.rate_without_k.num > 0) {
    open_->plan.k_rate_share = value_of(p.rate) / value_of(p.rate_without_k);
  }
  open_->plan.joins = history_.change.joins;
  open_->plan.member_joins_max = history_.change.most_joins;
  driver_.offer(std::move(epoch));
  return {};
}

std::string ViewAgent::who_holds_up() {
  std::string silent;
  for (const Rank member : open_->view.members) {
    if (gone_[member] != 0 || store_.try_get(keys::of_rank(key("ack"), member))) continue;
    silent += (silent.empty() ? "rank " : ", rank ") + std::to_string(member);
  }
  if (silent.empty()) return "all ranks acknowledged it, but it was not committed";
  return silent + " did not acknowledge it";
}

Result<ScheduleFacts> ViewAgent::facts_of_open() const {
  if (config_.compile) return ScheduleFacts();
  return schedule_facts(open_->view, open_->policy, history_);
}

Result<void> ViewAgent::follow(TimePoint now) {
  if (!open_) {
    const auto proposal = store_.try_get(key("propose"));
    if (proposal) return take_proposal(*proposal, now);
    return {};
  }
  if (!open_->acknowledged) {
    const auto round = driver_.accepted();
    if (round) {
      open_->acknowledged = true;
      open_->since = now;
      return put_own(store_, key("ack"), number_bytes(*round));
    }
  } else if (!open_->activated) {
    if (const auto round = number_in(store_.try_get(key("commit")))) {
      driver_.activate(*round);
      open_->activated = true;
    }
  }
  if (open_->activated && driver_.switched()) {
    ++epoch_;
    members_ = open_->view.members;
    plan_ = open_->plan;
    // Only now: the facts take longer than the plan, and nobody waits for them.
    if (const auto facts = facts_of_open()) {
      plan_.pair_age_worst = facts->pair_age_worst;
      plan_.pair_age_mean = facts->pair_age_mean;
      plan_.senders_below_p = facts->senders_below_p;
    }
    open_.reset();
    return {};
  }
  if (!open_->activated && now - open_->since > 2 * config_.timeout) {
    return failed(
        name() + " waited " +
        std::to_string(
            std::chrono::duration_cast<std::chrono::seconds>(2 * config_.timeout).count()) +
        " s for the commit of epoch " + std::to_string(epoch_ + 1) + ": " + who_holds_up() +
        "; see that rank's log");
  }
  return {};
}

}  // namespace selmcast
