// What other ranks tell the verbs backend, from hostile bytes.
//
// The first byte picks the target: an address (its second byte is the size), an address behind a
// right magic and version, a wire-up message, or one behind a right magic and version.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/wire.h"
#include "transport/verbs/verbs_address.h"
#include "transport/verbs/wire_up.h"

namespace {

using selmcast::PeerAddress;

void require(bool condition) {
  if (!condition) std::abort();
}

/// What was accepted must encode to the very bytes it was read from.
void fuzz_address(std::span<const std::byte> input, bool sealed) {
  if (input.empty()) return;
  PeerAddress address;
  address.size = static_cast<std::uint32_t>(input[0]);
  const auto rest = input.subspan(1, std::min(input.size() - 1, address.bytes.size()));
  std::copy(rest.begin(), rest.end(), address.bytes.begin());
  if (sealed) std::memcpy(address.bytes.data(), "VRBS\x01\0", 6);
  const auto got = selmcast::verbs::decode_address(address);
  if (!got) {
    require(got.error().kind == selmcast::ErrorKind::bad_input && !got.error().message.empty());
    return;
  }
  require(got->rail_count >= 1 && got->rail_count <= selmcast::verbs::kRailsMax);
  const PeerAddress again = selmcast::verbs::encode_address(*got);
  require(again.size == address.size);
  require(std::memcmp(again.bytes.data(), address.bytes.data(), address.size) == 0);
}

void fuzz_wire_up(std::span<const std::byte> input, bool sealed) {
  std::array<std::byte, 2 * selmcast::verbs::kWireUpBytes> bytes{};
  const std::size_t size = std::min(input.size(), bytes.size());
  std::copy_n(input.begin(), size, bytes.begin());
  if (sealed) std::memcpy(bytes.data(), "VRWU\x01\0", 6);
  const auto got = selmcast::verbs::decode_wire_up(std::span(bytes).first(size));
  if (!got) return;
  require(size == selmcast::verbs::kWireUpBytes);
  require(got->qpn > 1 && got->qpn < selmcast::verbs::kQueuePairNumberMax);
  require(got->psn < 1U << 24U);
  require(got->mtu >= IBV_MTU_256 && got->mtu <= IBV_MTU_4096);
  std::array<std::byte, selmcast::verbs::kWireUpBytes> again{};
  selmcast::verbs::encode_wire_up(*got, again);
  require(std::equal(again.begin(), again.end(), bytes.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 4) {
    case 0:
      fuzz_address(input, false);
      break;
    case 1:
      fuzz_address(input, true);
      break;
    case 2:
      fuzz_wire_up(input, false);
      break;
    default:
      fuzz_wire_up(input, true);
  }
  return 0;
}
