#include "transport/uring/receive_buffers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace selmcast::uring {
namespace {

// A buffer holds the kernel's header, room for two control messages (segment size, destination),
// and the datagrams. The sum of the first two is kept at two cache lines, so that payload starts
// on one. Whole pages per buffer: with 64 KiB strides all headers would fall into one cache set.
constexpr std::size_t kControlBytes = 128 - sizeof(io_uring_recvmsg_out);
constexpr std::size_t kStride = 17 * 4096;
constexpr std::size_t kMemoryBytes = kStride * ReceiveBuffers::kCount;
constexpr std::size_t kRingBytes = sizeof(io_uring_buf) * ReceiveBuffers::kCount;
constexpr std::size_t kLargestDatagram = 65507;
static_assert(kControlBytes >= CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in_pktinfo)));
static_assert(kStride >= 128 + kLargestDatagram);

void* map_memory(std::size_t bytes) noexcept {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

template <class T>
bool read_control(const cmsghdr* message, T& out) noexcept {
  if (message->cmsg_len < CMSG_LEN(sizeof out)) return false;
  std::memcpy(&out, CMSG_DATA(message), sizeof out);
  return true;
}

}  // namespace

Result<std::unique_ptr<ReceiveBuffers>> ReceiveBuffers::create(io_uring& ring) {
  std::unique_ptr<ReceiveBuffers> out(new ReceiveBuffers);
  out->memory_ = static_cast<std::byte*>(map_memory(kMemoryBytes));
  out->provided_ = static_cast<io_uring_buf_ring*>(map_memory(kRingBytes));
  if (out->memory_ == nullptr || out->provided_ == nullptr) {
    return unavailable("io_uring: no memory for " + std::to_string(kMemoryBytes >> 20U) +
                       " MiB of receive buffers; free some or lower the number of workers");
  }
  // Fewer page faults and TLB misses where the machine offers huge pages; all the same elsewhere.
  madvise(out->memory_, kMemoryBytes, MADV_HUGEPAGE);
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uintptr_t>(out->provided_);
  registration.ring_entries = kCount;
  registration.bgid = kGroup;
  if (const int status = io_uring_register_buf_ring(&ring, &registration, 0); status != 0) {
    return unavailable(std::string("io_uring: the kernel refuses a provided-buffer ring: ") +
                       std::strerror(-status) + "; Linux 6.0 or later is needed");
  }
  io_uring_buf_ring_init(out->provided_);
  for (std::uint32_t token = 0; token < kCount; ++token) out->provide(token);
  out->message_.msg_controllen = kControlBytes;
  return out;
}

ReceiveBuffers::~ReceiveBuffers() {
  if (memory_ != nullptr) munmap(memory_, kMemoryBytes);
  if (provided_ != nullptr) munmap(provided_, kRingBytes);
}

std::byte* ReceiveBuffers::buffer(std::uint32_t token) const noexcept {
  return memory_ + kStride * token;
}

void ReceiveBuffers::provide(std::uint32_t token) noexcept {
  io_uring_buf_ring_add(provided_, buffer(token), kStride, static_cast<unsigned short>(token),
                        io_uring_buf_ring_mask(kCount), 0);
  // liburing stores the tail with release; the kernel loads it with acquire before it reads
  // entries.
  io_uring_buf_ring_advance(provided_, 1);
}

void ReceiveBuffers::give_back(std::uint32_t token) noexcept {
  lent_[token] = 0;
  --lent_count_;
  provide(token);
}

Datagrams ReceiveBuffers::take(std::uint32_t token, std::uint32_t bytes) noexcept {
  Datagrams out;
  lent_[token] = 1;
  ++lent_count_;
  io_uring_recvmsg_out* const header =
      io_uring_recvmsg_validate(buffer(token), static_cast<int>(bytes), &message_);
  if (header == nullptr) return out;
  out.data = static_cast<const std::byte*>(io_uring_recvmsg_payload(header, &message_));
  out.bytes = io_uring_recvmsg_payload_length(header, static_cast<int>(bytes), &message_);
  out.frame_bytes = out.bytes;
  for (const cmsghdr* it = io_uring_recvmsg_cmsg_firsthdr(header, &message_); it != nullptr;
       it = io_uring_recvmsg_cmsg_nexthdr(header, &message_, const_cast<cmsghdr*>(it))) {
    if (it->cmsg_level == SOL_UDP && it->cmsg_type == UDP_GRO) {
      int segment = 0;
      if (read_control(it, segment) && segment > 0 &&
          static_cast<std::uint32_t>(segment) < out.bytes) {
        out.frame_bytes = static_cast<std::uint32_t>(segment);
      }
    } else if (it->cmsg_level == IPPROTO_IP && it->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      if (read_control(it, info)) out.destination = ntohl(info.ipi_addr.s_addr);
    }
  }
  constexpr std::uint32_t kTruncated = MSG_TRUNC | MSG_CTRUNC;
  out.whole = out.bytes > 0 && (header->flags & kTruncated) == 0;
  return out;
}

}  // namespace selmcast::uring
