#include "transport/shm/shm_in_place.h"

#include <algorithm>

#include "base/shared_memory.h"

namespace selmcast::shm {
namespace {

constexpr std::uint64_t kNonceMask = ~std::uint64_t{0} << 32U;
static_assert(kExportsMax <= 32, "a bit each, below half of a nonce");

}  // namespace

RegisteredMemory export_memory(SegmentHeader& own, std::span<const std::byte> memory) {
  RegisteredMemory out{memory, std::nullopt, 0};
  const auto place = find_shared(memory);
  if (!place) return out;
  // Relaxed: this rank alone writes it.
  const std::uint32_t used = own.exports_used.load(std::memory_order_relaxed);
  std::uint32_t slot = 0;
  while (slot < used && own.exports[slot].inode != place->inode) ++slot;
  if (slot == kExportsMax) return out;
  if (slot == used) {
    own.exports[slot] = {place->inode, place->bytes, static_cast<std::uint64_t>(place->fd)};
    // Release: peers load acquire before they read the entry.
    own.exports_used.store(used + 1, std::memory_order_release);
  }
  out.slot = slot;
  out.offset = place->offset;
  return out;
}

bool has_mapped(const RingControl& control, std::uint64_t nonce, std::uint32_t slot) noexcept {
  // Relaxed: see `mapped` in shm_layout.h.
  const std::uint64_t mapped = control.mapped.load(std::memory_order_relaxed);
  return (mapped & kNonceMask) == (nonce & kNonceMask) && (mapped >> slot & 1U) != 0;
}

void Imports::look(const SegmentAddress& peer, const SegmentHeader& header, RingControl& control,
                   bool lent) {
  Peer& known = of_rank_[peer.rank];
  // Acquire: pairs with the release in export_memory().
  const std::uint32_t used =
      std::min(header.exports_used.load(std::memory_order_acquire), kExportsMax);
  if (known.nonce != peer.nonce) {
    if (used == 0 || lent) return;
    known = {};
    known.nonce = peer.nonce;
  }
  if (known.seen >= used) return;
  std::uint64_t mapped = peer.nonce & kNonceMask;
  for (std::uint32_t slot = 0; slot < used; ++slot) {
    Mapped& part = known.parts[slot];
    if (slot >= known.seen) {
      const Export what = header.exports[slot];
      part.memory = map_export(peer, what);
      part.bytes = part.memory ? what.bytes : 0;
    }
    mapped |= std::uint64_t{part.bytes > 0} << slot;
  }
  known.seen = used;
  control.mapped.store(mapped, std::memory_order_relaxed);
}

const std::byte* Imports::find(Rank sender, const PlaceHeader& place) const noexcept {
  if (place.slot >= kExportsMax) return nullptr;
  const Mapped& part = of_rank_[sender].parts[place.slot];
  if (place.offset > part.bytes || place.body_bytes > part.bytes - place.offset) return nullptr;
  return part.memory.data() + place.offset;
}

}  // namespace selmcast::shm
