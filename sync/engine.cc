// Set-up, mailboxes between threads, and epochs.
#include "sync/engine.h"

#include <algorithm>
#include <new>

#include "sync/free/free_rounds.h"
#include "sync/layers/layer_rounds.h"
#include "sync/parker.h"
#include "sync/planned_rate.h"

namespace selmcast {

namespace {
constexpr std::uint32_t kChunkFramesMax = 44;
constexpr std::size_t kPollBatch = 64;
}  // namespace

EngineConfig engine_config(const Policy& policy) {
  EngineConfig config;
  config.mix = policy.round_mix();
  config.rounds_per_exchange = policy.rounds_per_exchange();
  config.gamma = policy.gamma;
  config.order = policy.order;
  config.element = policy.element;
  if (policy.free()) {
    config.free = FreePace{policy.pace == PaceKind::ssp, policy.pace_steps, policy.eta.has_value()};
  }
  return config;
}

Engine::Engine(Transport& transport, const EngineConfig& config)
    : transport_(transport),
      config_(config),
      completions_(kPollBatch),
      returns_(kPollBatch),
      lost_(config.world),
      suspects_(config.world),
      suspects_told_(config.world, 0) {
  report_.receivers.reserve(config.world);
  report_.given_up.reserve(config.world);
}

Engine::~Engine() = default;

Result<void> Engine::set_up(std::span<const PeerAddress> peers, std::span<float> parameters) {
  SELMCAST_CHECK(!parameters.empty(), "a parameter set holds at least one element");
  const auto& caps = transport_.capabilities();
  SELMCAST_CHECK(config_.frame_bytes <= caps.max_frame_bytes, "frames exceed the transport's");
  const std::uint32_t chunk = std::min(
      {kChunkFramesMax, caps.max_request_bytes / config_.frame_bytes, caps.max_request_slices / 2});
  shape_ = StreamShape{parameters.size() * bytes_of(config_.element),
                       (config_.frame_bytes - kFrameHeaderBytes) / 8 * 8, std::max(chunk, 1U)};
  if (config_.free && config_.free->online) {
    // A new rate holds from the next chunk on, so a short round needs short ones.
    constexpr std::uint32_t kChunksLeast = 32;
    shape_.chunk_frames = std::clamp(shape_.frames() / kChunksLeast, 1U, shape_.chunk_frames);
  }
  auto port =
      FramePort::make(transport_, config_.job, config_.self, config_.world, shape_.chunk_frames,
                      static_cast<std::uint32_t>(std::max<std::size_t>(config_.layers.size(), 1)));
  if (!port) return std::move(port).error();
  port_ = std::move(port).value();
  auto puller = Puller::make(*port_, shape_.frame_payload);
  if (!puller) return std::move(puller).error();
  puller_ = std::move(puller).value();
  port_->set_puller(puller_.get());
  for (Rank rank = 0; rank < config_.world; ++rank) {
    if (rank == config_.self) continue;
    auto connected = port_->connect(rank, peers[rank]);
    if (!connected) return connected;
  }
  parameters_ = parameters;
  stream_ = std::as_bytes(parameters);
  try {
    if (config_.element != WireElement::f32 || config_.free) {
      auto memory = Arena::map(shape_.bytes);
      if (!memory)
        return Error{memory.error().kind, "encoded parameters: " + memory.error().message};
      encoded_memory_ = std::move(memory).value();
      encoded_ = encoded_memory_.bytes().first(shape_.bytes);
      stream_ = encoded_;
    }
    RemoteReads* const reads = transport_.abilities().reads;
    auto region =
        reads != nullptr ? reads->register_readable(stream_) : transport_.register_memory(stream_);
    if (!region) return std::move(region).error();
    stream_region_ = std::move(region).value();
    // Layers have accumulators of their own.
    if (config_.layers.empty()) {
      std::optional<PairCredit> credit;
      if (config_.mix == MixKind::age) credit.emplace(config_.world, config_.gamma);
      accumulator_ =
          std::make_unique<Accumulator>(shape_, config_.mix, config_.deterministic, config_.element,
                                        std::move(credit), config_.keyed, config_.table.get());
      set_up_landing();
    } else {
      set_up_layers();
    }
  } catch (const std::bad_alloc&) {
    const std::uint64_t bytes = parameters.size_bytes() * (config_.deterministic ? 2 : 1) +
                                (encoded_.empty() ? 0 : shape_.bytes);
    return unavailable("no memory for an accumulator of " + std::to_string(bytes) +
                       " bytes beside the parameters; use fewer ranks on this host or a smaller " +
                       "set, or raise the limit (ulimit -v)");
  }
  if (config_.free) set_up_free();
  return {};
}

// --- application ---------------------------------------------------------------------------------

void Engine::push(Elements part) noexcept {
  SELMCAST_CHECK(part.count > 0 && part.first + part.count <= parameters_.size(),
                 "an exchange is of some of the registered parameters");
  part_ = part;
  pushed_.store(pushed_.load(std::memory_order_relaxed) + config_.rounds_per_exchange,
                std::memory_order_release);
  transport_.wake();
}

Result<RoundReport> Engine::wait() {
  const std::uint32_t want = pushed_.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint32_t closed = closed_.load(std::memory_order_acquire);
    if (closed == want) return report_;
    if (failed()) return error_;
    // The driver bounds every round by its deadlines; this one only bounds a lost wake-up.
    park(closed_, closed, std::chrono::milliseconds(100));
  }
}

