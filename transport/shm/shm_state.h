// The class behind open_shm(); set-up in shm_transport.cc, data path in shm_datapath.cc.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/handle_table.h"
#include "transport/request_shape.h"
#include "transport/send_ledger.h"
#include "transport/shm/shm_in_place.h"
#include "transport/shm/shm_ring.h"
#include "transport/shm/shm_segment.h"
#include "transport/transport.h"

namespace selmcast::shm {

inline constexpr std::uint32_t kSendDepth = 256;
inline constexpr std::uint32_t kReceiveSlots = 1024;
inline constexpr std::uint32_t kSlicesMax = 64;
/// How often peers are looked at: what a death costs to be noticed, at most, in poll() or wait().
inline constexpr Duration kLivenessEvery = std::chrono::milliseconds(5);

class ShmTransport final : public Transport, private ReadInPlace {
 public:
  ShmTransport(OwnSegment segment, std::uint32_t world);
  ~ShmTransport() override;

  PeerAddress address() const override { return encode_address(segment_.address); }
  Result<Region> register_memory(std::span<const std::byte> memory) override;
  Result<Endpoint> connect(const PeerAddress& peer) override;
  Result<Membership> join(GroupAddress group, JoinAs as) override;

  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override;
  PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void wait(Duration at_most) noexcept override;
  void wake() noexcept override;
  void withdraw(EndpointId peer) noexcept override;

  TransportCounters counters() const noexcept override { return counters_; }
  std::string last_error() const override;

 protected:
  void release(detail::HandleKind kind, std::uint32_t id) noexcept override;

 private:
  enum class PeerState : std::uint8_t { open, closed, dying, lost };
  struct Peer {
    SegmentAddress address;
    PeerSegment segment;
    RingProducer ring;
    EndpointId id = 0;
    Rank rank = 0;
    PeerState state = PeerState::open;
    bool touched = false;        ///< Its bell is due at the end of the post.
    std::uint32_t room_for = 0;  ///< Bytes of the request that found no room; valid with `blocked`.
    bool blocked = false;
  };
  /// What a membership remembers of one peer, so that a post costs one load per peer.
  struct MemberCache {
    std::uint32_t version = 0;
    bool known = false;
    bool member = false;
  };
  struct GroupUse {
    std::uint32_t group = 0;
    JoinAs as = JoinAs::receiver;
    std::vector<MemberCache> peers;  ///< By rank.
  };
  struct JoinedGroup {
    std::uint32_t group = 0;
    std::uint32_t uses = 0;  ///< 0: the slot is free.
  };
  enum class Admission : std::uint8_t { sent, refused, no_room };
  /// A request on its way into rings.
  struct Outgoing {
    const SendRequest& request;
    RequestShape shape;
    std::uint32_t group = 0;           ///< Index + 1; 0 for one peer.
    std::optional<PlaceHeader> place;  ///< For peers that have mapped it.
  };

  // shm_transport.cc
  void publish(std::uint32_t slot) noexcept;
  Result<std::uint32_t> slot_for(std::uint32_t group);
  void leave(const GroupUse& use) noexcept;
  void disconnect(Peer& peer) noexcept;

  // shm_datapath.cc
  Admission admit(const SendRequest& request, Status& status) noexcept;
  Status find_targets(const Destination& to) noexcept;
  bool is_member(GroupUse& use, const Peer& peer) const noexcept;
  bool reads_in_place(const Outgoing& out, const Peer& peer) const noexcept;
  bool room_at_all_targets(const Outgoing& out) noexcept;
  void put_into(Peer& peer, const Outgoing& out) noexcept;
  std::size_t take_losses(std::span<Completion> out) noexcept;
  std::size_t take_receives(std::span<Completion> out) noexcept;
  bool take_one(Rank sender, Completion& out) noexcept;
  void lost_its_mind(Rank sender) noexcept;
  bool joined(std::uint32_t group) const noexcept;
  void offer_room(Rank sender) noexcept;
  void give_up(Peer& peer) noexcept;
  void look_at_peers(TimePoint now) noexcept;
  bool work_before_sleep() noexcept;

  SteadyClock clock_;
  OwnSegment segment_;
  TransportCounters counters_;

  HandleTable<RegisteredMemory> regions_;
  HandleTable<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> connected_;  ///< Those of peers_.
  std::vector<pollfd> pidfds_;    ///< Parallel to connected_.
  std::vector<Peer*> peer_of_rank_;
  HandleTable<GroupUse> uses_;
  std::vector<JoinedGroup> joined_;  ///< By slot of the segment header.

  std::vector<RingConsumer> rings_;  ///< By sender's rank.
  LentRecords lent_;
  Imports imports_;
  std::vector<std::uint8_t> lent_in_place_;  ///< By token of lent_: whether it is in place.
  std::vector<Peer*> targets_;  ///< Of the request being posted; capacity reserved at set-up.

  SendLedger<SendEntry> sends_{kSendDepth};  ///< All of them finished.

  Rank next_ring_ = 0;  ///< Where the next poll starts: no sender starves another.
  std::uint32_t dying_ = 0;
  std::uint32_t blocked_ = 0;
  Rank last_lost_ = 0;
  const char* last_loss_ = nullptr;  ///< Why; null when none was lost.
  TimePoint look_again_{};
  std::atomic<bool> woken_{false};
};

}  // namespace selmcast::shm
