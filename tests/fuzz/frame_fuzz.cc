// Frames and NACK payloads from hostile bytes.
//
// The first byte picks the target: the raw parser, the parser behind a right magic, version and
// checksum (which mutation would never find), the NACK parser, a round trip of fields, or the
// payloads of online selection.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/wire.h"
#include "multicast/frame.h"
#include "multicast/selection_frame.h"

namespace {

using selmcast::Bytes;

void require(bool condition) {
  if (!condition) std::abort();
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Whatever was accepted must encode to the very bytes it was parsed from.
void check_accepted(const selmcast::ParsedFrame& parsed, std::span<const std::byte> frame) {
  require(parsed.payload.size() + selmcast::kFrameHeaderBytes == frame.size());
  std::array<std::byte, selmcast::kFrameHeaderBytes> again{};
  selmcast::encode_frame(parsed.header, parsed.payload, again.data());
  require(equal(again, frame.first(again.size())));
}

void fuzz_parse(std::span<const std::byte> input, std::uint32_t job) {
  const auto parsed = selmcast::parse_frame(input, job);
  if (parsed.error == selmcast::FrameError::none) check_accepted(parsed, input);
}

void fuzz_sealed(std::span<const std::byte> input) {
  if (input.size() < selmcast::kFrameHeaderBytes) return;
  Bytes frame(input.begin(), input.end());
  selmcast::store_le(frame.data(), selmcast::kFrameMagic);
  selmcast::store_le(frame.data() + 2, selmcast::kFrameVersion);
  const std::span<const std::byte> all(frame);
  // Of parameters the header alone is summed up.
  const bool data = frame[3] == static_cast<std::byte>(selmcast::FrameKind::data);
  const auto payload = data ? all.first(0) : all.subspan(40);
  selmcast::store_le(frame.data() + 36,
                     selmcast::crc32c(selmcast::crc32c(0, all.first(36)), payload));
  fuzz_parse(frame, selmcast::load_le<std::uint32_t>(frame.data() + 4));
}

void fuzz_nack(std::span<const std::byte> input) {
  if (input.size() < 5) return;
  const auto frames_total = selmcast::load_le<std::uint32_t>(input.data());
  std::vector<selmcast::NackRange> ranges(selmcast::load_le<std::uint8_t>(input.data() + 4));
  const auto payload = input.subspan(5);
  const int n = selmcast::parse_nack(payload, frames_total, ranges);
  if (n < 0) return;
  require(static_cast<std::size_t>(n) <= ranges.size());
  ranges.resize(static_cast<std::size_t>(n));
  for (const auto& range : ranges) {
    require(range.count > 0);
    require(std::uint64_t{range.first} + range.count <= frames_total);
  }
  Bytes again(payload.size());
  require(selmcast::encode_nack(ranges, again) == payload.size() && equal(again, payload));
}

void fuzz_round_trip(std::span<const std::byte> input) {
  selmcast::WireReader reader(input);
  selmcast::FrameHeader header;
  const auto kind = reader.get<std::uint8_t>();
  header.job = reader.get<std::uint32_t>().value_or(0);
  header.sender = reader.get<std::uint16_t>().value_or(0);
  header.stream = reader.get<std::uint16_t>().value_or(0);
  header.epoch = reader.get<std::uint32_t>().value_or(0);
  header.round = reader.get<std::uint32_t>().value_or(0);
  header.check = reader.get<std::uint32_t>().value_or(0);
  header.offset = reader.get<std::uint64_t>().value_or(0);
  header.flags = reader.get<std::uint16_t>().value_or(0);
  header.kind = static_cast<selmcast::FrameKind>(1 + kind.value_or(0) % 6);
  if (header.kind == selmcast::FrameKind::data) {
    // The two share eight bytes.
    header.weight = static_cast<std::uint32_t>(header.offset >> 48) + 1;
    header.offset &= (std::uint64_t{1} << 48) - 1;
  }
  const auto payload =
      input.last(std::min<std::size_t>(reader.remaining(), selmcast::kFramePayloadMax));
  header.length = static_cast<std::uint16_t>(payload.size());
  Bytes frame(selmcast::kFrameHeaderBytes + payload.size());
  if (!payload.empty()) {
    std::memcpy(frame.data() + selmcast::kFrameHeaderBytes, payload.data(), payload.size());
  }
  selmcast::encode_frame(header, payload, frame.data());
  const auto parsed = selmcast::parse_frame(frame, header.job);
  require(parsed.error == selmcast::FrameError::none && parsed.header == header);
  require(equal(parsed.payload, payload));
}

void fuzz_selection(std::span<const std::byte> input) {
  if (input.size() < 2) return;
  const auto members =
      selmcast::load_le<std::uint16_t>(input.data()) % (selmcast::kSelectionMembersMax + 1);
  const auto payload = input.subspan(2);
  Bytes again(payload.size());
  std::vector<std::uint16_t> marks(members);
  if (selmcast::parse_marks(payload, marks)) {
    require(selmcast::encode_marks(marks, again) == payload.size() && equal(again, payload));
  }
  std::vector<std::uint8_t> receivers(members);
  if (const auto rate = selmcast::parse_plan(payload, receivers)) {
    require(selmcast::encode_plan(*rate, receivers, again) == payload.size());
    require(equal(again, payload));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 5) {
    case 0:
      fuzz_parse(input, 0);
      break;
    case 1:
      fuzz_sealed(input);
      break;
    case 2:
      fuzz_nack(input);
      break;
    case 3:
      fuzz_round_trip(input);
      break;
    default:
      fuzz_selection(input);
  }
  return 0;
}
