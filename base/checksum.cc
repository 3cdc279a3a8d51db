#include "base/checksum.h"

#include <isa-l/crc.h>
#include <xxhash.h>

#include <algorithm>

namespace selmcast {

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 30U;  // ISA-L takes the length as int.
  // ISA-L takes a mutable pointer but only reads, and does neither of the RFC's two inversions.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  std::uint32_t state = ~crc;
  for (std::size_t left = bytes.size(); left > 0;) {
    const std::size_t piece = std::min(left, kPieceBytes);
    state = crc32_iscsi(data, static_cast<int>(piece), state);
    data += piece;
    left -= piece;
  }
  return ~state;
}

std::uint64_t content_hash(std::uint64_t seed, std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace selmcast