// --- control -------------------------------------------------------------------------------------

void Engine::offer(std::unique_ptr<EpochState> epoch) {
  mailbox_.offer(std::move(epoch));
  transport_.wake();
}

std::optional<std::uint32_t> Engine::accepted() const noexcept {
  return mailbox_.accepted();
}

void Engine::activate(std::uint32_t round) noexcept {
  mailbox_.activate(round);
  transport_.wake();
}

bool Engine::switched() noexcept {
  return mailbox_.switched();
}

void Engine::mark_lost(Rank rank) noexcept {
  if (lost_[rank].exchange(1, std::memory_order_relaxed) != 0) return;
  lost_changes_.fetch_add(1, std::memory_order_release);
  transport_.wake();
}

std::optional<std::pair<Rank, const char*>> Engine::next_suspect() noexcept {
  for (Rank rank = 0; rank < config_.world; ++rank) {
    if (suspects_told_[rank] != 0) continue;
    const char* why = suspects_[rank].load(std::memory_order_acquire);
    if (why == nullptr) continue;
    suspects_told_[rank] = 1;
    return std::pair{rank, why};
  }
  return std::nullopt;
}

void Engine::fail(Error error) {
  if (failure_claimed_.exchange(true, std::memory_order_relaxed)) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  unpark(closed_);
  for (std::size_t l = 0; layers_ != nullptr && l < layers_->count(); ++l) {
    unpark(layers_->closed(l));
  }
  transport_.wake();
}

Error Engine::error() const {
  return failed() ? error_ : Error();
}

// --- driver: mail and epochs ---------------------------------------------------------------------

std::size_t Engine::read_mail() noexcept {
  std::size_t done = 0;
  const std::uint32_t changes = lost_changes_.load(std::memory_order_acquire);
  if (changes != lost_seen_) {
    lost_seen_ = changes;
    for (Rank rank = 0; rank < config_.world; ++rank) {
      if (lost_[rank].load(std::memory_order_relaxed) != 0) drop_everywhere(rank);
    }
    ++done;
  }
  if (free_ != nullptr) return done + read_free_mail();
  if (pending_ == nullptr) {
    if (auto offer = mailbox_.take()) {
      accept_offer(std::move(offer));
      ++done;
    }
  }
  if (pending_ != nullptr && !running_) {
    const auto first = mailbox_.activated();
    if (first && round_ >= *first) {
      switch_epoch(*first);
      ++done;
    }
  }
  return done;
}

void Engine::drop_everywhere(Rank rank) noexcept {
  if (free_ != nullptr) free_->lose(rank);
  for (EpochState* epoch : {current_.get(), pending_.get()}) {
    if (epoch == nullptr) continue;
    for (auto& sessions : epoch->layers) {
      sessions.sender->drop(rank);
      sessions.receiver->drop(rank);
    }
    if (layers_ != nullptr) continue;
    epoch->sender->drop(rank);
    epoch->receiver->drop(rank);
  }
}

