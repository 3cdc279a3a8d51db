// The memory that datagrams arrive in, lent to the kernel through a provided-buffer ring.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"

namespace selmcast::uring {

/// What one completion of a multishot recvmsg delivered.
struct Datagrams {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t frame_bytes = 0;  ///< Size of every frame but the last; equals bytes for one frame.
  std::uint32_t destination = 0;  ///< IPv4 address it was sent to, host order; 0 if not told.
  bool whole = false;             ///< False for what is malformed, empty or truncated: drop it.
};

/// A fixed number of buffers, each of which holds the largest UDP datagram. A buffer belongs to the
/// kernel, or to whom it was lent by a completion until give_back(). Must outlive the ring it is
/// registered with. One thread.
class ReceiveBuffers {
 public:
  static constexpr std::uint32_t kCount = 128;  ///< A power of two, as the kernel demands.
  static constexpr std::uint16_t kGroup = 0;    ///< Buffer group id for submissions.

  /// Allocates and registers with `ring`. Error unavailable on kernels without buffer rings.
  static Result<std::unique_ptr<ReceiveBuffers>> create(io_uring& ring);
  ReceiveBuffers(const ReceiveBuffers&) = delete;
  ReceiveBuffers& operator=(const ReceiveBuffers&) = delete;
  ~ReceiveBuffers();

  /// The message header that every multishot recvmsg of this memory is submitted with.
  msghdr* message() noexcept { return &message_; }

  /// Marks `token` as lent and reads what the kernel put in it (`bytes` is the completion's
  /// result).
  Datagrams take(std::uint32_t token, std::uint32_t bytes) noexcept;

  /// Whether `token` is lent and may be given back.
  bool is_lent(std::uint32_t token) const noexcept { return token < kCount && lent_[token] != 0; }

  /// Returns a lent buffer to the kernel.
  void give_back(std::uint32_t token) noexcept;

  /// Buffers not lent by take(); the kernel may have filled some of them already.
  std::uint32_t free_buffers() const noexcept { return kCount - lent_count_; }

 private:
  ReceiveBuffers() = default;
  std::byte* buffer(std::uint32_t token) const noexcept;
  void provide(std::uint32_t token) noexcept;

  io_uring_buf_ring* provided_ = nullptr;
  std::byte* memory_ = nullptr;
  msghdr message_{};
  std::vector<std::uint8_t> lent_ = std::vector<std::uint8_t>(kCount);
  std::uint32_t lent_count_ = 0;
};

}  // namespace selmcast::uring
