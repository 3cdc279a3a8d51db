#include "multicast/snapshot.h"

#include "base/wire.h"

namespace selmcast {
namespace {

constexpr std::size_t kMemoryBytes = kLocationBytes / 2;

void encode(const RemoteMemory& memory, std::byte* at) noexcept {
  store_le(at, memory.address);
  for (std::size_t k = 0; k < memory.keys.size(); ++k) store_le(at + 8 + 4 * k, memory.keys[k]);
}

RemoteMemory decode(const std::byte* at) noexcept {
  RemoteMemory out;
  out.address = load_le<std::uint64_t>(at);
  for (std::size_t k = 0; k < out.keys.size(); ++k) {
    out.keys[k] = load_le<std::uint32_t>(at + 8 + 4 * k);
  }
  return out;
}

}  // namespace

void encode_location(const SnapshotLocation& location,
                     std::span<std::byte, kLocationBytes> out) noexcept {
  encode(location.data, out.data());
  encode(location.tag, out.data() + kMemoryBytes);
}

std::optional<SnapshotLocation> decode_location(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kLocationBytes) return {};
  return SnapshotLocation{decode(bytes.data()), decode(bytes.data() + kMemoryBytes)};
}

}  // namespace selmcast
