// The simulator's inside: event queue, switch, ports. Private to transport/sim.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "transport/sim/payload_pool.h"
#include "transport/sim/ring_queue.h"
#include "transport/sim/sim_network.h"

namespace selmcast::detail {

class SimTransport;

/// Dense number of a group within one network; kNoGroup marks unicast.
using GroupSlot = std::uint32_t;
inline constexpr GroupSlot kNoGroup = ~GroupSlot{0};

class SimCore {
 public:
  explicit SimCore(SimConfig config);

  // For SimNetwork.
  std::unique_ptr<Transport> attach(Rank rank);
  const ManualClock& clock() const noexcept { return clock_; }
  TimePoint next_event() const noexcept { return events_.empty() ? kNever : events_.front().at; }
  void advance_to(TimePoint to);
  void set_link(Rank rank, const SimLink& link);
  void partition(Rank a, Rank b, bool cut);
  void crash(Rank rank, Duration notice);
  std::uint64_t trace_hash() const noexcept { return trace_; }

  struct Port {
    SimLink link;
    SplitMix64 random{0};
    TimePoint receive_free{};   ///< When the last queued frame will have been serialised.
    TimePoint last_in_order{};  ///< Delivery time of the latest frame that was not held back.
    struct Queued {
      TimePoint leaves{};
      std::uint64_t bytes = 0;
    };
    RingQueue<Queued> queue;
    std::uint64_t queued_bytes = 0;
    std::uint64_t wire_sent = 0, wire_received = 0, tail_drops = 0;
    std::uint64_t oversize = 0;  ///< Requests.
  };
  const Port& port(Rank rank) const;

  // For SimTransport.
  const SimConfig& config() const noexcept { return config_; }
  std::uint32_t world() const noexcept { return static_cast<std::uint32_t>(ports_.size()); }
  PayloadPool& pool() noexcept { return pool_; }
  TimePoint now() const noexcept { return clock_.now(); }
  void detach(Rank rank) noexcept { hosts_[rank].transport = nullptr; }
  bool known_lost(Rank rank) const noexcept { return hosts_[rank].known_lost; }
  GroupSlot group_slot(GroupAddress group);
  void add_receiver(GroupSlot group, Rank rank);
  void remove_receiver(GroupSlot group, Rank rank) noexcept;
  void note_oversize(Rank rank) noexcept { ++ports_[rank].oversize; }
  /// The next frame of `rank`, of this size, starts to leave now.
  void start_transmit(Rank rank, std::uint32_t frame_bytes);
  /// A whole frame reached the switch. The caller keeps its reference to `payload`.
  void forward(Rank from, Rank to, PayloadPool::Index payload);
  void forward_group(Rank from, GroupSlot group, PayloadPool::Index payload);

 private:
  enum class EventKind : std::uint8_t { transmitted, delivery, loss_notice };
  struct Event {
    TimePoint at{};
    std::uint64_t sequence = 0;
    Rank rank = 0;
    PayloadPool::Index payload = 0;
    GroupSlot group = kNoGroup;
    EventKind kind = EventKind::transmitted;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const noexcept {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };
  struct Host {
    SimTransport* transport = nullptr;
    bool attached_once = false;
    bool crashed = false;
    bool known_lost = false;
  };
  struct Receiver {
    Rank rank = 0;
    TimePoint from{};
  };

  void check_link(const SimLink& link) const;
  void schedule(TimePoint at, EventKind kind, Rank rank, PayloadPool::Index payload,
                GroupSlot group);
  void carry_out(const Event& event);
  void deliver(const Event& event);
  void reach_port(Rank from, Rank to, PayloadPool::Index payload, GroupSlot group);
  void pass_port(Rank to, PayloadPool::Index payload, GroupSlot group);
  bool is_cut(Rank a, Rank b) const noexcept {
    return !cuts_.empty() && cuts_[std::size_t{a} * world() + b];
  }

  SimConfig config_;
  ManualClock clock_;
  PayloadPool pool_;
  std::vector<Port> ports_;
  std::vector<Host> hosts_;
  std::vector<bool> cuts_;  // world x world, empty until the first partition.
  std::unordered_map<std::uint32_t, GroupSlot> slots_;
  std::vector<std::vector<Receiver>> groups_;  // By slot; receivers ascend by rank.
  std::vector<Event> events_;                  // Binary heap, earliest first.
  std::uint64_t sequence_ = 0;
  std::uint64_t trace_ = 0;
};

}  // namespace selmcast::detail
