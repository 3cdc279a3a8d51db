// A row per sender: what each rank sent last, instead of a sum of what all sent.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// Rows of one stream each (float32), one per rank of the job. A frame takes the place of the
/// sender's last one: a frame that comes twice changes nothing, and of a sender that dies in
/// mid-round each element is one that it did send; or the whole row changes at once (exchange()),
/// and such a sender leaves it as it was.
///
/// One thread at a time: the driver's while a round runs, the application's between rounds. Spares
/// are the driver's at any time.
class SenderTable {
 public:
  /// All zero. Allocates.
  SenderTable(std::uint32_t ranks, std::size_t elements)
      : elements_(elements), memory_(elements * ranks, 0.0F) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      rows_.push_back(memory_.data() + rank * elements);
    }
  }
  // Rows are pointed to from outside.
  SenderTable(const SenderTable&) = delete;
  SenderTable& operator=(const SenderTable&) = delete;

  std::size_t elements() const noexcept { return elements_; }  ///< Of a row.
  std::size_t ranks() const noexcept { return rows_.size(); }
  std::span<float> row(Rank rank) const noexcept { return {rows_[rank], elements_}; }
  /// `first` is the element that the payload begins with; all of it lies in the row.
  void put(Rank sender, std::size_t first, std::span<const std::byte> payload) const noexcept {
    std::memcpy(rows_[sender] + first, payload.data(), payload.size());
  }

  /// One more row that is nobody's; lives as long as the table. Allocates.
  std::span<float> add_spare() {
    spares_.push_back(std::make_unique<float[]>(elements_));
    return {spares_.back().get(), elements_};
  }
  /// Makes a spare the rank's row. Its old one is the spare then.
  std::span<float> exchange(Rank rank, std::span<float> spare) noexcept {
    return {std::exchange(rows_[rank], spare.data()), elements_};
  }

 private:
  std::size_t elements_;
  std::vector<float> memory_;
  std::vector<float*> rows_;                      ///< By rank.
  std::vector<std::unique_ptr<float[]>> spares_;  ///< Memory that was not a rank's at first.
};

}  // namespace selmcast
