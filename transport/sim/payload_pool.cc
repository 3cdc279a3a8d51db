#include "transport/sim/payload_pool.h"

#include <cstring>

#include "base/check.h"
#include "base/checksum.h"

#if defined(__SANITIZE_ADDRESS__)
#define SELMCAST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SELMCAST_ASAN 1
#endif
#endif
#ifdef SELMCAST_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) \
  (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) \
  (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace selmcast::detail {

PayloadPool::PayloadPool(std::uint32_t buffer_bytes)
    : stride_((std::size_t{buffer_bytes} + 63U) & ~std::size_t{63}) {
  if (stride_ == 0) stride_ = 64;
}

PayloadPool::~PayloadPool() {
  for (auto& slab : slabs_) ASAN_UNPOISON_MEMORY_REGION(slab.get(), stride_ * kSlabBuffers);
}

void PayloadPool::add_slab() {
  slabs_.push_back(std::make_unique_for_overwrite<std::byte[]>(stride_ * kSlabBuffers));
  ASAN_POISON_MEMORY_REGION(slabs_.back().get(), stride_ * kSlabBuffers);
  const auto first = static_cast<Index>(entries_.size());
  entries_.resize(entries_.size() + kSlabBuffers);
  free_.reserve(entries_.size());
  for (Index i = kSlabBuffers; i > 0; --i) free_.push_back(first + i - 1);
}

PayloadPool::Index PayloadPool::acquire(std::uint32_t bytes) {
  SELMCAST_CHECK(bytes <= stride_, "payload larger than the pool's buffers");
  if (free_.empty()) add_slab();
  const Index index = free_.back();
  free_.pop_back();
  entries_[index] = Entry{.hash = 0, .references = 1, .bytes = bytes, .hashed = false};
  ASAN_UNPOISON_MEMORY_REGION(data(index), bytes);
  return index;
}

PayloadPool::Index PayloadPool::clone(Index from) {
  const Index index = acquire(bytes(from));
  if (bytes(from) > 0) std::memcpy(data(index), data(from), bytes(from));
  return index;
}

void PayloadPool::release(Index index) noexcept {
  Entry& entry = entries_[index];
  SELMCAST_CHECK(entry.references > 0, "payload released too often");
  if (--entry.references > 0) return;
  ASAN_POISON_MEMORY_REGION(data(index), stride_);
  free_.push_back(index);
}

std::uint64_t PayloadPool::hash(Index index) noexcept {
  Entry& entry = entries_[index];
  if (!entry.hashed) {
    entry.hash = content_hash(0, {data(index), entry.bytes});
    entry.hashed = true;
  }
  return entry.hash;
}

}  // namespace selmcast::detail
