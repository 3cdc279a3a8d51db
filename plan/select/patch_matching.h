// Who patches whom in one round of a ring plan: a maximum matching on circular arcs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace selmcast {

/// Members that are in their own row ("self members") miss one receiver each, and each has one slot
/// free. Sender q may serve receiver g when row[q] is outside the rows that g hears anyway, the
/// ring interval [first_row[g], first_row[g] + slots[g]). Allocates in its constructor only. One
/// thread at a time.
///
/// First half the ring away, where rows rarely overlap. If that does not fit for all, Glover's rule
/// on the arcs (each sender takes the open arc that ends first; Glover 1967, arcs cut at row 0),
/// then augmenting paths from the receivers left over until none exists, so the matching is
/// maximum. A sender that a search reached is not looked at again in it, and one that a failed
/// search reached never again: about O(z log z) for z members, O(z) per path.
class PatchMatching {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

  explicit PatchMatching(std::uint32_t capacity);

  struct Members {
    std::uint32_t ring = 0;  ///< n, the number of rows.
    /// One entry per self member, in an order in which row[] ascends cyclically.
    std::span<const std::uint32_t> row, first_row, slots;
    std::span<const std::uint8_t> may_send;
    bool all_may_send = false;
  };
  void solve(const Members& members);

  /// Indices into the arrays of solve(), or kNone.
  std::uint32_t receiver_of(std::uint32_t sender) const noexcept {
    return turned_ ? turn(sender, self_count_ / 2) : receiver_of_[sender];
  }
  std::uint32_t sender_of(std::uint32_t receiver) const noexcept {
    return turned_ ? turn(receiver, self_count_ - self_count_ / 2) : sender_of_[receiver];
  }

 private:
  /// The senders that a receiver accepts: `count` positions from `first`, cyclically.
  struct Arc {
    std::uint32_t first = 0, count = 0;
  };
  /// Ends of open arcs, least first: a two-level bitmap over list heads.
  class Ends {
   public:
    explicit Ends(std::uint32_t capacity);
    void clear(std::uint32_t size);
    void add(std::uint32_t end, std::uint32_t receiver, std::vector<std::uint32_t>& next);
    /// Takes a receiver with the least end above `position`, or kNone.
    std::uint32_t take(std::uint32_t position, std::vector<std::uint32_t>& next);

   private:
    std::uint32_t next_set(std::uint32_t from) const noexcept;
    std::vector<std::uint64_t> bits_, summary_;
    std::vector<std::uint32_t> head_;
    std::uint32_t size_ = 0;
  };

  std::uint32_t turn(std::uint32_t index, std::uint32_t by) const noexcept {
    return index + by < self_count_ ? index + by : index + by - self_count_;
  }
  void order_senders(const Members& members);
  void find_arcs(const Members& members);
  void match_by_ends();
  void match(std::uint32_t position, std::uint32_t receiver) noexcept;
  bool augment(std::uint32_t receiver);
  std::uint32_t next_unseen(std::uint32_t position) noexcept;

  std::vector<std::uint32_t> receiver_of_, sender_of_;
  std::vector<std::uint32_t> senders_;      ///< Those that may send, by ascending row.
  std::vector<std::uint32_t> position_of_;  ///< Row -> senders with a lower row.
  std::vector<Arc> arcs_;
  std::vector<std::uint32_t> starts_, next_start_, next_end_;
  std::vector<std::uint32_t> matched_;   ///< Position -> receiver.
  std::vector<std::uint32_t> place_of_;  ///< Receiver -> position.
  std::vector<std::uint32_t> reached_by_, queue_;
  std::vector<std::uint32_t> unseen_, dead_;  ///< Position -> next one that is unseen / not dead.
  std::uint32_t ring_ = 0, senders_count_ = 0, self_count_ = 0;
  bool turned_ = false;  ///< Everyone serves who is half the ring away.
  Ends ends_;
};

}  // namespace selmcast
