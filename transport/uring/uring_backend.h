// The class behind open_uring(). Set-up is in uring_transport.cc, the data path in
// uring_datapath.cc.
#pragma once

#include <liburing.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/config.h"
#include "transport/handle_table.h"
#include "transport/request_shape.h"
#include "transport/send_ledger.h"
#include "transport/transport.h"
#include "transport/uring/network_interface.h"
#include "transport/uring/receive_buffers.h"
#include "transport/uring/udp_address.h"
#include "transport/uring/udp_socket.h"
#include "transport/wake_event.h"

namespace selmcast::uring {

inline constexpr std::uint32_t kSendDepth = 64;
inline constexpr std::uint32_t kSegmentsMax = 64;  ///< UDP_MAX_SEGMENTS of kernels before 6.9.
inline constexpr std::uint32_t kDatagramMax = 65507;
inline constexpr std::uint32_t kSlicesMax = 2 * kSegmentsMax;  ///< A header and a payload a frame.

/// One posted request until its completion is handed out. Holds all that sendmsg points to, so
/// that posting copies descriptors only, never payload.
struct SendSlot : SendEntry {
  msghdr message{};
  sockaddr_in to{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> control{};
  std::array<iovec, kSlicesMax> parts{};
  RequestShape shape;
  std::uint32_t attempts = 0;
  bool done = false;
};

/// A socket that receives; the first one (index 0) is also the one that sends.
struct ReceiveSocket {
  UniqueFd fd;
  std::uint32_t memberships = 0;
  bool armed = false;  ///< A multishot recvmsg is submitted and has not ended.
};

struct GroupMember {
  UdpTarget target;
  std::uint32_t index = 0;
  JoinAs as = JoinAs::send_only;
};

/// Where a joined group is heard, and how many memberships of this transport share it.
struct JoinedGroup {
  std::size_t socket = 0;
  std::uint32_t users = 0;
};

class UringTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> open(const TransportConfig& config);
  ~UringTransport() override;

  PeerAddress address() const override;
  Result<Region> register_memory(std::span<const std::byte> memory) override;
  Result<Endpoint> connect(const PeerAddress& peer) override;
  Result<Membership> join(GroupAddress group, JoinAs as) override;

  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override;
  PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void wait(Duration at_most) noexcept override;
  void wake() noexcept override;

  TransportCounters counters() const noexcept override;
  std::string last_error() const override;

 protected:
  void release(detail::HandleKind kind, std::uint32_t id) noexcept override;

 private:
  /// What the kernel refused last; kept as numbers since the data path does not format text.
  struct Failure {
    int error = 0;
    enum class During : std::uint8_t { none, send, receive, submit } during = During::none;
    UdpTarget to{};
    std::uint32_t bytes = 0;
    std::uint32_t frame_bytes = 0;
  };

  explicit UringTransport(std::uint64_t job) noexcept : job_(job) {}

  // Set-up.
  Result<void> open_ring();
  Result<void> open_sockets();
  void describe(const TransportConfig& config);
  Result<std::size_t> socket_with_room();
  Result<void> become_member(std::uint32_t index, const UdpTarget& target);
  void leave(std::uint32_t index, const UdpTarget& target) noexcept;
  bool is_member(std::uint32_t ipv4) const noexcept;

  // Data path.
  void adopt_thread() noexcept;
  io_uring_sqe* next_entry() noexcept;
  void submit() noexcept;
  void arm() noexcept;
  Status prepare(const SendRequest& request, SendSlot& slot) noexcept;
  bool submit_slot(std::uint32_t place) noexcept;
  void keep_going() noexcept;
  std::size_t finished_sends(std::span<Completion> out) noexcept;
  std::size_t reap(std::span<Completion> out) noexcept;
  void send_ended(std::uint32_t place, int result) noexcept;
  bool receive_ended(std::size_t socket, const io_uring_cqe& entry, Completion& out) noexcept;
  bool deliver(std::size_t socket, std::uint32_t token, std::uint32_t bytes,
               Completion& out) noexcept;
  void take_wake_entry() noexcept;
  void break_down(int error) noexcept;

  const std::uint64_t job_;
  NetworkInterface interface_;
  std::uint16_t port_ = 0;
  std::uint32_t memberships_per_socket_ = 20;

  // Destroyed last to first: the ring goes (in the destructor) before what it points to.
  std::unique_ptr<ReceiveBuffers> buffers_;
  std::vector<ReceiveSocket> sockets_;
  UniqueFd wake_fd_;
  std::uint64_t wake_count_ = 0;  ///< The kernel writes the wake-up counter here.
  io_uring ring_{};
  bool ring_open_ = false;

  HandleTable<std::span<const std::byte>> regions_;
  HandleTable<UdpTarget> endpoints_;
  HandleTable<GroupMember> members_;
  std::map<std::uint32_t, JoinedGroup> joined_;
  std::vector<std::uint64_t> joined_bits_;  ///< Bit i: group i is in joined_; read per completion.

  SendLedger<SendSlot> sends_{kSendDepth};
  std::uint64_t retry_ = 0;  ///< Bit i: what lies in place i is to be submitted again.

  pthread_t driver_{};
  bool driven_ = false;
  bool wake_armed_ = false;
  bool woken_ = false;
  bool unarmed_ = true;  ///< Some socket or the wake-up counter may need arming.
  bool broken_ = false;
  std::uint32_t receive_failures_ = 0;  ///< In a row.
  Failure failure_;
  TransportCounters counters_;
};

}  // namespace selmcast::uring