void Engine::accept_offer(std::unique_ptr<EpochState> epoch) noexcept {
  try {
    auto prepared = prepare(*epoch);
    if (!prepared) return fail(std::move(prepared).error());
    // The rounds of two epochs may overlap.
    const Kbps planned = planned_rate(*epoch, config_.self);
    if (Pacing* const pacing = transport_.abilities().pacing; pacing != nullptr) {
      pacing->limit_rate(std::max(planned, planned_rate_));
    }
    planned_rate_ = planned;
  } catch (const std::bad_alloc&) {
    return fail(unavailable("no memory for the bookkeeping of " + std::to_string(shape_.bytes) +
                            " bytes of parameters; use fewer ranks on this host"));
  }
  if (free_ != nullptr) {
    free_->offer(std::move(epoch));
  } else {
    pending_ = std::move(epoch);
  }
  for (Rank rank = 0; rank < config_.world; ++rank) {
    if (lost_[rank].load(std::memory_order_relaxed) != 0) drop_everywhere(rank);
  }
  // An exchange is of one view: with another one its second round hands out what nobody gathered.
  const std::uint32_t each = config_.rounds_per_exchange;
  const std::uint32_t next = (running_ ? round_ + 1 : round_) + each - 1;
  mailbox_.accept(next / each * each);
}

LaneSpec Engine::unicast_lane(Rank to, bool patch) const {
  return LaneSpec{port_->destination(to), {to}, patch, {}};
}

Result<void> Engine::prepare(EpochState& epoch) {
  const Program& program = epoch.program;
  std::vector<std::pair<std::uint32_t, MembershipId>> ids;
  // Of a rank whose receivers are selected online every other's group is joined as rounds begin.
  if (program.online) epoch.memberships.reserve(program.members.size() + 1);
  const auto landing = reserve_landing(program);
  std::uint32_t refused = 0;
  for (const std::uint32_t group : program.receive_groups) {
    const bool lands = std::binary_search(landing.begin(), landing.end(), group);
    const auto id = join(epoch, group, JoinAs::receiver, lands);
    if (!id) return id.error();
    ids.emplace_back(group, *id);
    refused += lands && !epoch.memberships.back().lands ? 1 : 0;
  }
  groups_refused_.store(refused, std::memory_order_relaxed);
  for (const std::uint32_t group : program.send_groups) {
    const bool joined =
        std::any_of(ids.begin(), ids.end(), [&](auto& i) { return i.first == group; });
    if (joined) continue;
    const auto id = join(epoch, group, JoinAs::send_only);
    if (!id) return id.error();
    ids.emplace_back(group, *id);
  }
  std::size_t lanes_max = 1;
  for (const RoundPlan& plan : program.cycle) {
    std::vector<LaneSpec> lanes;
    if (plan.multicast && !plan.receivers.empty()) {
      const auto id =
          std::find_if(ids.begin(), ids.end(), [&](auto& i) { return i.first == plan.group; });
      SELMCAST_CHECK(id != ids.end(), "the program sends to a group it does not list");
      lanes.push_back({{Destination::Kind::group, id->second}, plan.receivers, false, {}});
    } else {
      for (const Rank to : plan.receivers) lanes.push_back(unicast_lane(to, false));
    }
    for (std::size_t i = 0; i < plan.shards.size(); ++i) lanes[i].shard = plan.shards[i];
    for (const Rank to : plan.patches) lanes.push_back(unicast_lane(to, true));
    lanes_max = std::max(lanes_max, lanes.size());
    epoch.lanes.push_back(std::move(lanes));
  }
  const auto& caps = transport_.capabilities();
  if (layers_ != nullptr) {
    layers_->prepare(epoch, receive_settings(program), static_cast<std::uint32_t>(lanes_max));
    return {};
  }
  epoch.sender = std::make_unique<SendSession>(
      *port_,
      SendSettings{shape_, caps.wire_overhead_bytes, config_.timeout,
                   static_cast<std::uint32_t>(lanes_max), 0, nullptr, program.online.has_value()});
  epoch.receiver = std::make_unique<ReceiveSession>(*port_, receive_settings(program));
  return {};
}

ReceiveSettings Engine::receive_settings(const Program& program) const {
  const auto& caps = transport_.capabilities();
  std::size_t most = 1;
  std::vector<Rank> ever;
  for (const RoundPlan& plan : program.cycle) {
    most = std::max(most, plan.senders.size());
    ever.insert(ever.end(), plan.senders.begin(), plan.senders.end());
  }
  ReceiveSettings out{shape_,
                      0,
                      config_.timeout,
                      caps.receive_window_bytes,
                      landing_ == nullptr ? caps.sender_window_bytes : landing_window(),
                      static_cast<std::uint32_t>(most),
                      config_.loss,
                      config_.seed + program.epoch,
                      program.epoch};
  if (!config_.free) return out;
  std::sort(ever.begin(), ever.end());
  ever.erase(std::unique(ever.begin(), ever.end()), ever.end());
  out.free_running = true;
  out.senders_max = static_cast<std::uint32_t>(std::max<std::size_t>(ever.size(), 1));
  // Senders of different rounds meet at a receiver, but seldom many more than the plan has.
  out.concurrent = static_cast<std::uint32_t>(std::min<std::size_t>(ever.size(), 2 * most));
  return out;
}

