// The class behind open_verbs(). Set-up is in verbs_transport.cc, the data path in
// verbs_datapath.cc, reading in verbs_reads.cc, pacing by devices in verbs_pacing.cc, what becomes
// of ports and groups that the network calls otherwise in verbs_identity.cc.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "transport/handle_table.h"
#include "transport/request_shape.h"
#include "transport/send_ledger.h"
#include "transport/verbs/async_events.h"
#include "transport/verbs/rail.h"
#include "transport/verbs/verbs_transport.h"
#include "transport/wake_event.h"

namespace selmcast::verbs {

inline constexpr std::uint32_t kRequestDepth = 64;
inline constexpr std::uint32_t kRequestFrames = 16;  ///< Frames of one request, at most.
inline constexpr std::uint32_t kRequestSlices = 2 * kRequestFrames;  ///< Header and payload each.
inline constexpr std::size_t kBatch = 32;                            ///< Completions taken at once.
inline constexpr std::uint32_t kBuffers = 2048;  ///< Receive buffers of a device.
/// A receive's token: its device and its buffer.
inline constexpr std::uint32_t kTokenRailShift = 24;

class VerbsTransport final : public Transport,
                             private RemoteReads,
                             private Pacing,
                             private Timestamps {
 public:
  static Result<std::unique_ptr<Transport>> open(const TransportConfig& config);
  ~VerbsTransport() override;

  PeerAddress address() const override;
  Result<Region> register_memory(std::span<const std::byte> memory) override {
    return register_for(memory, 0);  // no flag is local read
  }
  Result<Endpoint> connect(const PeerAddress& peer) override;
  Result<Membership> join(GroupAddress group, JoinAs as) override;

  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override;
  PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void wait(Duration at_most) noexcept override;
  void wake() noexcept override;

  TransportCounters counters() const noexcept override { return counters_; }
  std::string last_error() const override;
  std::vector<std::string> notices() const override;

 private:
  // RemoteReads.
  Result<Region> register_readable(std::span<const std::byte> memory) override {
    return register_for(memory, IBV_ACCESS_REMOTE_READ);
  }
  Result<Region> register_target(std::span<std::byte> memory) override {
    // What was read is looked at after its completion, which the device writes in order. Memory
    // that peers read is not relaxed: a tag must not be read before the data that it stands for.
    return register_for(memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  }
  RemoteMemory remote_memory(RegionId region, const std::byte* at) const noexcept override;
  bool can_read(EndpointId peer) noexcept override;
  PostOutcome post_reads(std::span<const ReadRequest> requests) noexcept override;
  // Pacing.
  bool limit_rate(Kbps total) noexcept override;
  // Timestamps.
  std::uint64_t arrival_ns(const Completion& receive) const noexcept override;

 protected:
  void release(detail::HandleKind kind, std::uint32_t id) noexcept override;

 private:
  struct RegionEntry {
    std::span<const std::byte> memory;
    std::array<MemoryRegion, kRailsMax> keys;  ///< By rail.
  };
  struct Target {
    std::array<AddressHandle, kRailsMax> handles;
    std::array<std::uint32_t, kRailsMax> qpn{};
    // Retired: the last that may use it.
    std::array<std::uint64_t, kRailsMax> last_frame{}, last_message{};
  };
  struct GroupMember {
    Target target;
    std::uint32_t index = 0;
    JoinAs as = JoinAs::send_only;
  };
  struct Request : SendEntry {
    std::uint64_t end = 0;  ///< Number of its last frame on that rail.
    RequestShape shape;
    std::uint32_t rail = 0;
    bool sent = false;  ///< False: nothing of it was given to a device.
  };
  /// A posted read, by the low byte of its number; the rest of the number tells its users apart.
  struct Read {
    std::uint64_t user = 0;
    EndpointId peer = 0;
    std::uint32_t rail = 0;
    std::uint32_t number = 0;
    bool pending = false;
    bool refused = false;  ///< It names no memory of ours: nothing was posted.
  };
  /// The latest failure; kept as numbers since the data path does not format text.
  struct Failure {
    enum class During : std::uint8_t {
      none,
      send,
      receive,
      post,
      revive,
      regroup
    } during = During::none;
    int error = 0;  ///< An errno, or an ibv_wc_status of send and receive.
    std::uint32_t rail = 0;
    std::uint32_t qpn = 0;
  };

  explicit VerbsTransport(std::uint64_t job) noexcept : job_(job) {}

  // Set-up.
  Result<Region> register_for(std::span<const std::byte> memory, int access);
  Result<void> open_rails(const TransportConfig& config);
  void describe();
  void note_missing(const TransportConfig& config);
  std::uint64_t rail_job(std::size_t rail) const noexcept;
  Result<void> become_member(std::uint32_t index);
  Result<void> reach_group(std::uint32_t index, Target& target);
  void unroute(std::uint32_t index) noexcept;
  void leave(std::uint32_t index) noexcept;
  /// The device may still send to it: destroyed later.
  void retire(Target target) noexcept;

  // Data path.
  const std::span<const std::byte>* memory_of(RegionId id) const noexcept {
    const RegionEntry* const region = regions_.find(id);
    return region == nullptr ? nullptr : &region->memory;
  }
  const Target* target_of(const Destination& destination) const noexcept;
  bool usable(const Rail& rail) const noexcept;
  Rail* next_rail(std::uint32_t& index) noexcept;
  bool post(const SendRequest& request, const Target& target, Request& entry) noexcept;
  Status add_frames(const SendRequest& request, const Target& target, Request& entry) noexcept;
  void ring_all() noexcept;
  bool finished(const Request& entry) const noexcept;
  std::size_t finished_sends(std::span<Completion> out) noexcept;
  std::size_t reap(std::uint32_t rail, std::span<Completion> out) noexcept;
  bool handle(std::uint32_t rail, const ibv_wc& entry, Completion& out) noexcept;
  bool received(std::uint32_t rail, const ibv_wc& entry, Completion& out) noexcept;
  void sends_failed(std::uint32_t rail, std::uint64_t from) noexcept;
  void note_arrival(const Completion& completion, std::uint64_t device_ns) noexcept;
  std::size_t take_stash(std::span<Completion> out) noexcept;
  Rail* readable_rail(EndpointId peer, std::uint32_t& index) noexcept;
  bool post_read(const ReadRequest& request) noexcept;
  bool read_ended(std::uint32_t rail, const ibv_wc& entry, Completion& out) noexcept;
  std::size_t lost_reads(std::span<Completion> out) noexcept;
  /// Of a device that is gone: what it held has failed.
  void give_up(std::uint32_t rail) noexcept;
  void check_health() noexcept;
  void look_again(std::uint32_t rail, TimePoint now) noexcept;
  void look_at_groups(std::uint32_t rail, TimePoint now) noexcept;
  int follow(std::uint32_t rail, const GroupJoin::Moved& moved) noexcept;
  /// False of a port that has been known by another name for a while.
  bool may_work(const Rail& rail) const noexcept;
  void check_receivers() noexcept;
  void drop_retired() noexcept;
  bool arm_and_look(bool& armed) noexcept;

  const std::uint64_t job_;
  std::vector<std::unique_ptr<Rail>> rails_;
  UniqueFd wake_fd_;
  std::unique_ptr<AsyncEvents> events_;  ///< Destroyed before what it watches and wakes.

  HandleTable<RegionEntry> regions_;  ///< Destroyed before the devices it is registered with.
  HandleTable<Target> endpoints_;
  HandleTable<GroupMember> members_;
  std::vector<Target> retired_;
  std::map<std::uint32_t, std::uint32_t> joined_;  ///< Memberships as receiver, by group index.

  SendLedger<Request> requests_{kRequestDepth};
  std::uint32_t rail_turn_ = 0;
  std::vector<Read> reads_;
  std::uint32_t reads_pending_ = 0;
  std::uint32_t reads_posted_ = 0;  ///< Ever.

  /// By buffer: when the device took in what it holds; empty without Timestamps.
  std::vector<std::uint64_t> arrivals_;
  struct Stashed {
    std::uint32_t rail = 0;
    ibv_wc entry{};
    std::uint64_t device_ns = 0;
  };
  /// Completions that wait() found and poll() has yet to handle.
  std::vector<Stashed> stash_;
  std::size_t stash_filled_ = 0, stash_taken_ = 0;
  /// Frames received when it was looked last whether the receivers work, and when that was.
  std::uint64_t frames_at_look_ = 0;
  TimePoint looked_at_{};
  std::uint32_t quiet_polls_ = 0;
  bool broken_ = false;
  TimePoint renamed_at_{};  ///< When a port was last found to be known by another name.
  /// Of each rail: when a device that did not answer is asked again.
  struct IdentityLook {
    TimePoint next{};
    Duration pause{};
  };
  std::array<IdentityLook, kRailsMax> identity_looks_{};
  /// Of each rail whose groups may end: when that is looked at next, and until when. Zero: not now.
  struct GroupLook {
    TimePoint next{}, until{};
  };
  std::array<GroupLook, kRailsMax> group_looks_{};
  Failure failure_;
  std::vector<std::string> missing_;  ///< Notices of what was asked for and is not there.
  TransportCounters counters_;
};

}  // namespace selmcast::verbs
