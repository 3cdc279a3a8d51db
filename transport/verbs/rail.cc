#include "transport/verbs/rail.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "transport/verbs/explain.h"
#include "transport/verbs/packet_size.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint8_t kUnicastHops = 64;
constexpr std::uint8_t kGroupHops = 1;  // stays within the subnet, like the UDP backend's
constexpr std::uint32_t kSharedQueue = 0;
constexpr std::uint32_t kFrameLeast = 256;  // the smallest path MTU of InfiniBand

// The kernel asks for the peer's hardware address and gives up after a second, which is when it
// would repeat a question that was lost.
constexpr std::uint32_t kWayAttempts = 4;

// Between two attempts to recover what receives; longer while they do not help.
constexpr Duration kPauseFirst = std::chrono::milliseconds(1);
constexpr Duration kPauseMost = std::chrono::milliseconds(100);
constexpr Duration kRecovered = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Rail>> Rail::make(const RailSettings& settings) {
  auto opened = open_port(settings.wish);
  if (!opened) return std::move(opened).error();
  std::unique_ptr<Rail> rail(new Rail());
  rail->opened_ = std::move(opened).value();
  rail->own_depth_ = settings.own_depth;
  rail->buffers_ = settings.buffers;
  if (auto state = rail->keep_within(settings.mtu); !state) return std::move(state).error();
  if (auto state = rail->open_queues(settings); !state) return std::move(state).error();
  auto groups = GroupJoin::make(rail->port());
  if (!groups) return std::move(groups).error();
  rail->groups_ = std::move(groups).value();
  auto unicast = rail->make_receiver();
  if (!unicast) return std::move(unicast).error();
  rail->receivers_.push_back(std::move(unicast).value());
  rail->reads_->set_self(rail->address());
  return rail;
}

Result<void> Rail::keep_within(std::uint32_t mtu) {
  frame_bytes_ = port().mtu_bytes;
  reads_mtu_ = port().mtu;
  if (mtu == 0) return {};
  const std::uint32_t least = kFrameLeast + datagram_headers(port().kind);
  const auto reads = path_mtu_within(mtu, port().kind);
  if (mtu < least || !reads) {
    return bad_input("mtu " + std::to_string(mtu) + ": leaves no room for frames on " +
                     port().text() + "; must be 0 (the path's) or at least " +
                     std::to_string(least));
  }
  frame_bytes_ = std::min(frame_bytes_, datagram_within(mtu, port().kind));
  reads_mtu_ = std::min(reads_mtu_, *reads);
  return {};
}

Result<void> Rail::open_queues(const RailSettings& settings) {
  const std::string where = port().text();
  const auto& limits = attributes();
  pd_.reset(ibv_alloc_pd(context()));
  if (pd_ == nullptr) return set_up_error("ibv_alloc_pd", where, errno);
  channel_.reset(ibv_create_comp_channel(context()));
  if (channel_ == nullptr) return set_up_error("ibv_create_comp_channel", where, errno);
  // wait() reads all events there are, and none is no reason to wait.
  if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) {
    return set_up_error("the completion channel", where, errno);
  }

  const auto within = [](std::uint32_t wish, int most) {
    return std::min(wish, static_cast<std::uint32_t>(std::max(most, 1)));
  };
  const std::uint32_t depth = within(settings.send_depth, limits.max_qp_wr);
  const std::uint32_t slices = within(settings.send_slices, limits.max_sge);
  if (auto state = open_completions(settings, depth); !state) return state;
  auto slots = ReceiveSlots::make(pd(), port(), settings.buffers, frame_bytes_);
  if (!slots) return std::move(slots).error();
  slots_ = std::move(slots).value();
  if (settings.shared_queue && limits.max_srq > 0 &&
      limits.max_srq_wr >= static_cast<int>(settings.buffers)) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = settings.buffers;
    init.attr.max_sge = 1;
    srq_.reset(ibv_create_srq(pd(), &init));
    if (srq_ == nullptr) return set_up_error("ibv_create_srq", where, errno);
    if (slots_->post_free({.srq = srq_.get()}, kSharedQueue, buffers_) != buffers_) {
      return set_up_error("posting receives", where, slots_->flush_error());
    }
  }
  auto sends = SendQueue::make(pd(), cq(), port(), depth, slices);
  if (!sends) return std::move(sends).error();
  sends_ = std::move(sends).value();
  ReadLinks::Settings links{
      .pd = pd(), .cq = cq(), .device = limits, .port = port(), .job = settings.job};
  links.port.mtu = reads_mtu_;
  auto reads = ReadLinks::make(links);
  if (!reads) return std::move(reads).error();
  reads_ = std::move(reads).value();
  return {};
}

