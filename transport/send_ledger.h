// Requests from their post until their completion is handed out, in the order posted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/requests.h"

namespace selmcast {

/// What every backend keeps of a request; backends derive their entries from it.
struct SendEntry {
  std::uint64_t user = 0;
  Status status = Status::ok;
};

/// A ring of at most `depth` requests. A backend fills next(), calls post() when the request is
/// taken, and hands completions out from the oldest on, so that each request has exactly one and
/// they keep the order of the posts. One thread; allocates when constructed only.
template <class Entry>
class SendLedger {
 public:
  explicit SendLedger(std::uint32_t depth)
      : depth_(depth), mask_(std::bit_ceil(depth) - 1), entries_(std::bit_ceil(depth)) {}

  bool full() const noexcept { return posted_ - completed_ == depth_; }
  bool empty() const noexcept { return posted_ == completed_; }
  /// How many were posted, ever; the request posted n-th is number n - 1.
  std::uint64_t posted() const noexcept { return posted_; }

  /// The place of the next request; holds an earlier, used-up entry. Needs !full().
  Entry& next() noexcept { return numbered(posted_); }
  /// Takes the request that next() describes.
  void post() noexcept { ++posted_; }
  /// A request that is posted and not completed.
  Entry& numbered(std::uint64_t number) noexcept { return entries_[number & mask_]; }
  /// Where next() lies: below the least power of two that is not below the depth.
  std::uint32_t next_place() const noexcept { return static_cast<std::uint32_t>(posted_ & mask_); }
  Entry& in_place(std::uint32_t place) noexcept { return entries_[place]; }
  /// Needs !empty().
  const Entry& oldest() const noexcept { return entries_[completed_ & mask_]; }

  /// Calls `use(entry)` for each request that is posted and not completed, the oldest first.
  template <class Use>
  void for_each(Use use) noexcept {
    for (std::uint64_t n = completed_; n != posted_; ++n) use(numbered(n));
  }

  /// Hands out completions of the oldest requests for as long as `finished(entry)` holds, and
  /// returns how many.
  template <class Finished>
  std::size_t complete(std::span<Completion> out, Finished finished) noexcept {
    std::size_t filled = 0;
    for (; filled < out.size() && !empty() && finished(oldest()); ++filled, ++completed_) {
      out[filled] = Completion{};
      out[filled].status = oldest().status;
      out[filled].user = oldest().user;
    }
    return filled;
  }

 private:
  std::uint32_t depth_, mask_;
  std::vector<Entry> entries_;
  std::uint64_t posted_ = 0, completed_ = 0;
};

}  // namespace selmcast
