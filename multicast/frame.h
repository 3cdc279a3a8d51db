// The frame: a 40-byte little-endian header, then the payload. Pure functions, no I/O.
//
//  0 u16 magic   2 u8 version   3 u8 kind   4 u32 job    8 u16 sender  10 u16 stream
// 12 u32 epoch  16 u32 round   20 u32 check 24 u64 offset; of data 48 bits, and then u16 weight - 1
// 32 u16 length of the payload 34 u16 flags 36 u32 CRC32C of bytes 0..35, and of the payload
//                                                  unless it is parameters
//
// Parameters have a check of their own, CRC32C too, so that the header can be believed before they
// are read: they are read once, by whoever uses them (ReceiveSession::on_data()), not at all when
// the frame came twice, and the sender computes the check once for all receivers and repairs. Where
// the medium checks what it carries (Capabilities::checks_payload) `check` is 0 and means nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace selmcast {

inline constexpr std::uint32_t kFrameHeaderBytes = 40;
inline constexpr std::uint16_t kFrameMagic = 0x5EAC;
inline constexpr std::uint8_t kFrameVersion = 2;
inline constexpr std::uint32_t kFramePayloadMax = 65'507 - kFrameHeaderBytes;

/// Of a control frame, at most; and what of it fits where frames have `frame_bytes`, header
/// included: a larger one would not leave its host.
inline constexpr std::uint32_t kControlPayloadMax = 1024;
constexpr std::uint32_t control_payload_max(std::uint32_t frame_bytes) noexcept {
  return frame_bytes <= kFrameHeaderBytes
             ? 0
             : std::min(kControlPayloadMax, frame_bytes - kFrameHeaderBytes);
}

enum class FrameKind : std::uint8_t {
  data = 1,    ///< Parameters at `offset` of the stream.
  credit = 2,  ///< "I am in this round; you may send me up to byte `offset`." No payload.
  nack = 3,    ///< Missing frames; payload: NackRange list.
  tail = 4,    ///< "Everything below byte `offset` was sent." Payload: u64 digest, meaningful if
               ///< final; then, if peers may read it, where the round is (multicast/snapshot.h).
  ack = 5,     ///< "I need nothing more from you in this round." No payload.
  evict = 6,   ///< "I stopped serving you in this round." No payload.
  alive = 7,   ///< "I live but am not in that round yet." No payload.
  /// "My rounds below `round` have ended, `round` is of `epoch`, and my application has done
  /// `offset` steps." No payload. Only where senders run freely.
  clock = 8,
  /// To whoever selects receivers. kAsk: "round `round` may depart"; payload: see
  /// selection_frame.h, how long ago this rank reached each. Otherwise: "so much of the round is
  /// left"; payload: per receiver. Only where receivers are selected online.
  request = 9,
  /// The answer, and what changes later in that round: its receivers and its rate. `offset` numbers
  /// the plans of one selecting rank.
  plan = 10,
};

namespace frame_flag {
inline constexpr std::uint16_t kRepair = 1;  ///< data: a retransmission.
inline constexpr std::uint16_t kPatch = 2;   ///< data: a first transmission by unicast.
/// tail: the round's last frame was sent; data: it is the sender's last round; clock: no more
/// steps.
inline constexpr std::uint16_t kFinal = 4;
inline constexpr std::uint16_t kGaveUp =
    8;                                      ///< ack: the receiver stopped waiting, data is missing.
inline constexpr std::uint16_t kAsk = 16;   ///< clock: tell me yours; request: select.
inline constexpr std::uint16_t kOver = 32;  ///< clock: the last round has ended.
inline constexpr std::uint16_t kWhere = 64;  ///< tail: only says where the round can be read.
inline constexpr std::uint16_t kRead = 128;  ///< data: never sent; this rank read it (ReadRepair).
/// request: the sender chose the receivers itself and keeps them.
inline constexpr std::uint16_t kAlone = 256;
}  // namespace frame_flag

struct FrameHeader {
  FrameKind kind = FrameKind::data;
  std::uint32_t job = 0;
  Rank sender = 0;  ///< Rank that sent this frame; below 65 536.
  std::uint16_t stream = 0;
  std::uint32_t epoch = 0;
  std::uint32_t round = 0;
  std::uint32_t check = 0;  ///< data: payload_check(), or 0 where the medium checks.
  std::uint64_t offset = 0;
  std::uint16_t length = 0;  ///< Payload bytes.
  std::uint16_t flags = 0;
  std::uint32_t weight =
      1;  ///< data: so many ranks' values are summed up in the payload; 1..65536.

  bool operator==(const FrameHeader&) const = default;
};

/// Why a frame was refused; the caller counts.
enum class FrameError : std::uint8_t {
  none,
  short_frame,
  magic,
  version,
  kind,
  length,
  checksum,
  foreign_job
};

struct ParsedFrame {
  FrameError error = FrameError::none;
  FrameHeader header;
  std::span<const std::byte> payload;  ///< Into the caller's bytes.
};

/// What FrameHeader::check says of parameters: CRC32C, which finds every burst of up to 32 bits and
/// any 3 flipped bits.
std::uint32_t payload_check(std::span<const std::byte> payload) noexcept;

/// Writes the 40 bytes. The payload is not copied, and read for control frames only: of parameters
/// the caller has set header.check. header.length must equal payload.size().
void encode_frame(const FrameHeader& header, std::span<const std::byte> payload,
                  std::byte* out) noexcept;

/// Checks everything that needs no state: size, magic, version, kind, length against the real size,
/// CRC, job. Not whether parameters match header.check. Hostile bytes are safe. Does not allocate.
ParsedFrame parse_frame(std::span<const std::byte> frame, std::uint32_t job) noexcept;
/// The same of a frame whose payload lies elsewhere; `header` are its 40 bytes.
ParsedFrame parse_frame(const std::byte* header, std::span<const std::byte> payload,
                        std::uint32_t job) noexcept;
/// `count` frames missing from frame index `first` on.
struct NackRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const NackRange&) const = default;
};

inline constexpr std::size_t kNackRangeBytes = 8;

/// Writes at most out.size() / 8 ranges; returns the bytes used.
std::size_t encode_nack(std::span<const NackRange> ranges, std::span<std::byte> out) noexcept;
/// Number of ranges in a NACK payload, or -1 if it is malformed: not a multiple of 8 bytes, an
/// empty range, or one that reaches past `frames_total`. On success out[0..n) is filled (n <=
/// out.size(); a payload with more ranges is malformed).
int parse_nack(std::span<const std::byte> payload, std::uint32_t frames_total,
               std::span<NackRange> out) noexcept;

const char* to_string(FrameError error) noexcept;
const char* to_string(FrameKind kind) noexcept;

}  // namespace selmcast
