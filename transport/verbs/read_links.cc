#include "transport/verbs/read_links.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/clock.h"
#include "transport/verbs/explain.h"
#include "transport/verbs/receive_slots.h"
#include "transport/verbs/ud_queue_pair.h"
#include "transport/verbs/work_id.h"

namespace selmcast::verbs {
namespace {

using std::chrono::milliseconds;

// Between two asks: doubled from one to the next, so that a peer that is away is not flooded by all
// who miss its frames, up to where one that came back is still asked several times a second.
constexpr Duration kAskFirst = milliseconds(20);
constexpr Duration kAskMost = milliseconds(160);
// A reconnect after an error waits that long, so that a dead peer is not asked in a tight loop.
constexpr Duration kRest = milliseconds(50);
// What was posted comes back at once in error; a device that does not do so is dropped regardless.
constexpr Duration kReadDrain = milliseconds(200);

// A device that neither brings nor fails a read for so long is not waited for. Eight tries of 67 ms
// lie well below it.
constexpr Duration kReadDeadline = std::chrono::seconds(2);

// No datagram is under way for so long.
constexpr Duration kMessageLife = milliseconds(500);

// A message's number: its slot, whether it is sent, and above which life of the queue it is of.
constexpr std::uint64_t kReadSlotMask = 0xFFFF;
constexpr std::uint64_t kSendFlag = 1U << 16U;
constexpr unsigned kLifeShift = 17;

constexpr Duration kRestartFirst = milliseconds(1);
constexpr Duration kRestartMost = milliseconds(100);

}  // namespace

Result<std::unique_ptr<ReadLinks>> ReadLinks::make(const Settings& settings) {
  std::unique_ptr<ReadLinks> out(new ReadLinks(settings));
  if (auto state = out->open(); !state) return std::move(state).error();
  return out;
}

ReadLinks::ReadLinks(const Settings& settings)
    : settings_(settings),
      random_(mix_seed(settings.job ^
                       static_cast<std::uint64_t>(
                           std::chrono::steady_clock::now().time_since_epoch().count()))) {
  // Attempts grow, also from one process to the next with the same address.
  last_attempt_ = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
}

Result<void> ReadLinks::open() {
  const std::string where = settings_.port.text();
  auto arena =
      Arena::map(std::size_t{2} * kMessages * kSlotBytes, {.numa_node = settings_.port.numa_node});
  if (!arena) return unavailable("verbs: messages on " + where + ": " + arena.error().message);
  arena_ = std::move(arena).value();
  memory_ = arena_.data();
  const int access = IBV_ACCESS_LOCAL_WRITE;
  region_.reset(ibv_reg_mr(settings_.pd, memory_, arena_.size(), access));
  if (region_ == nullptr) return set_up_error("registering memory for messages", where, errno);
  UdSettings ud;
  ud.cq = settings_.cq;
  ud.send_depth = ud.receive_depth = kMessages;
  auto made = make_ud(settings_.pd, settings_.port, ud);
  if (!made) return std::move(made).error();
  datagrams_ = std::move(made).value();
  if (const int error = post_receives(); error != 0) {
    return set_up_error("posting receives for messages", where, error);
  }
  return {};
}

int ReadLinks::post_receives() noexcept {
  for (std::uint32_t slot = 0; slot < kMessages; ++slot) {
    if (const int error = post_receive(slot); error != 0) return error;
  }
  return 0;
}

void ReadLinks::restart_datagrams(TimePoint now) noexcept {
  if (now < restart_at_) return;
  const bool again = now - restart_at_ < kRestartMost * 10;
  restart_pause_ =
      again ? std::clamp(restart_pause_ * 2, kRestartFirst, kRestartMost) : kRestartFirst;
  restart_at_ = now + restart_pause_;
  if (restart_ud(datagrams_.get(), settings_.port) != 0) return;
  ++life_;
  done_ = sent_;
  datagrams_broken_ = post_receives() != 0;
}

int ReadLinks::post_receive(std::uint32_t slot) noexcept {
  ibv_sge place{reinterpret_cast<std::uintptr_t>(&memory_[std::size_t{slot} * kSlotBytes]),
                kSlotBytes, region_->lkey};
  ibv_recv_wr request{};
  request.wr_id = tag(Work::wire_up, life_ << kLifeShift | slot);
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(datagrams_.get(), &request, &refused);
}

void ReadLinks::add(std::uint32_t peer, const RailAddress& address, ibv_ah* way) {
  auto link = std::make_unique<Link>();  // set-up: connect()
  link->peer = peer;
  link->address = address;
  link->way = way;
  links_.push_back(std::move(link));  // set-up: connect()
}

void ReadLinks::remove(std::uint32_t peer) noexcept {
  const auto at = std::find_if(links_.begin(), links_.end(),
                               [peer](const auto& link) { return link->peer == peer; });
  if (at == links_.end()) return;
  drop(**at);
  links_.erase(at);
}

ReadLinks::Link* ReadLinks::of(std::uint32_t peer) noexcept {
  for (const auto& link : links_) {
    if (link->peer == peer) return link.get();
  }
  return nullptr;
}

ReadLinks::Link* ReadLinks::of(const RailAddress& address) noexcept {
  for (const auto& link : links_) {
    if (link->address == address) return link.get();
  }
  return nullptr;
}

void ReadLinks::set_state(Link& link, Link::State state) noexcept {
  const auto count = [&](Link::State of, std::uint32_t& counter) {
    counter += static_cast<std::uint32_t>(state == of);
    counter -= static_cast<std::uint32_t>(link.state == of);
  };
  count(Link::State::asking, asking_);
  count(Link::State::failing, failing_);
  link.state = state;
}

bool ReadLinks::ready(std::uint32_t peer) noexcept {
  Link* const link = of(peer);
  // A peer that offers no wire-up cannot be read from.
  if (link == nullptr || link->address.wire_up_qpn == 0) return false;
  if (link->state == Link::State::idle) {
    set_state(*link, Link::State::asking);
    link->ask_pause = kAskFirst;
  }
  return link->state == Link::State::ready;
}

Result<QueuePair> ReadLinks::make_queue_pair(int access, std::uint32_t depth) {
  ReliableSettings settings;
  settings.send_cq = settings.receive_cq = settings_.cq;
  settings.send_depth = depth;
  settings.access = access;
  return make_reliable(settings_.pd, settings_.port, settings);
}

void ReadLinks::send(const Link& link, WireUp::Kind kind, std::uint64_t attempt, std::uint32_t qpn,
                     std::uint32_t psn) noexcept {
  if (sent_ - done_ == kMessages || datagrams_broken_) return;  // repeated by who asks
  WireUp message{.kind = kind,
                 .job = settings_.job,
                 .attempt = attempt,
                 .sender = self_,
                 .qpn = qpn,
                 .psn = psn,
                 .mtu = settings_.port.mtu};
  const std::uint64_t slot = sent_ % kMessages;
  std::byte* const at = &memory_[(kMessages + slot) * kSlotBytes];
  encode_wire_up(message, std::span<std::byte, kWireUpBytes>(at, kWireUpBytes));
  ibv_sge place{reinterpret_cast<std::uintptr_t>(at), kWireUpBytes, region_->lkey};
  ibv_send_wr request{};
  request.wr_id = tag(Work::wire_up, life_ << kLifeShift | kSendFlag | slot);
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = link.way;
  request.wr.ud.remote_qpn = link.address.wire_up_qpn;
  request.wr.ud.remote_qkey = kQueueKey;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(datagrams_.get(), &request, &refused) == 0) {
    ++sent_;
  } else {
    datagrams_broken_ = true;
  }
}

