// Reference-counted frame buffers of one size: the copies of a multicast frame share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace selmcast::detail {

/// Indices stay valid until the last release(); buffers never move. Under AddressSanitizer a
/// released buffer is poisoned, so that reading a frame after giving it back is reported.
class PayloadPool {
 public:
  using Index = std::uint32_t;

  explicit PayloadPool(std::uint32_t buffer_bytes);
  ~PayloadPool();
  PayloadPool(const PayloadPool&) = delete;
  PayloadPool& operator=(const PayloadPool&) = delete;

  /// A buffer of `bytes` (at most buffer_bytes), contents unspecified, with one reference.
  Index acquire(std::uint32_t bytes);
  Index clone(Index from);
  void share(Index index) noexcept { ++entries_[index].references; }
  void release(Index index) noexcept;

  std::byte* data(Index index) noexcept {
    return slabs_[index / kSlabBuffers].get() + std::size_t{index % kSlabBuffers} * stride_;
  }
  std::uint32_t bytes(Index index) const noexcept { return entries_[index].bytes; }
  /// Hash of the contents, computed on first use: from then on they must not change.
  std::uint64_t hash(Index index) noexcept;
  std::size_t in_use() const noexcept { return entries_.size() - free_.size(); }

 private:
  static constexpr std::uint32_t kSlabBuffers = 64;
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t references = 0;
    std::uint32_t bytes = 0;
    bool hashed = false;
  };
  void add_slab();

  std::size_t stride_;
  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  std::vector<Entry> entries_;
  std::vector<Index> free_;
};

}  // namespace selmcast::detail
