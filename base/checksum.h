// CRC32C and 64-bit content hash of byte ranges, from ISA-L and xxHash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace selmcast {

/// CRC32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`, continuing from `crc` (0 to start).
std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// XXH3-64 of `bytes` with `seed`. Not keyed against an adversary.
std::uint64_t content_hash(std::uint64_t seed, std::span<const std::byte> bytes) noexcept;

}  // namespace selmcast