void ReadLinks::ask(Link& link, TimePoint now) noexcept {
  link.ask_at = now + link.ask_pause;
  link.ask_pause = std::min(link.ask_pause * 2, kAskMost);
  if (link.reads == nullptr) {
    auto made = make_queue_pair(0, kReads);
    if (!made) {  // out of queue pairs for now: asked again
      refusal_ = made.error().message;
      return;
    }
    link.reads = std::move(made).value();
    link.attempt = ++last_attempt_;
    link.psn = static_cast<std::uint32_t>(random_()) & 0xFFFFFF;
  }
  send(link, WireUp::Kind::ask, link.attempt, link.reads->qp_num, link.psn);
}

void ReadLinks::serve(Link& link, const WireUp& message) noexcept {
  const TimePoint now = SteadyClock().now();
  // Overtaken on the way by a later one that is served already.
  if (link.serves != nullptr && message.attempt < link.serves_attempt &&
      now < link.serves_since + kMessageLife) {
    return;
  }
  if (link.serves == nullptr || link.serves_attempt != message.attempt) {
    link.serves.reset();
    auto made = make_queue_pair(IBV_ACCESS_REMOTE_READ, 1);
    if (!made) {
      refusal_ = made.error().message;
      return;
    }
    link.serves_psn = static_cast<std::uint32_t>(random_()) & 0xFFFFFF;
    const auto connected =
        connect_reliable(made->get(), settings_.port, settings_.device, link.serves_psn,
                         {.gid = link.address.gid,
                          .lid = link.address.lid,
                          .qpn = message.qpn,
                          .psn = message.psn,
                          .mtu = message.mtu},
                         {});
    if (!connected) {
      refusal_ = connected.error().message;
      return;
    }
    link.serves = std::move(made).value();
    link.serves_attempt = message.attempt;
    link.serves_since = now;
  }
  send(link, WireUp::Kind::answer, message.attempt, link.serves->qp_num, link.serves_psn);
}

