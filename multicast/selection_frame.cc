#include "multicast/selection_frame.h"

#include "base/check.h"
#include "base/wire.h"

namespace selmcast {

namespace {
constexpr std::size_t kRateBytes = 8;
}

std::size_t encode_marks(std::span<const std::uint16_t> marks, std::span<std::byte> out) noexcept {
  SELMCAST_CHECK(out.size() >= 2 * marks.size(), "room for one mark per member");
  for (std::size_t m = 0; m < marks.size(); ++m) store_le(out.data() + 2 * m, marks[m]);
  return 2 * marks.size();
}

bool parse_marks(std::span<const std::byte> payload, std::span<std::uint16_t> out) noexcept {
  if (payload.size() != 2 * out.size()) return false;
  for (std::size_t m = 0; m < out.size(); ++m) {
    out[m] = load_le<std::uint16_t>(payload.data() + 2 * m);
  }
  return true;
}

std::size_t encode_plan(Kbps rate, std::span<const std::uint8_t> receivers,
                        std::span<std::byte> out) noexcept {
  const std::size_t bytes = kRateBytes + (receivers.size() + 7) / 8;
  SELMCAST_CHECK(out.size() >= bytes, "room for one bit per member");
  store_le(out.data(), std::uint64_t{rate});
  for (std::size_t at = kRateBytes; at < bytes; ++at) out[at] = std::byte{0};
  for (std::size_t m = 0; m < receivers.size(); ++m) {
    if (receivers[m] != 0) out[kRateBytes + m / 8] |= std::byte{1} << (m % 8);
  }
  return bytes;
}

std::optional<Kbps> parse_plan(std::span<const std::byte> payload,
                               std::span<std::uint8_t> receivers) noexcept {
  if (payload.size() != kRateBytes + (receivers.size() + 7) / 8) return std::nullopt;
  const auto rate = load_le<std::uint64_t>(payload.data());
  if (rate == 0) return std::nullopt;
  const auto bit = [payload](std::size_t m) {
    return (payload[kRateBytes + m / 8] >> (m % 8) & std::byte{1}) != std::byte{0};
  };
  for (std::size_t m = 0; m < receivers.size(); ++m) receivers[m] = bit(m) ? 1 : 0;
  for (std::size_t m = receivers.size(); m < 8 * (payload.size() - kRateBytes); ++m) {
    if (bit(m)) return std::nullopt;
  }
  return static_cast<Kbps>(rate);
}

}  // namespace selmcast