Result<void> Rail::open_completions(const RailSettings& settings, std::uint32_t send_depth) {
  const std::uint32_t entries = send_depth + settings.buffers + ReadLinks::kCompletions;
  const auto most = static_cast<std::uint32_t>(std::max(attributes().max_cqe, 0));
  if (entries > most) {
    return unavailable("verbs: " + port().text() + " has completion queues of " +
                       std::to_string(most) + " entries, " + std::to_string(entries) +
                       " are needed");
  }
  auto made = Completions::make(opened_, entries, channel_.get(), settings.timed);
  if (!made) return std::move(made).error();
  completions_ = std::move(made).value();
  return {};
}

Rail::~Rail() {
  // Groups are left before the queue pairs attached to them go.
  while (receivers_.size() > 1) remove_group(receivers_.back().ipv4);
}

Result<Receiver> Rail::make_receiver() {
  UdSettings settings;
  settings.cq = cq();
  settings.srq = srq_.get();
  settings.receive_depth = own_depth_;
  auto qp = make_ud(pd(), port(), settings);
  if (!qp) return std::move(qp).error();
  Receiver out;
  out.qp = std::move(qp).value();
  out.qpn = out.qp->qp_num;
  out.id = srq_ != nullptr ? kSharedQueue : next_id_++;
  if (srq_ != nullptr) return out;
  if (slots_->post_free({.qp = out.qp.get()}, out.id, own_depth_) == own_depth_) return out;
  slots_->queue_gone(out.id);
  if (const int error = slots_->flush_error(); error != 0) {
    slots_->clear_flush_error();
    return set_up_error("posting receives", port().text(), error);
  }
  return failed("verbs: no receive buffers left for another group on " + port().text() +
                "; join fewer groups at once");
}

Result<void> Rail::add_group(std::uint32_t ipv4) {
  auto made = make_receiver();
  if (!made) return std::move(made).error();
  auto route = groups_->join(ipv4);
  // Joining may have ended or moved what this rank sends to the group by.
  if (groups_->ended() || groups_->next_moved(0)) regroup.store(true, std::memory_order_release);
  if (!route) {
    if (srq_ == nullptr) slots_->queue_gone(made->id);
    return std::move(route).error();
  }
  Receiver& receiver = *made;
  receiver.ipv4 = ipv4;
  receiver.route = *route;
  const int error = ibv_attach_mcast(receiver.qp.get(), &receiver.route.mgid, receiver.route.mlid);
  if (error != 0) {
    groups_->leave(ipv4);
    if (srq_ == nullptr) slots_->queue_gone(receiver.id);
    return set_up_error("attaching to group " + gid_text(receiver.route.mgid), port().text(),
                        error > 0 ? error : errno);
  }
  receivers_.push_back(std::move(made).value());
  return {};
}

void Rail::remove_group(std::uint32_t ipv4) noexcept {
  const auto at = std::find_if(receivers_.begin() + 1, receivers_.end(),
                               [ipv4](const Receiver& r) { return r.ipv4 == ipv4; });
  if (at == receivers_.end()) return;
  ibv_detach_mcast(at->qp.get(), &at->route.mgid, at->route.mlid);
  groups_->leave(ipv4);
  if (srq_ != nullptr) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(at->qp.get(), &attributes, IBV_QP_STATE);
    retired_.push_back(std::move(*at));
  } else {
    // At once: in error it would bring every buffer of its queue as a completion, and a few leaves
    // between two polls would overrun the completion queue. No shared buffer can be lost here.
    at->qp.reset();
    slots_->queue_gone(at->id);
  }
  receivers_.erase(at);
  last_found_ = 0;
}

int Rail::move_group(const GroupJoin::Moved& moved) noexcept {
  Receiver* const receiver = receiver_of(moved.ipv4);
  if (receiver == nullptr) return 0;
  if (receiver->attached && receiver->route == moved.route) return 0;
  // Before the new one: a device that tells groups by their GID alone would take this for the end
  // of both.
  ibv_detach_mcast(receiver->qp.get(), &receiver->route.mgid, receiver->route.mlid);
  receiver->route = moved.route;
  const int error =
      ibv_attach_mcast(receiver->qp.get(), &receiver->route.mgid, receiver->route.mlid);
  receiver->attached = error == 0;
  return error < 0 ? errno : error;
}

void Rail::seen_empty() noexcept {
  retired_.clear();
  awaits_empty_ = false;
  for (Receiver& receiver : receivers_) receiver.drained = receiver.stopped;
}

int Rail::restart(Receiver& receiver) noexcept {
  if (const int error = restart_ud(receiver.qp.get(), port()); error != 0) return error;
  receiver.broken = receiver.stopped = receiver.drained = false;
  if (srq_ == nullptr) slots_->queue_gone(receiver.id);
  return 0;
}

int Rail::bring_back(Receiver& receiver) noexcept {
  if (srq_ == nullptr || receiver.drained) return restart(receiver);
  if (receiver.stopped) return 0;
  if (!in_error(receiver.qp.get())) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    const int error = ibv_modify_qp(receiver.qp.get(), &attributes, IBV_QP_STATE);
    if (error != 0) return error;
  }
  receiver.stopped = awaits_empty_ = true;
  return 0;
}

