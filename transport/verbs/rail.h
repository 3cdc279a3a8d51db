// One device as the transport uses it: a completion queue, a queue that sends frames, queue pairs
// that receive them (one for unicast, one for each group), and their buffers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/verbs/completions.h"
#include "transport/verbs/group_join.h"
#include "transport/verbs/port_identity.h"
#include "transport/verbs/read_links.h"
#include "transport/verbs/receive_slots.h"
#include "transport/verbs/send_queue.h"
#include "transport/verbs/verbs_address.h"

namespace selmcast::verbs {

struct RailSettings {
  PortWish wish;
  std::uint64_t job = 0;
  std::uint32_t mtu = 0;          ///< Bound on packets (packet_size.h); 0: the path MTU.
  std::uint32_t send_depth = 0;   ///< Frames posted and not completed.
  std::uint32_t send_slices = 1;  ///< Of one frame; fewer where the device has fewer.
  std::uint32_t buffers = 0;      ///< Receive buffers, all queues together.
  bool shared_queue = true;       ///< One receive queue for all queue pairs, where the device can.
  std::uint32_t own_depth = 256;  ///< Buffers of each queue pair otherwise.
  bool timed = false;             ///< Completions with the device's times, where it has them.
};

/// A queue pair that receives: unicast, or the frames of one group.
struct Receiver {
  QueuePair qp;
  std::uint32_t qpn = 0;
  std::uint32_t id = 0;    ///< Never reused.
  std::uint32_t ipv4 = 0;  ///< The group; 0 = unicast.
  GroupRoute route;
  bool broken = false;   ///< In error, to be restarted.
  bool stopped = false;  ///< In error for certain: the device brings nothing more by it.
  bool drained = false;  ///< And all that it had brought was polled.
  bool attached = true;  ///< To `route`.
};

class Rail {
 public:
  static Result<std::unique_ptr<Rail>> make(const RailSettings& settings);
  ~Rail();

  const DevicePort& port() const noexcept { return opened_.port; }
  const ibv_device_attr& attributes() const noexcept { return opened_.attributes; }
  std::uint32_t frame_bytes() const noexcept { return frame_bytes_; }
  bool shared_queue() const noexcept { return srq_ != nullptr; }
  RailAddress address() const noexcept;
  ibv_context* context() const noexcept { return opened_.context.get(); }
  ibv_pd* pd() const noexcept { return pd_.get(); }
  ibv_cq* cq() const noexcept { return completions_.get(); }
  Completions& completions() noexcept { return completions_; }
  const Completions& completions() const noexcept { return completions_; }
  ibv_comp_channel* channel() const noexcept { return channel_.get(); }
  SendQueue& sends() noexcept { return *sends_; }
  ReceiveSlots& slots() noexcept { return *slots_; }
  GroupJoin& groups() noexcept { return *groups_; }
  ReadLinks& reads() noexcept { return *reads_; }

