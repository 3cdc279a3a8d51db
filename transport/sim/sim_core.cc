#include "transport/sim/sim_core.h"

#include <algorithm>

#include "base/check.h"
#include "transport/sim/sim_transport.h"

namespace selmcast::detail {
namespace {

bool is_chance(double value) noexcept {
  return value >= 0.0 && value <= 1.0;
}

}  // namespace

SimCore::SimCore(SimConfig config)
    : config_(std::move(config)),
      pool_(config_.max_frame_bytes),
      ports_(config_.links.size()),
      hosts_(config_.links.size()) {
  SELMCAST_CHECK(config_.max_frame_bytes > 0, "frames need a size");
  SELMCAST_CHECK(config_.max_request_frames > 0, "requests need at least one frame");
  SELMCAST_CHECK(std::uint64_t{config_.max_frame_bytes} * config_.max_request_frames <= UINT32_MAX,
                 "a request must be smaller than 4 GiB");
  SELMCAST_CHECK(config_.send_depth > 0 && config_.receive_buffers > 0, "depths must not be 0");
  SELMCAST_CHECK(config_.join_settle >= Duration::zero(), "join_settle must not be negative");
  for (Rank rank = 0; rank < world(); ++rank) {
    check_link(config_.links[rank]);
    ports_[rank].link = config_.links[rank];
    // Each port draws from its own stream: a fault on one link leaves the others' luck as it was.
    ports_[rank].random = SplitMix64(mix_seed(config_.seed) ^ mix_seed(rank + 1U));
  }
}

void SimCore::check_link(const SimLink& link) const {
  SELMCAST_CHECK(is_chance(link.loss) && is_chance(link.duplicate) && is_chance(link.reorder) &&
                     is_chance(link.corrupt),
                 "link faults are chances within [0, 1]");
  SELMCAST_CHECK(link.delay >= Duration::zero() && link.reorder_by >= Duration::zero(),
                 "link times must not be negative");
  SELMCAST_CHECK(!config_.lossless || (link.loss == 0.0 && link.duplicate == 0.0 &&
                                       link.reorder == 0.0 && link.corrupt == 0.0),
                 "a lossless network has no faulty links");
}

std::unique_ptr<Transport> SimCore::attach(Rank rank) {
  SELMCAST_CHECK(rank < world(), "no such rank");
  SELMCAST_CHECK(!hosts_[rank].attached_once, "a rank attaches once");
  hosts_[rank].attached_once = true;
  auto transport = std::make_unique<SimTransport>(*this, rank);
  hosts_[rank].transport = transport.get();
  if (hosts_[rank].crashed) transport->crash();
  return transport;
}

const SimCore::Port& SimCore::port(Rank rank) const {
  SELMCAST_CHECK(rank < world(), "no such rank");
  return ports_[rank];
}

void SimCore::set_link(Rank rank, const SimLink& link) {
  SELMCAST_CHECK(rank < world(), "no such rank");
  check_link(link);
  ports_[rank].link = link;
}

void SimCore::partition(Rank a, Rank b, bool cut) {
  SELMCAST_CHECK(a < world() && b < world(), "no such rank");
  if (cuts_.empty()) cuts_.resize(std::size_t{world()} * world());
  cuts_[std::size_t{a} * world() + b] = cut;
  cuts_[std::size_t{b} * world() + a] = cut;
}

void SimCore::crash(Rank rank, Duration notice) {
  SELMCAST_CHECK(rank < world(), "no such rank");
  SELMCAST_CHECK(notice >= Duration::zero(), "notice must not be negative");
  if (hosts_[rank].crashed) return;
  hosts_[rank].crashed = true;
  if (hosts_[rank].transport != nullptr) hosts_[rank].transport->crash();
  if (notice < kNever - now()) schedule(now() + notice, EventKind::loss_notice, rank, 0, kNoGroup);
}

GroupSlot SimCore::group_slot(GroupAddress group) {
  const auto [at, fresh] = slots_.try_emplace(group.index, static_cast<GroupSlot>(groups_.size()));
  if (fresh) groups_.emplace_back();
  return at->second;
}

void SimCore::add_receiver(GroupSlot group, Rank rank) {
  auto& receivers = groups_[group];
  const auto at = std::lower_bound(receivers.begin(), receivers.end(), rank,
                                   [](const Receiver& r, Rank wanted) { return r.rank < wanted; });
  receivers.insert(at, Receiver{rank, now() + config_.join_settle});
}

void SimCore::remove_receiver(GroupSlot group, Rank rank) noexcept {
  std::erase_if(groups_[group], [rank](const Receiver& r) { return r.rank == rank; });
}

void SimCore::schedule(TimePoint at, EventKind kind, Rank rank, PayloadPool::Index payload,
                       GroupSlot group) {
  events_.push_back(Event{at, sequence_++, rank, payload, group, kind});
  std::push_heap(events_.begin(), events_.end(), Later{});
}

void SimCore::advance_to(TimePoint to) {
  SELMCAST_CHECK(to >= now(), "time does not run backwards");
  while (!events_.empty() && events_.front().at <= to) {
    const Event event = events_.front();
    std::pop_heap(events_.begin(), events_.end(), Later{});
    events_.pop_back();
    clock_.set(event.at);
    carry_out(event);
  }
  clock_.set(to);
}

void SimCore::carry_out(const Event& event) {
  switch (event.kind) {
    case EventKind::transmitted:
      if (hosts_[event.rank].transport != nullptr) hosts_[event.rank].transport->on_transmitted();
      return;
    case EventKind::delivery:
      deliver(event);
      return;
    case EventKind::loss_notice:
      hosts_[event.rank].known_lost = true;
      for (const Host& host : hosts_)
        if (host.transport != nullptr) host.transport->on_peer_lost(event.rank);
      return;
  }
}

void SimCore::deliver(const Event& event) {
  SimTransport* transport = hosts_[event.rank].transport;
  if (transport == nullptr || hosts_[event.rank].crashed) {
    pool_.release(event.payload);
    return;
  }
  trace_ = mix_seed(trace_ ^ static_cast<std::uint64_t>(event.at.time_since_epoch().count()));
  trace_ = mix_seed(trace_ ^ event.rank);
  trace_ = mix_seed(trace_ ^ pool_.hash(event.payload));
  transport->on_delivery(event.payload, event.group);
}

void SimCore::start_transmit(Rank rank, std::uint32_t frame_bytes) {
  const Kbps rate = ports_[rank].link.tx_kbps;
  const std::uint64_t wire = std::uint64_t{frame_bytes} + config_.wire_overhead_bytes;
  const Duration takes = rate == 0 ? Duration::zero() : transmission_time(wire, rate);
  schedule(now() + takes, EventKind::transmitted, rank, 0, kNoGroup);
}

void SimCore::forward(Rank from, Rank to, PayloadPool::Index payload) {
  ports_[from].wire_sent += std::uint64_t{pool_.bytes(payload)} + config_.wire_overhead_bytes;
  reach_port(from, to, payload, kNoGroup);
}

void SimCore::forward_group(Rank from, GroupSlot group, PayloadPool::Index payload) {
  ports_[from].wire_sent += std::uint64_t{pool_.bytes(payload)} + config_.wire_overhead_bytes;
  for (const Receiver& receiver : groups_[group])
    if (receiver.rank != from && receiver.from <= now())
      reach_port(from, receiver.rank, payload, group);
}

void SimCore::reach_port(Rank from, Rank to, PayloadPool::Index payload, GroupSlot group) {
  if (hosts_[to].transport == nullptr || hosts_[to].crashed || is_cut(from, to)) return;
  Port& port = ports_[to];
  if (config_.loses && config_.loses(from, to, {pool_.data(payload), pool_.bytes(payload)})) return;
  // No draw for a chance of 0: a clean link does not spend randomness.
  if (port.link.loss > 0.0 && port.random.chance(port.link.loss)) return;
  const bool twice = port.link.duplicate > 0.0 && port.random.chance(port.link.duplicate);
  for (int copy = 0; copy < (twice ? 2 : 1); ++copy) {
    if (port.link.corrupt > 0.0 && port.random.chance(port.link.corrupt) &&
        pool_.bytes(payload) > 0) {
      const PayloadPool::Index damaged = pool_.clone(payload);
      const auto bit = port.random() % (std::uint64_t{pool_.bytes(payload)} * 8U);
      pool_.data(damaged)[bit / 8U] ^= std::byte{1} << (bit % 8U);
      pass_port(to, damaged, group);
    } else {
      pool_.share(payload);
      pass_port(to, payload, group);
    }
  }
}

// Takes over one reference to `payload`.
void SimCore::pass_port(Rank to, PayloadPool::Index payload, GroupSlot group) {
  Port& port = ports_[to];
  const std::uint64_t wire = std::uint64_t{pool_.bytes(payload)} + config_.wire_overhead_bytes;
  TimePoint leaves = now();
  while (!port.queue.empty() && port.queue.front().leaves <= now()) {
    port.queued_bytes -= port.queue.front().bytes;
    port.queue.pop();
  }
  if (port.link.rx_kbps > 0) {
    if (!config_.lossless && port.queued_bytes + wire > port.link.queue_bytes) {
      ++port.tail_drops;
      pool_.release(payload);
      return;
    }
    leaves = std::max(now(), port.receive_free) + transmission_time(wire, port.link.rx_kbps);
    port.receive_free = leaves;
    port.queue.push({leaves, wire});
    port.queued_bytes += wire;
  }
  port.wire_received += wire;
  // A link whose delay or rate was changed on the way must not reorder by itself.
  TimePoint arrives = std::max(leaves + port.link.delay, port.last_in_order);
  if (port.link.reorder > 0.0 && port.random.chance(port.link.reorder)) {
    const auto most = static_cast<std::uint64_t>(port.link.reorder_by.count());
    arrives += Duration(static_cast<Duration::rep>(port.random() % (most + 1)));
  } else {
    port.last_in_order = arrives;
  }
  schedule(arrives, EventKind::delivery, to, payload, group);
}

}  // namespace selmcast::detail
