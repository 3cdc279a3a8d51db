// mix=cumulative where the transport puts frames in place: rows that are filled while their
// senders' last ones are still in use, and what fills them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "multicast/landing_queue.h"
#include "sync/engine_config.h"
#include "sync/sender_table.h"

namespace selmcast {

/// For each sender of a round that is heard through a group of which it is the only sender, a spare
/// row takes the round. When the round is complete and its digest matched, that row becomes the
/// sender's and its old one a spare. So nothing that is in use is ever written by the device, and a
/// sender that dies in mid-round changes nothing.
///
/// The driver's, all of it. Set-up calls allocate, the others do not.
class LandingRows {
 public:
  // Set-up.
  /// Registers the rows. `receives` must outlive the object, and so must
  /// the memberships that join() gives.
  static Result<std::unique_ptr<LandingRows>> make(PlacedReceives& receives,
                                                   std::shared_ptr<SenderTable> table,
                                                   const StreamShape& shape, std::uint32_t job);
  /// Spare rows for so many senders of one round, or as many as the device takes; the frames of
  /// the others are copied. Throws std::bad_alloc.
  void reserve(std::size_t senders);
  /// As PlacedReceives::join_placed(). Frames of the group then go through arrived().
  Result<Membership> join(std::uint32_t group);
  /// Of these, the ones of join() are all that are held from now on; queues of other groups are
  /// forgotten. Between rounds only.
  void keep(std::span<const EpochState::InGroup> held) noexcept;

  // Rounds.
  /// Before the round's first credit. Senders whose group is not one of join() are left out. Where
  /// most frames of a round came to a wrong place, the next one guesses none; twice as many the
  /// next time, while that has not become better.
  void open(std::uint32_t epoch, std::uint32_t round, const RoundPlan& plan) noexcept;
  /// The queue that a receive completion came through, or null.
  LandingQueue* queue_of(const Completion& completion) noexcept;
  /// False: the round of this sender is not filled here.
  bool put(Rank sender, std::uint32_t frame, std::span<const std::byte> payload) noexcept;
  /// Once per turn, when all completions were looked at.
  void refill() noexcept;
  /// Ends the round of one sender: with `whole`, what it sent is in the table now. False: the
  /// device does not give receives back, see Transport::last_error().
  bool close(Rank sender, bool whole) noexcept;

  /// Of all queues, since the object was made.
  LandingCounters counters() const noexcept;

 private:
  struct Row {
    std::span<float> memory;
    RegionId region = 0;
  };
  struct Queue {
    std::uint32_t group = 0;
    std::uint32_t tag = 0;
    std::unique_ptr<LandingQueue> landings;
    LandingCounters before;   ///< When its round was opened.
    bool guesses = true;      ///< In that round.
    std::uint32_t pause = 0;  ///< Rounds that it was left alone for the last time.
    std::uint32_t rests = 0;  ///< Of those, still to come.
  };

  LandingRows(PlacedReceives& receives, std::shared_ptr<SenderTable> table,
              const StreamShape& shape, std::uint32_t job);
  Result<Row> registered(std::span<float> memory);
  Queue* of_group(std::uint32_t group) noexcept;
  void judge(Queue& queue) const noexcept;

  PlacedReceives& receives_;
  std::shared_ptr<SenderTable> table_;  ///< Lives until nothing writes to it any more.
  StreamShape shape_;
  std::uint32_t job_;
  std::vector<Region> regions_;
  std::vector<RegionId> region_of_;  ///< Of the table's rows, by rank.
  std::vector<Row> spares_;          ///< Free ones.
  std::size_t reserved_ = 0;
  bool refused_ = false;  ///< The device takes no more rows.
  struct Open {
    LandingQueue* queue = nullptr;
    Row row;
  };
  std::vector<Open> open_;  ///< By rank.
  std::vector<Queue> queues_;
  std::uint32_t tags_ = 0;
  LandingCounters forgotten_;  ///< Of queues that are gone.
};

}  // namespace selmcast