void ReadLinks::answered(Link& link, const WireUp& message) noexcept {
  if (link.state != Link::State::asking || link.reads == nullptr ||
      link.attempt != message.attempt) {
    return;
  }
  const auto connected =
      connect_reliable(link.reads.get(), settings_.port, settings_.device, link.psn,
                       {.gid = link.address.gid,
                        .lid = link.address.lid,
                        .qpn = message.qpn,
                        .psn = message.psn,
                        .mtu = message.mtu},
                       {});
  if (connected) {
    set_state(link, Link::State::ready);
  } else {
    refusal_ = connected.error().message;
    link.reads.reset();  // asked anew with another one
  }
}

void ReadLinks::on_message(const ibv_wc& entry) noexcept {
  const std::uint64_t number = number_of(entry.wr_id);
  if (number >> kLifeShift != life_) return;  // dropped when the queue was restarted
  const bool ok = entry.status == IBV_WC_SUCCESS;
  // A datagram queue in error takes no more messages; its peers repeat what is lost with it.
  if (!ok) datagrams_broken_ = true;
  if ((number & kSendFlag) != 0) {
    ++done_;
    return;
  }
  if (!ok) return;
  const auto slot = static_cast<std::uint32_t>(number & kReadSlotMask);
  std::optional<WireUp> message;
  if (entry.byte_len > ReceiveSlots::kGrhBytes) {
    message = decode_wire_up({&memory_[std::size_t{slot} * kSlotBytes + ReceiveSlots::kGrhBytes],
                              entry.byte_len - ReceiveSlots::kGrhBytes});
  }
  if (post_receive(slot) != 0) datagrams_broken_ = true;
  if (!message || message->job != settings_.job) return;
  Link* const link = of(message->sender);
  if (link == nullptr) return;
  if (message->kind == WireUp::Kind::ask) return serve(*link, *message);
  answered(*link, *message);
}

bool ReadLinks::read(std::uint32_t peer, const ibv_sge& into, std::uint64_t address,
                     std::uint32_t key, std::uint32_t number) noexcept {
  Link* const link = of(peer);
  if (link == nullptr || link->state != Link::State::ready || posted_ == kReads) return false;
  ibv_sge place = into;
  ibv_send_wr request{};
  request.wr_id = tag(Work::reliable, number);
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(link->reads.get(), &request, &refused) != 0) {
    fail(*link);
    return false;
  }
  if (link->posted++ == 0) link->late_at = TimePoint{};
  ++posted_;
  return true;
}

void ReadLinks::completed(const ibv_wc& entry) noexcept {
  for (const auto& link : links_) {
    if (link->reads == nullptr || link->reads->qp_num != entry.qp_num || link->posted == 0)
      continue;
    --link->posted;
    --posted_;
    link->late_at = TimePoint{};
    if (entry.status == IBV_WC_SUCCESS) return;
    if (entry.status != IBV_WC_WR_FLUSH_ERR) note(*link, entry.status);
    if (link->state == Link::State::ready) fail(*link);
    return;
  }
}

std::uint32_t ReadLinks::posted(std::uint32_t peer) noexcept {
  const Link* const link = of(peer);
  return link == nullptr ? 0 : link->posted;
}

void ReadLinks::note(const Link& link, ibv_wc_status status) noexcept {
  last_status_ = status;
  last_peer_qpn_ = link.address.frames_qpn;
  last_gid_ = link.address.gid;
}

void ReadLinks::fail(Link& link) noexcept {
  set_state(link, Link::State::failing);
  link.drop_at = TimePoint{};
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(link.reads.get(), &attributes, IBV_QP_STATE);  // failure: a system call
}

void ReadLinks::drop(Link& link) noexcept {
  posted_ -= link.posted;
  link.posted = 0;
  link.reads.reset();
  set_state(link, Link::State::idle);
}

void ReadLinks::look_for_errors() noexcept {
  if (in_error(datagrams_.get())) datagrams_broken_ = true;
}

void ReadLinks::give_up() noexcept {
  for (const auto& link : links_) drop(*link);
  datagrams_broken_ = false;
  done_ = sent_;
}

void ReadLinks::progress(TimePoint now) noexcept {
  if (datagrams_broken_) restart_datagrams(now);
  for (const auto& link : links_) {
    if (link->state == Link::State::asking && link->ask_at <= now) ask(*link, now);
    if (link->state == Link::State::ready && link->posted > 0) {
      if (link->late_at == TimePoint{}) link->late_at = now + kReadDeadline;
      if (link->late_at <= now) {
        note(*link, IBV_WC_RETRY_EXC_ERR);
        fail(*link);
      }
    }
    if (link->state != Link::State::failing) continue;
    if (link->drop_at == TimePoint{}) link->drop_at = now + kReadDrain;
    if (link->posted > 0 && now < link->drop_at) continue;
    drop(*link);
    link->ask_at = now + kRest;
  }
}

std::string ReadLinks::last_error() const {
  if (last_status_ == IBV_WC_SUCCESS) return refusal_;
  return "verbs: reading from " + gid_text(last_gid_) + " (the rank of queue pair " +
         std::to_string(last_peer_qpn_) + ") through " + settings_.port.text() +
         " failed: " + explain_status(last_status_);
}

}  // namespace selmcast::verbs