void Engine::switch_epoch(std::uint32_t first_round) noexcept {
  pending_->first_round = first_round;
  const auto& joined = pending_->program.receive_groups;
  auto changes = joined.size();
  if (current_ != nullptr) {
    std::size_t left = 0, kept = 0;
    for (const auto& held : current_->memberships) {
      if (held.as == JoinAs::send_only) continue;
      ++left;
      kept += std::binary_search(joined.begin(), joined.end(), held.group) ? 1 : 0;
    }
    changes += left - 2 * kept;
    // Leaves what the new epoch has not joined as well; that was done before.
    current_->memberships.clear();
    switched_in_ = round_;
  }
  membership_changes_ += static_cast<std::uint32_t>(changes);
  if (Pacing* const pacing = transport_.abilities().pacing; pacing != nullptr) {
    pacing->limit_rate(planned_rate_);  // set-up: a change of plan
  }
  auto replaced = std::exchange(current_, std::move(pending_));
  if (landing_ != nullptr) landing_->keep(current_->memberships);
  mailbox_.retire(std::move(replaced));
}

Result<MembershipId> Engine::join(EpochState& epoch, std::uint32_t group, JoinAs as, bool lands) {
  if (lands) {
    auto membership = landing_->join(group);
    // Where there is no room for another landing queue the group does without.
    lands = membership.has_value();
    if (lands) epoch.memberships.push_back({group, as, std::move(membership).value(), true});
  }
  if (!lands) {
    auto membership = transport_.join({group}, as);
    if (!membership) return std::move(membership).error();
    epoch.memberships.push_back({group, as, std::move(membership).value()});
  }
  return epoch.memberships.back().membership.id();
}

void Engine::join_for_next() noexcept {
  const auto& plan = current_->plan_of(round_);
  joined_next_ = true;
  try {
    for (const auto group : plan.joins) {
      if (const auto id = join(*current_, group, JoinAs::receiver); !id) {
        return fail(selmcast::failed("rank " + std::to_string(config_.self) + ": round " +
                                     std::to_string(round_) + ": " + id.error().message));
      }
    }
  } catch (const std::bad_alloc&) {
    return fail(unavailable("rank " + std::to_string(config_.self) + ": round " +
                            std::to_string(round_) + ": no memory to join a group"));
  }
  membership_changes_ += static_cast<std::uint32_t>(plan.joins.size());
}

void Engine::leave_groups() noexcept {
  auto& held = current_->memberships;
  for (const auto group : current_->plan_of(round_).leaves) {
    const auto at = std::find_if(held.begin(), held.end(), [group](const auto& in) {
      return in.group == group && in.as == JoinAs::receiver;
    });
    if (at == held.end()) continue;
    std::swap(*at, held.back());
    held.pop_back();
    ++membership_changes_;
  }
}

bool Engine::in_group_of(Rank sender) const noexcept {
  // Groups of the next round are joined when this one has been heard; and frames of groups that
  // were left when the last one closed may have been received before.
  const auto in = [&](std::uint32_t round) {
    const auto& ranks = current_->plan_of(round).in_groups_of;
    return std::binary_search(ranks.begin(), ranks.end(), sender);
  };
  return in(round_) || in(round_ + 1) || (round_ > current_->first_round && in(round_ - 1));
}

void Engine::suspect(Rank rank, const char* why) noexcept {
  suspects_[rank].store(why, std::memory_order_release);
}

void Engine::fail_mismatch(Rank bad) noexcept {
  fail(selmcast::failed("rank " + std::to_string(config_.self) + ": round " +
                        std::to_string(round_) + ": the data merged from rank " +
                        std::to_string(bad) + " does not match that rank's digest; memory or a " +
                        "network device corrupts data"));
}

void Engine::fail_broken() noexcept {
  fail(selmcast::failed("rank " + std::to_string(config_.self) +
                        " cannot send: " + transport_.last_error()));
}

}  // namespace selmcast
