#include "transport/uring/uring_transport.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "transport/uring/uring_backend.h"

namespace selmcast::uring {
namespace {

constexpr std::uint32_t kIpUdpHeaders = 20 + 8;
constexpr std::uint32_t kEthernetHeader = 14;
constexpr std::uint32_t kMtuMost = 9000;  // what hosts with jumbo frames agree on
constexpr std::uint32_t kMtuLeast = 576;  // RFC 791: every host takes that much

// Room for every send, every receive buffer and the odd end of a receive: never overflows.
constexpr unsigned kSubmissionEntries = 256;
constexpr unsigned kCompletionEntries = 4096;

// The kernel charges a datagram's buffer and its own structures against the receive buffer. The
// worst case over frames of 1 KiB and more (drivers that give a page to each) is about 3 to 1.
constexpr std::uint64_t kBookkeepingFactor = 3;

// A switch forwards a group to a port only once it has seen the membership report, which Linux
// sends within a few timer ticks of the join and repeats within a second (RFC 3376 section 8.11);
// see README.md for what was measured.
constexpr Duration kJoinSettle = std::chrono::milliseconds(100);

// COOP_TASKRUN: no interrupt of a computing thread for every datagram. TASKRUN_FLAG: poll() learns
// without a system call whether entering the kernel would yield anything. Not SINGLE_ISSUER with
// DEFER_TASKRUN: it binds the ring to one thread for ever and measured no faster (README.md).
constexpr unsigned kRingFlags = IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN |
                                IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CLAMP |
                                IORING_SETUP_SUBMIT_ALL;

Error ring_refused(int error) {
  const std::string text = std::string("io_uring cannot be set up: ") + std::strerror(error);
  if (error == EPERM || error == EACCES) {
    return unavailable(text +
                       "; the system forbids it: sysctl kernel.io_uring_disabled=0, or allow the "
                       "io_uring system calls in the container's seccomp profile");
  }
  if (error == ENOSYS || error == EINVAL) {
    return unavailable(text + "; Linux 6.0 or later built with io_uring is needed");
  }
  if (error == EMFILE || error == ENFILE) {
    return unavailable(text + "; raise the limit of open files (ulimit -n)");
  }
  if (error == ENOMEM) {
    return unavailable(text + "; free memory or raise the locked-memory limit (ulimit -l)");
  }
  return failed(text);
}

}  // namespace

Result<std::unique_ptr<Transport>> UringTransport::open(const TransportConfig& config) {
  if (config.mtu != 0 && config.mtu < kMtuLeast) {
    return bad_input("mtu " + std::to_string(config.mtu) + ": must be 0 (the interface's) or at " +
                     "least " + std::to_string(kMtuLeast));
  }
  auto interface = find_interface(config.interface, config.ipv4);
  if (!interface) return interface.error();
  std::unique_ptr<UringTransport> out(new UringTransport(config.job));
  out->interface_ = *interface;
  if (auto state = out->open_ring(); !state) return state.error();
  if (auto state = out->open_sockets(); !state) return state.error();
  out->describe(config);
  return std::unique_ptr<Transport>(std::move(out));
}

Result<void> UringTransport::open_ring() {
  io_uring_params parameters{};
  parameters.flags = kRingFlags;
  parameters.cq_entries = kCompletionEntries;
  const int status = io_uring_queue_init_params(kSubmissionEntries, &ring_, &parameters);
  if (status != 0) return ring_refused(-status);
  ring_open_ = true;

  // Multishot recvmsg has no feature bit of its own; it came with this operation.
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
  const bool recent = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_SEND_ZC) != 0;
  io_uring_free_probe(probe);
  if (!recent || (parameters.features & IORING_FEAT_EXT_ARG) == 0) return ring_refused(ENOSYS);

  auto buffers = ReceiveBuffers::create(ring_);
  if (!buffers) return buffers.error();
  buffers_ = std::move(*buffers);
  return {};
}

Result<void> UringTransport::open_sockets() {
  auto unicast = open_unicast_socket(interface_);
  if (!unicast) return unicast.error();
  const auto port = bound_port(unicast->get());
  if (!port) return port.error();
  port_ = *port;
  sockets_.push_back({.fd = std::move(*unicast)});

  auto wake = make_wake_event(true);
  if (!wake) return wake.error();
  wake_fd_ = std::move(wake).value();
  memberships_per_socket_ = memberships_per_socket();
  joined_bits_.resize(kGroupsPerJob / 64);
  return {};
}

void UringTransport::describe(const TransportConfig& config) {
  std::uint32_t mtu = std::min(interface_.mtu, kMtuMost);
  if (config.mtu != 0) mtu = std::min(mtu, config.mtu);
  capabilities_.name = "uring";
  capabilities_.max_frame_bytes = mtu - kIpUdpHeaders;
  capabilities_.max_request_bytes =
      std::min(kDatagramMax, kSegmentsMax * capabilities_.max_frame_bytes);
  capabilities_.max_request_slices = kSlicesMax;
  capabilities_.max_request_frames = kSegmentsMax;
  capabilities_.send_depth = kSendDepth;
  capabilities_.receive_buffers = ReceiveBuffers::kCount;
  capabilities_.wire_overhead_bytes = kIpUdpHeaders + kEthernetHeader;
  capabilities_.receive_window_bytes =
      granted_receive_buffer(sockets_.front().fd.get()) / kBookkeepingFactor;
  capabilities_.join_settle = interface_.loopback ? Duration{} : kJoinSettle;
  capabilities_.replicates_in_network = true;
  capabilities_.loses_frames = true;
}