Receiver* Rail::receiver_of(std::uint32_t ipv4) noexcept {
  const auto at = std::find_if(receivers_.begin() + 1, receivers_.end(),
                               [ipv4](const Receiver& r) { return r.ipv4 == ipv4; });
  return at == receivers_.end() ? nullptr : &*at;
}

void Rail::look_for_errors() noexcept {
  reads_->look_for_errors();
  for (Receiver& receiver : receivers_) {
    if (in_error(receiver.qp.get())) receiver.broken = broken_receivers_ = true;
  }
}

void Rail::fill(const Receiver& receiver) noexcept {
  const std::uint32_t held = slots_->held_by(receiver.id);
  if (held < own_depth_) slots_->post_free(queue_of(receiver), receiver.id, own_depth_ - held);
}

void Rail::receive_failed(std::uint32_t slot, std::uint32_t qpn) noexcept {
  if (Receiver* const found = find(qpn)) found->broken = broken_receivers_ = true;
  // Posted to a queue pair in error it would come back at once.
  if (srq_ != nullptr) return give_back(slot);
  slots_->free(slot);
}

int Rail::recover(TimePoint now) noexcept {
  if (now < recover_at_) return 0;
  slots_->flush();
  slots_->clear_flush_error();
  int error = 0;
  broken_receivers_ = false;
  for (Receiver& receiver : receivers_) {
    if (receiver.broken) {
      if (const int refused = bring_back(receiver); refused != 0) error = refused;
      broken_receivers_ = broken_receivers_ || receiver.broken;
    }
    if (srq_ == nullptr && !receiver.broken) fill(receiver);
  }
  if (srq_ != nullptr) slots_->post_free({.srq = srq_.get()}, kSharedQueue, buffers_);
  pause_ = now - recovered_at_ > kRecovered ? kPauseFirst
                                            : std::clamp(pause_ * 2, kPauseFirst, kPauseMost);
  recovered_at_ = now;
  recover_at_ = now + pause_;
  return error != 0 ? error : slots_->flush_error();
}

Receiver* Rail::find(std::uint32_t qpn) noexcept {
  if (receivers_[last_found_].qpn == qpn) return &receivers_[last_found_];
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    if (receivers_[i].qpn != qpn) continue;
    last_found_ = i;
    return &receivers_[i];
  }
  return nullptr;
}

void Rail::give_back(std::uint32_t slot) noexcept {
  const std::uint32_t id = slots_->queue_of(slot);
  if (srq_ != nullptr) return slots_->repost(slot, {.srq = srq_.get()}, kSharedQueue);
  for (const Receiver& receiver : receivers_) {
    if (receiver.id == id) return slots_->repost(slot, queue_of(receiver), id);
  }
  slots_->free(slot);
}

bool Rail::look_at_identity() noexcept {
  if (!identity_.look(context(), port())) return false;
  reads_->use_gid_index(identity_.gid_index(port()));
  return true;
}

RailAddress Rail::address() const noexcept {
  return {.gid = port().gid,
          .frames_qpn = receivers_.front().qpn,
          .wire_up_qpn = reads_->wire_up_qpn(),
          .lid = port().lid};
}

Result<AddressHandle> Rail::make_handle(ibv_ah_attr attributes, const std::string& to) {
  attributes.port_num = port().port;
  attributes.grh.sgid_index = static_cast<std::uint8_t>(identity_.gid_index(port()));
  AddressHandle out;
  for (std::uint32_t attempt = 1; out == nullptr && attempt <= kWayAttempts; ++attempt) {
    errno = 0;
    out.reset(ibv_create_ah(pd(), &attributes));
    if (errno != ETIMEDOUT) break;
  }
  if (out == nullptr) return set_up_error("finding the way to " + to, port().text(), errno);
  return out;
}

Result<AddressHandle> Rail::reach(const RailAddress& peer) {
  ibv_ah_attr attributes{};
  attributes.dlid = peer.lid;
  // InfiniBand routes by LID within a subnet; the GRH is for RoCE.
  attributes.is_global = port().kind == GidKind::infiniband ? 0 : 1;
  attributes.grh.dgid = peer.gid;
  attributes.grh.hop_limit = kUnicastHops;
  return make_handle(attributes, gid_text(peer.gid));
}

Result<AddressHandle> Rail::reach(const GroupRoute& route) {
  ibv_ah_attr attributes{};
  attributes.dlid = route.mlid;
  attributes.sl = route.service_level;
  attributes.is_global = 1;
  attributes.grh.dgid = route.mgid;
  attributes.grh.hop_limit = kGroupHops;
  return make_handle(attributes, "group " + gid_text(route.mgid));
}

}  // namespace selmcast::verbs
