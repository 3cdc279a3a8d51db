#include "base/checksum.h"

#include <isa-l/crc.h>
#include <xxhash.h>

namespace selmcast {

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  // ISA-L takes a mutable pointer but only reads, and does neither of the RFC's two inversions.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~crc);
}

std::uint64_t content_hash(std::uint64_t seed, std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace selmcast
