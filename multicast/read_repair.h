// Repair by reading: missing frames are fetched from the sender's memory, whose processor takes no
// part in it. What is fetched comes out as data frames for the session that misses them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "multicast/frame.h"
#include "multicast/frame_port.h"
#include "multicast/snapshot.h"
#include "multicast/stream_shape.h"

namespace selmcast {

/// Which frames are wanted, of whose round.
struct RepairRead {
  Rank from = 0;
  std::uint32_t epoch = 0;
  std::uint32_t round = 0;
  std::uint16_t stream = 0;
  StreamShape shape;  ///< Of the round.
  SnapshotLocation location;
};

/// One thread. Allocates in make() only. A batch is some reads of data and one of the tag after
/// them; its frames are handed out when all came and the tag is the round's.
class ReadRepair {
 public:
  static constexpr std::uint32_t kBatches = 4;
  static constexpr std::uint32_t kBatchFrames = 32;
  static constexpr std::uint32_t kBatchReads = 8;  ///< Of data.

  /// Null where the transport has no reads. `frame_payload`: of all streams.
  static Result<std::unique_ptr<ReadRepair>> make(FramePort& port, std::uint32_t frame_payload);

  /// Whether frames of that sender can be read now; false has the way to it made.
  bool ready(Rank from) noexcept { return reads_.can_read(port_.destination(from).id); }
  /// Starts to fetch frames of `gaps` (ascending, within the round), as many as a batch holds.
  /// Returns how many; 0 when no batch is free or the transport takes none.
  std::uint32_t fetch(const RepairRead& what, std::span<const NackRange> gaps) noexcept;

  /// A completion of kind read.
  void on_completion(const Completion& completion) noexcept;

  /// Calls take(const ParsedFrame&) for every frame that came in since, then frees their batches.
  template <class Take>
  void deliver(Take take) noexcept {
    for (Batch& batch : batches_) {
      if (batch.state != Batch::State::whole) continue;
      for (std::uint32_t f = 0; f < batch.frames; ++f) take(frame_of(batch, f));
      batch.state = Batch::State::free;
    }
  }

  /// Batches that came to nothing: a read failed, or the sender had gone on.
  std::uint64_t failed_batches() const noexcept { return failed_; }

 private:
  struct Batch {
    enum class State : std::uint8_t { free, reading, whole } state = State::free;
    RepairRead what;
    std::array<std::uint32_t, kBatchFrames> frame{};
    std::uint32_t frames = 0;
    std::uint32_t pending = 0;  ///< Reads posted and not completed.
    bool failed = false;
  };

  ReadRepair(FramePort& port, RemoteReads& reads, std::uint32_t frame_payload);
  std::size_t batch_bytes() const noexcept {
    return kTagBytes + std::size_t{kBatchFrames} * frame_payload_;
  }
  std::byte* memory_of(std::size_t batch) noexcept { return arena_.data() + batch * batch_bytes(); }
  bool post(std::size_t at, const RemoteMemory& from, std::byte* into,
            std::uint32_t bytes) noexcept;
  void finish(std::size_t at) noexcept;
  ParsedFrame frame_of(Batch& batch, std::uint32_t index) noexcept;

  static constexpr std::size_t kTagBytes = 64;  ///< Keeps the frames aligned.

  FramePort& port_;
  RemoteReads& reads_;
  std::uint32_t frame_payload_;
  Arena arena_;  ///< Of each batch: the tag, then its frames.
  Region region_;
  std::array<Batch, kBatches> batches_;
  std::uint64_t failed_ = 0;
};

}  // namespace selmcast