  /// Starts to receive a group. Error unavailable: no buffers are left for another one.
  Result<void> add_group(std::uint32_t ipv4);
  /// Attaches what receives the group, if anything does, to another route of it. 0 or an errno:
  /// then it is attached to none. System calls.
  int move_group(const GroupJoin::Moved& moved) noexcept;
  /// What receives the group, or null.
  Receiver* receiver_of(std::uint32_t ipv4) noexcept;
  /// Nothing of the group is handed over any more. Of a shared queue the queue pair goes with
  /// seen_empty().
  void remove_group(std::uint32_t ipv4) noexcept;
  bool awaits_empty() const noexcept { return !retired_.empty() || awaits_empty_; }
  /// With a shared queue, once the completion queue was seen empty: destroys the queue pairs of
  /// groups that were left, and lets recover() reset those in error.
  /// Not earlier, because some devices take completions of a queue pair that is destroyed or reset
  /// out of the queue, and the shared buffers they stand for would be lost.
  void seen_empty() noexcept;
  /// A receive into buffer `slot` of queue pair `qpn` came to nothing: recover() restarts it.
  void receive_failed(std::uint32_t slot, std::uint32_t qpn) noexcept;
  /// Whether recover() has something to do.
  bool unhealthy() const noexcept { return broken_receivers_ || slots_->flush_error() != 0; }
  /// Restarts queue pairs in error and posts what buffers the device refused, at growing intervals
  /// while that does not help. 0 or the errno of what failed. Enters the kernel.
  int recover(TimePoint now) noexcept;
  /// Asks the device which queue pairs that receive are in error, for recover(): with a shared
  /// receive queue only an event or silence tells. System calls.
  void look_for_errors() noexcept;
  /// The queue pair of this number, or null for one that is gone.
  const Receiver* receiver(std::uint32_t qpn) noexcept { return find(qpn); }
  /// Gives buffer `slot` back to the queue that it belongs to, if that is still there.
  void give_back(std::uint32_t slot) noexcept;
  /// Asks the device whether the port is still known by what peers were told. False: it did not
  /// answer. System calls.
  bool look_at_identity() noexcept;
  const PortIdentity& identity() const noexcept { return identity_; }
  /// How to reach a unicast address or a group from here.
  Result<AddressHandle> reach(const RailAddress& peer);
  Result<AddressHandle> reach(const GroupRoute& route);

  /// The port is up; the device is gone for good. Set by the thread that hears the device's events,
  /// read by the driver; release and acquire, though nothing else is ordered by them.
  std::atomic<bool> up{true};
  std::atomic<bool> gone{false};
  /// GIDs or LIDs of the port may have changed: look_at_identity(). The same threads and orders.
  std::atomic<bool> renamed{false};
  /// The network may end memberships in the next moments: groups().progress(). As `renamed`.
  std::atomic<bool> regroup{false};
  /// Some queue pair of the device is in error: look_for_errors(). As `renamed`.
  std::atomic<bool> suspect{false};

 private:
  Rail() = default;
  /// How long frames may be, and how large packets of reads, under a bound that the user gave.
  Result<void> keep_within(std::uint32_t mtu);
  Result<void> open_queues(const RailSettings& settings);
  Result<void> open_completions(const RailSettings& settings, std::uint32_t send_depth);
  Result<Receiver> make_receiver();
  Receiver* find(std::uint32_t qpn) noexcept;
  int restart(Receiver& receiver) noexcept;
  /// Restarts what is in error, with a shared queue in two steps: see seen_empty().
  int bring_back(Receiver& receiver) noexcept;
  void fill(const Receiver& receiver) noexcept;
  Result<AddressHandle> make_handle(ibv_ah_attr attributes, const std::string& to);
  ReceiveQueue queue_of(const Receiver& receiver) const noexcept {
    return srq_ != nullptr ? ReceiveQueue{.srq = srq_.get()}
                           : ReceiveQueue{.qp = receiver.qp.get()};
  }

  // Destroyed last to first.
  OpenedPort opened_;
  PortIdentity identity_;
  std::uint32_t frame_bytes_ = 0;
  ibv_mtu reads_mtu_ = IBV_MTU_256;
  std::uint32_t own_depth_ = 0;
  std::uint32_t next_id_ = 1;  ///< 0 is the shared queue.
  ProtectionDomain pd_;
  CompletionChannel channel_;
  Completions completions_;
  std::unique_ptr<ReceiveSlots> slots_;
  SharedReceiveQueue srq_;
  std::unique_ptr<SendQueue> sends_;
  std::unique_ptr<ReadLinks> reads_;
  std::unique_ptr<GroupJoin> groups_;
  std::vector<Receiver> receivers_;  ///< The first one is unicast.
  std::vector<Receiver> retired_;    ///< With the shared queue only.
  std::size_t last_found_ = 0;
  std::uint32_t buffers_ = 0;
  bool broken_receivers_ = false;
  bool awaits_empty_ = false;  ///< Some receiver is stopped and not drained.
  TimePoint recovered_at_{}, recover_at_{};
  Duration pause_{};
};

}  // namespace selmcast::verbs
