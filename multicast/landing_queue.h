// Which frame comes next: receives of a group's landing queue are posted with the place that the
// frame they are guessed for has in the sender's row, and a wrong guess harms nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fixed_stack.h"
#include "multicast/frame.h"
#include "multicast/stream_shape.h"
#include "transport/transport.h"

namespace selmcast {

struct LandingCounters {
  std::uint64_t landed_frames = 0;  ///< Fresh ones whose payload came straight to its place.
  std::uint64_t landed_bytes = 0;
  std::uint64_t misplaced_frames = 0;  ///< That came to the place of another: wrong guesses.
  std::uint64_t copied_bytes = 0;      ///< By this process, after the device wrote them.
};

/// A round of the group's only sender.
struct LandingRound {
  Rank sender = 0;
  std::uint32_t epoch = 0;
  std::uint32_t round = 0;
  std::uint16_t stream = 0;
  StreamShape shape;         ///< All frames of it are sent by this sender.
  std::byte* row = nullptr;  ///< Where they go; registered as `region` with register_places().
  RegionId region = 0;
  bool guesses = true;  ///< False: no receive names a place, every frame is copied there once.
};

/// The receives of one group, in the order posted, which is the order in which frames take them.
///
/// Guess: with `expected` the frame after the last that arrived, a receive behind q others is for
/// frame expected + q. Where nothing is lost that is always so. A loss shifts all that are posted
/// by one, a frame that comes twice the other way; what is posted from then on is right again. A
/// frame that came to the place of another is copied out before anything else is done.
///
/// Safety: no place is named by two posted receives, none is named once it is filled, and while one
/// is named nothing is put there but by the device: what belongs there and came another way waits
/// in a stash. So what was put in place stays. A row must not be used otherwise before close().
///
/// Behind the last frame of a round, and between rounds, kSpare receives take what comes late; no
/// frame of the next round comes before credit is given for it, and so the guess begins with how
/// many receives are left. One thread; allocates in the constructor only.
class LandingQueue {
 public:
  static constexpr std::uint32_t kSpare = 4;

  /// `tag` (not 0) marks the queue's completions, see is_of(). `shape` is the largest round's.
  LandingQueue(PlacedReceives& receives, std::uint32_t job, std::uint32_t tag,
               const StreamShape& shape);

  /// The membership by which the queue is reached from now on; the queue itself stays.
  void set_membership(MembershipId id) noexcept { membership_ = id; }
  /// Of a receive completion: the tag of its queue; 0: of none.
  static std::uint32_t tag_of(const Completion& completion) noexcept {
    return static_cast<std::uint32_t>(completion.user >> 32U);
  }

  /// The next round; the last one is closed. Before its first credit is given.
  void open(const LandingRound& round) noexcept;
  /// The next round has no row to land in: until open(), all receives of the queue are posted and
  /// name no place.
  void open_without_row() noexcept;
  bool is_open() const noexcept { return round_.row != nullptr; }
  /// A completion of this queue, in the order polled: its frame, whole, its header checked. The
  /// payload of a frame that came in place lies there.
  ParsedFrame arrived(const Completion& completion) noexcept;
  /// Puts a fresh frame of the open round in its place, however it came. `payload` is as long as
  /// the frame; it may lie in its place already.
  void put(std::uint32_t frame, std::span<const std::byte> payload) noexcept;
  /// Posts what is due. Once per turn, after all completions that were polled.
  void refill() noexcept;
  /// Ends the round. After `whole`, the row holds every frame that was put; otherwise it is to be
  /// thrown away. Nothing writes to it any more. False: the device does not give receives back.
  bool close(bool whole) noexcept;

  std::uint32_t posted() const noexcept { return count_; }
  const LandingCounters& counters() const noexcept { return counters_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Of a frame: kFree, kNamed (by a posted receive), kFilled, or named while stash slot
  // mark - kHeld waits for it.
  using Mark = std::uint16_t;
  static constexpr Mark kFree = 0, kNamed = 1, kFilled = 2, kHeld = 3;

  struct Posted {
    std::uint32_t frame = kNone;  ///< Whose place it names.
    std::uint32_t number = 0;
  };

  Posted& at(std::uint32_t index) noexcept { return posted_[(head_ + index) % posted_.size()]; }
  std::byte* place(std::uint32_t frame) const noexcept {
    return round_.row + round_.shape.offset_of(frame);
  }
  bool is_of_round(const FrameHeader& header) const noexcept;
  std::uint32_t pop(std::uint32_t number) noexcept;
  void unname(std::uint32_t frame) noexcept;
  void copy(std::byte* to, std::span<const std::byte> from) noexcept;
  std::uint32_t guess(std::uint32_t ahead) const noexcept;
  std::uint32_t receives_due() const noexcept;
  void notice_drops() noexcept;
  void forget_posted() noexcept;

  PlacedReceives& receives_;
  std::uint32_t job_, tag_;
  MembershipId membership_ = 0;
  std::uint32_t payload_;  ///< Of a frame, at most.
  LandingRound round_;     ///< Without a row: none is open.
  bool without_row_ = false;
  std::uint32_t frames_ = 0;
  std::uint32_t expected_ = 0;  ///< Comes next if nothing is lost.
  std::vector<Mark> marks_;     ///< By frame.
  std::vector<Posted> posted_;  ///< Ring of count_ from head_.
  std::uint32_t head_ = 0, count_ = 0, number_ = 0;
  std::uint32_t named_ = 0;  ///< Of those.
  std::uint32_t drops_ = 0;  ///< Of the transport's queue, as seen last.
  std::vector<std::byte> stash_;
  FixedStack<std::uint32_t> free_stash_;
  LandingCounters counters_;
};

}  // namespace selmcast
