// What ranks of one host share: one segment per receiver, written to by its senders.
//
//   SegmentHeader | RingControl x world | (page) ring of sender 0 | ring of sender 1 | ...
//
// Whatever lies in a segment may be changed at any time by any process that mapped it, so readers
// check every value they take from it and take it once.
//
// Memory orders. "sc" is seq_cst: each pair of sc stores and loads below forms a Dekker handshake
// (store mine, then look at yours), which needs the single total order of sc operations.
//   tail  sender stores sc after filling the record; the receiver's poll() loads acquire: the
//   record
//         is visible. The receiver about to sleep loads it sc, see `bell`.
//   head  receiver stores sc after its last read of the released bytes; the sender loads acquire
//         before it overwrites them. The sender about to sleep for room loads it sc, see
//         `room_wanted`.
//   bell  the owner stores kAsleep sc, then loads every tail (and heads it waits for) sc, then
//   sleeps.
//         A sender stores tail sc, then loads bell sc. So one of the two sees the other's store.
//   room_wanted  the sender stores kAsleep in its own bell sc, then 1 here sc, then loads head sc.
//         The receiver stores head sc, then exchanges room_wanted sc, then loads the sender's bell
//         sc: one that sees the request sees the sender asleep, too.
//   group_version  the owner changes `groups` relaxed, then adds 1 sc; senders load acquire and
//   then
//         read `groups` relaxed.
//   exports_used  the owner stores release after it filled the entries below; peers load acquire.
//   mapped  the receiver stores relaxed, the sender loads relaxed: a fact about the receiver's
//   address
//         space, which publishes nothing.
//   withdrawn  the sender stores it seq_cst, then has a seq_cst fence, then lets its memory change.
//   The
//         receiver reads that memory, then has an acquire fence, then loads it relaxed: one that
//         does not see the withdrawal read what was there before (a sequence lock).
//   state  the owner stores release; peers load acquire (nothing but the word itself is published).
//   owner  a sender takes the ring by compare-exchange acquire and gives it up by a release store:
//         the next sender of that rank sees the last tail.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace selmcast::shm {

inline constexpr std::uint64_t kSegmentMagic = 0x3130'4D48'5343'4D53;
inline constexpr std::uint32_t kSegmentVersion = 2;
inline constexpr std::uint32_t kWorldMax = 256;
inline constexpr std::uint32_t kGroupSlots = 1024;
/// Pieces of shared memory that a rank offers its peers, ever; what is sent from others is copied.
inline constexpr std::uint32_t kExportsMax = 16;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kLine = 64;

inline constexpr std::uint32_t kFrameMax = 40 + 8192;
inline constexpr std::uint32_t kRequestMax = 8 * kFrameMax;
inline constexpr std::uint32_t kRingBytes = 1U << 20U;
/// Two requests with the padding that each may need at the ring's end.
inline constexpr std::uint32_t kRingBytesMin = 1U << 18U;
inline constexpr std::uint32_t kRingBytesMax = 1U << 30U;

enum class OwnerState : std::uint32_t { open = 1, closed = 2 };

inline constexpr std::uint32_t kAwake = 0;
inline constexpr std::uint32_t kAsleep = 1;

/// Memory of the owner that peers may map, by /proc/PID/fd/FD.
struct Export {
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint64_t fd = 0;
};

struct SegmentHeader {
  // Written once before the address is given away, constant afterwards.
  std::uint64_t magic = 0;
  std::uint64_t nonce = 0;
  std::uint64_t job = 0;
  std::uint32_t version = 0;
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  std::uint32_t ring_bytes = 0;

  alignas(kLine) std::atomic<std::uint32_t> bell{kAwake};  ///< The futex the owner sleeps on.

  // One line, so that a sender's check before a post is one cache miss at most.
  alignas(kLine) std::atomic<OwnerState> state{OwnerState::open};
  std::atomic<std::uint32_t> group_version{0};
  std::atomic<std::uint32_t> groups_used{0};  ///< Slots at and beyond it are empty.

  alignas(kLine) std::atomic<std::uint32_t> exports_used{0};
  Export exports[kExportsMax] = {};  ///< Constant once counted.

  alignas(
      kLine) std::atomic<std::uint32_t> groups[kGroupSlots] = {};  ///< Joined index + 1; 0 empty.
};

struct RingControl {
  alignas(kLine) std::atomic<std::uint64_t> tail{0};  ///< Bytes ever written; by the sender.
  /// By the sender: records in place that end here or before must not be read any more.
  std::atomic<std::uint64_t> withdrawn{0};
  alignas(kLine) std::atomic<std::uint64_t> head{0};  ///< Bytes ever released; by the receiver.
  std::atomic<std::uint32_t> room_wanted{0};
  /// By the receiver: half of the nonce of the sender whose exports it mapped, then a bit for each.
  std::atomic<std::uint64_t> mapped{0};
  alignas(kLine) std::atomic<std::uint64_t> owner{0};  ///< Nonce of the sender's transport; 0 none.
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<OwnerState>::is_always_lock_free);

constexpr std::size_t round_up(std::size_t value, std::size_t to) noexcept {
  return (value + to - 1) / to * to;
}
constexpr std::size_t controls_offset() noexcept {
  return round_up(sizeof(SegmentHeader), kPage);
}
constexpr std::size_t ring_offset(std::uint32_t world, std::uint32_t ring_bytes,
                                  std::uint32_t sender) noexcept {
  return round_up(controls_offset() + world * sizeof(RingControl), kPage) +
         std::size_t{sender} * ring_bytes;
}
constexpr std::size_t segment_bytes(std::uint32_t world, std::uint32_t ring_bytes) noexcept {
  return ring_offset(world, ring_bytes, world);
}

}  // namespace selmcast::shm