UringTransport::~UringTransport() {
  if (!ring_open_) return;
  // The kernel tears a closed ring down later, on its own; what still points into our memory must
  // have ended before that memory goes.
  io_uring_sync_cancel_reg cancel{};
  cancel.fd = -1;
  cancel.flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
  cancel.timeout.tv_sec = 1;
  cancel.timeout.tv_nsec = 0;
  io_uring_register_sync_cancel(&ring_, &cancel);
  io_uring_queue_exit(&ring_);
}

PeerAddress UringTransport::address() const {
  return encode_peer({.ipv4 = interface_.ipv4, .port = port_});
}

Result<Region> UringTransport::register_memory(std::span<const std::byte> memory) {
  if (memory.data() == nullptr || memory.empty()) {
    return bad_input("register_memory: the range is empty");
  }
  return hand_out<detail::HandleKind::region>(*this, regions_, memory);
}

Result<Endpoint> UringTransport::connect(const PeerAddress& peer) {
  auto target = decode_peer(peer);
  if (!target) return target.error();
  return hand_out<detail::HandleKind::endpoint>(*this, endpoints_, *target);
}

Result<Membership> UringTransport::join(GroupAddress group, JoinAs as) {
  const auto target = group_target(job_, group.index);
  if (!target) {
    return bad_input("join: group " + std::to_string(group.index) + ": must be below " +
                     std::to_string(kGroupsPerJob));
  }
  if (as == JoinAs::receiver) {
    if (auto state = become_member(group.index, *target); !state) return state.error();
  }
  auto out = hand_out<detail::HandleKind::membership>(
      *this, members_, GroupMember{.target = *target, .index = group.index, .as = as});
  if (!out && as == JoinAs::receiver) leave(group.index, *target);
  return out;
}

Result<std::size_t> UringTransport::socket_with_room() {
  for (std::size_t i = 1; i < sockets_.size(); ++i) {
    if (sockets_[i].memberships < memberships_per_socket_) return i;
  }
  const auto target = group_target(job_, 0);
  auto opened = open_group_socket(target->port);
  if (!opened) return opened.error();
  sockets_.push_back({.fd = std::move(*opened)});
  unarmed_ = true;
  return sockets_.size() - 1;
}

Result<void> UringTransport::become_member(std::uint32_t index, const UdpTarget& target) {
  if (const auto known = joined_.find(index); known != joined_.end()) {
    ++known->second.users;
    return {};
  }
  const auto at = socket_with_room();
  if (!at) return at.error();
  ReceiveSocket& socket = sockets_[*at];
  const int error = change_membership(socket.fd.get(), target.ipv4, interface_, true);
  if (error != 0) {
    return failed("join: group " + std::to_string(index) + " on " + interface_.name + ": " +
                  std::strerror(error) +
                  (error == ENOBUFS ? "; raise net.ipv4.igmp_max_memberships" : ""));
  }
  ++socket.memberships;
  joined_.emplace(index, JoinedGroup{.socket = *at, .users = 1});
  joined_bits_[index / 64] |= std::uint64_t{1} << (index % 64);
  return {};
}

void UringTransport::leave(std::uint32_t index, const UdpTarget& target) noexcept {
  const auto known = joined_.find(index);
  if (known == joined_.end() || --known->second.users != 0) return;
  ReceiveSocket& socket = sockets_[known->second.socket];
  change_membership(socket.fd.get(), target.ipv4, interface_, false);
  --socket.memberships;
  // What the socket still holds of this group is filtered by destination from here on.
  joined_bits_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
  joined_.erase(known);
}

void UringTransport::release(detail::HandleKind kind, std::uint32_t id) noexcept {
  switch (kind) {
    case detail::HandleKind::region:
      regions_.erase(id);
      return;
    case detail::HandleKind::endpoint:
      endpoints_.erase(id);
      return;
    case detail::HandleKind::membership:
      const auto member = members_.erase(id);
      if (member && member->as == JoinAs::receiver) leave(member->index, member->target);
      return;
  }
}

TransportCounters UringTransport::counters() const noexcept {
  TransportCounters out = counters_;
  for (const ReceiveSocket& socket : sockets_) out.dropped_frames += socket_drops(socket.fd.get());
  return out;
}

std::string UringTransport::last_error() const {
  if (failure_.during == Failure::During::none) return {};
  const std::string reason = std::strerror(failure_.error);
  if (failure_.during == Failure::During::submit) return "io_uring: submission refused: " + reason;
  if (failure_.during == Failure::During::receive) {
    return "io_uring: receiving on " + interface_.name + " failed: " + reason +
           (failure_.error == EINVAL ? "; Linux 6.0 or later is needed" : "");
  }
  std::array<char, INET_ADDRSTRLEN> host{};
  const in_addr address{.s_addr = htonl(failure_.to.ipv4)};
  inet_ntop(AF_INET, &address, host.data(), host.size());
  std::string out = "UDP send of " + std::to_string(failure_.bytes) + " bytes in frames of " +
                    std::to_string(failure_.frame_bytes) + " from " + interface_.name + " to " +
                    host.data() + ":" + std::to_string(failure_.to.port) + " failed: " + reason;
  switch (failure_.error) {
    case EMSGSIZE:
    case EINVAL:
      return out + "; a link on the way carries smaller packets: set a smaller mtu";
    case EIO:
      return out + "; the device cannot segment: ethtool -K " + interface_.name + " tx on";
    case ENETUNREACH:
    case EHOSTUNREACH:
      return out + "; check the route: ip route get " + host.data();
    case EPERM:
      return out + "; a firewall rule of this host drops it: nft list ruleset";
    default:
      return out;
  }
}

}  // namespace selmcast::uring

namespace selmcast {

Result<std::unique_ptr<Transport>> open_uring(const TransportConfig& config) {
  return uring::UringTransport::open(config);
}

}  // namespace selmcast
