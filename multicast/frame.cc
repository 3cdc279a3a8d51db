#include "multicast/frame.h"

#include "base/check.h"
#include "base/checksum.h"
#include "base/wire.h"

namespace selmcast {
namespace {

// Byte offsets of the header's fields; see the layout in frame.h.
enum At : std::size_t {
  kMagicAt = 0,
  kVersionAt = 2,
  kKindAt = 3,
  kJobAt = 4,
  kSenderAt = 8,
  kStreamAt = 10,
  kEpochAt = 12,
  kRoundAt = 16,
  kCheckAt = 20,
  kOffsetAt = 24,
  kLengthAt = 32,
  kFlagsAt = 34,
  kCrcAt = 36,
};
// Of parameters: the rest of the eight bytes says how many ranks' values they are the sum of.
constexpr unsigned kOffsetBits = 48;
constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
constexpr std::uint32_t kWeightMask = 0xFFFF;
static_assert(kCrcAt + sizeof(std::uint32_t) == kFrameHeaderBytes);

std::uint32_t frame_crc(const std::byte* header, std::span<const std::byte> payload) noexcept {
  const std::uint32_t crc = crc32c(0, {header, kCrcAt});
  const bool parameters =
      load_le<std::uint8_t>(header + kKindAt) == static_cast<std::uint8_t>(FrameKind::data);
  return parameters ? crc : crc32c(crc, payload);
}

bool known_kind(std::uint8_t kind) noexcept {
  return kind >= static_cast<std::uint8_t>(FrameKind::data) &&
         kind <= static_cast<std::uint8_t>(FrameKind::plan);
}

}  // namespace

std::uint32_t payload_check(std::span<const std::byte> payload) noexcept {
  return crc32c(0, payload);
}

void encode_frame(const FrameHeader& header, std::span<const std::byte> payload,
                  std::byte* out) noexcept {
  SELMCAST_CHECK(header.length == payload.size() && payload.size() <= kFramePayloadMax,
                 "a frame's length field must be the size of its payload");
  SELMCAST_CHECK(header.sender <= 0xFFFFU, "a frame's sender must fit in 16 bits");
  SELMCAST_CHECK(header.kind != FrameKind::data ||
                     (header.offset <= kOffsetMask && header.weight - 1 <= kWeightMask),
                 "parameters' offset must fit in 48 bits, and how many ranks' they are in 16");
  store_le(out + kMagicAt, kFrameMagic);
  store_le(out + kVersionAt, kFrameVersion);
  store_le(out + kKindAt, static_cast<std::uint8_t>(header.kind));
  store_le(out + kJobAt, header.job);
  store_le(out + kSenderAt, static_cast<std::uint16_t>(header.sender));
  store_le(out + kStreamAt, header.stream);
  store_le(out + kEpochAt, header.epoch);
  store_le(out + kRoundAt, header.round);
  store_le(out + kCheckAt, header.check);
  const std::uint64_t weight = header.kind == FrameKind::data ? header.weight - 1 : 0;
  store_le(out + kOffsetAt, header.offset | weight << kOffsetBits);
  store_le(out + kLengthAt, header.length);
  store_le(out + kFlagsAt, header.flags);
  store_le(out + kCrcAt, frame_crc(out, payload));
}

/// What 40 bytes say if they are a header. Nothing is checked.
static FrameHeader peek_header(const std::byte* header) noexcept {
  FrameHeader out{
      .kind = static_cast<FrameKind>(load_le<std::uint8_t>(header + kKindAt)),
      .job = load_le<std::uint32_t>(header + kJobAt),
      .sender = load_le<std::uint16_t>(header + kSenderAt),
      .stream = load_le<std::uint16_t>(header + kStreamAt),
      .epoch = load_le<std::uint32_t>(header + kEpochAt),
      .round = load_le<std::uint32_t>(header + kRoundAt),
      .check = load_le<std::uint32_t>(header + kCheckAt),
      .offset = load_le<std::uint64_t>(header + kOffsetAt),
      .length = load_le<std::uint16_t>(header + kLengthAt),
      .flags = load_le<std::uint16_t>(header + kFlagsAt),
  };
  if (out.kind == FrameKind::data) {
    out.weight = static_cast<std::uint32_t>(out.offset >> kOffsetBits) + 1;
    out.offset &= kOffsetMask;
  }
  return out;
}

ParsedFrame parse_frame(std::span<const std::byte> frame, std::uint32_t job) noexcept {
  if (frame.size() < kFrameHeaderBytes) return {FrameError::short_frame, {}, {}};
  return parse_frame(frame.data(), frame.subspan(kFrameHeaderBytes), job);
}

ParsedFrame parse_frame(const std::byte* in, std::span<const std::byte> payload,
                        std::uint32_t job) noexcept {
  const auto refuse = [](FrameError error) { return ParsedFrame{error, {}, {}}; };
  if (load_le<std::uint16_t>(in + kMagicAt) != kFrameMagic) return refuse(FrameError::magic);
  if (load_le<std::uint8_t>(in + kVersionAt) != kFrameVersion) return refuse(FrameError::version);
  if (!known_kind(load_le<std::uint8_t>(in + kKindAt))) return refuse(FrameError::kind);
  const FrameHeader header = peek_header(in);
  if (header.length != payload.size() || header.length > kFramePayloadMax) {
    return refuse(FrameError::length);
  }
  if (load_le<std::uint32_t>(in + kCrcAt) != frame_crc(in, payload)) {
    return refuse(FrameError::checksum);
  }
  if (header.job != job) return refuse(FrameError::foreign_job);
  return {FrameError::none, header, payload};
}

std::size_t encode_nack(std::span<const NackRange> ranges, std::span<std::byte> out) noexcept {
  std::size_t used = 0;
  for (const NackRange& range : ranges) {
    if (out.size() - used < kNackRangeBytes) break;
    store_le(out.data() + used, range.first);
    store_le(out.data() + used + 4, range.count);
    used += kNackRangeBytes;
  }
  return used;
}

int parse_nack(std::span<const std::byte> payload, std::uint32_t frames_total,
               std::span<NackRange> out) noexcept {
  if (payload.size() % kNackRangeBytes != 0) return -1;
  const std::size_t ranges = payload.size() / kNackRangeBytes;
  if (ranges > out.size() || payload.size() > kFramePayloadMax) return -1;
  for (std::size_t i = 0; i < ranges; ++i) {
    const std::byte* at = payload.data() + i * kNackRangeBytes;
    const NackRange range{load_le<std::uint32_t>(at), load_le<std::uint32_t>(at + 4)};
    // Written so that first + count cannot wrap around.
    if (range.count == 0 || range.first >= frames_total ||
        range.count > frames_total - range.first) {
      return -1;
    }
    out[i] = range;
  }
  return static_cast<int>(ranges);
}

const char* to_string(FrameError error) noexcept {
  switch (error) {
    case FrameError::none:
      return "none";
    case FrameError::short_frame:
      return "shorter than a frame header";
    case FrameError::magic:
      return "not a frame (magic)";
    case FrameError::version:
      return "another frame version";
    case FrameError::kind:
      return "unknown frame kind";
    case FrameError::length:
      return "length field differs from the frame's size";
    case FrameError::checksum:
      return "checksum mismatch";
    case FrameError::foreign_job:
      return "frame of another job";
  }
  return "invalid";
}

const char* to_string(FrameKind kind) noexcept {
  switch (kind) {
    case FrameKind::data:
      return "data";
    case FrameKind::credit:
      return "credit";
    case FrameKind::nack:
      return "nack";
    case FrameKind::tail:
      return "tail";
    case FrameKind::ack:
      return "ack";
    case FrameKind::evict:
      return "evict";
    case FrameKind::alive:
      return "alive";
    case FrameKind::clock:
      return "clock";
    case FrameKind::request:
      return "request";
    case FrameKind::plan:
      return "plan";
  }
  return "invalid";
}

}  // namespace selmcast
