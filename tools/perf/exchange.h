// What the two ends of a measurement tell each other over TCP, as bytes. Pure functions; everything
// is little-endian, versioned, and read from hostile bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/wire.h"
#include "tools/perf/settings.h"

namespace selmcast::perf {

/// What a message is; its number on the wire.
enum class Kind : std::uint16_t {
  hello = 1,  ///< Hello; the client's first, then the server's.
  refuse,     ///< Text: the server does not take this client.
  ready,      ///< Nothing: set up, or ready for the repeat that start named.
  start,      ///< u32: number of the repeat, 0 for the warm-up.
  done,       ///< u64: messages that the client sent in it.
  report,     ///< Report: what the server saw of it.
  bye,        ///< Nothing: all repeats are done.
  alive,      ///< Nothing.
  fail        ///< Text: why the other end gives up.
};

inline constexpr std::uint32_t kMessageMost = 16'384;  ///< Payload bytes.
inline constexpr std::uint32_t kHeaderBytes = 6;

/// u32 payload bytes, u16 kind, payload.
Bytes encode_message(Kind kind, std::span<const std::byte> payload);

struct Header {
  std::uint32_t bytes = 0;
  Kind kind = Kind::alive;
};
/// Error bad_input: unknown kind, or more than kMessageMost bytes.
Result<Header> decode_header(std::span<const std::byte, kHeaderBytes> bytes);

/// One queue pair.
struct QueueEnd {
  std::uint32_t qpn = 0;  ///< 24 bits.
  std::uint32_t psn = 0;  ///< 24 bits.
  bool operator==(const QueueEnd&) const = default;
};

/// Where one end can be reached.
struct End {
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;
  std::uint8_t mtu = 3;    ///< ibv_mtu: 1 (256 bytes) to 5 (4096).
  std::uint8_t reads = 1;  ///< RDMA READs and atomics that it can take at once.
  std::uint32_t rkey = 0;
  std::uint64_t source = 0;      ///< Address of what it sends; a READ takes it.
  std::uint64_t target = 0;      ///< Address of what a WRITE or an atomic changes.
  std::vector<QueueEnd> queues;  ///< One to settings.queue_pairs.
  bool operator==(const End&) const = default;
};

struct Hello {
  Settings settings;  ///< Those that the ends must agree on.
  End end;
};

/// magic u32, version u16, op u8, flags u8, size u32, depth u32, queue pairs u32, group u32, GID 16
/// bytes, LID u16, MTU u8, reads u8, rkey u32, source u64, target u64, then per queue pair u32,
/// u32.
Bytes encode_hello(const Hello& hello);
/// Error bad_input: another program's or version's bytes, wrong size, a value out of its range.
Result<Hello> decode_hello(std::span<const std::byte> bytes);

/// What a counter of the device did during a repeat.
struct Moved {
  std::string name;
  std::uint64_t by = 0;
  bool operator==(const Moved&) const = default;
};

/// What the server saw of one repeat.
struct Report {
  std::uint64_t received = 0;       ///< Messages of this repeat; 0 where the device takes them.
  std::uint64_t bytes_checked = 0;  ///< Compared with the pattern.
  std::uint64_t wrong = 0;          ///< Messages whose bytes, length or order were not as sent.
  std::uint64_t late = 0;           ///< Datagrams overtaken by later ones, or doubled.
  std::uint64_t foreign = 0;        ///< Datagrams of another repeat or program.
  std::uint64_t elapsed_ns = 0;     ///< From the first to the last of them.
  std::uint64_t cpu_ns = 0;         ///< Of the server's process.
  std::vector<Moved> moved;
  bool operator==(const Report&) const = default;
};

/// Seven u64, then u32 counters: name (u32 length, bytes), u64. Counters beyond kCountersMost are
/// left out.
Bytes encode_report(const Report& report);
/// Error bad_input: wrong size, a name too long.
Result<Report> decode_report(std::span<const std::byte> bytes);
inline constexpr std::uint32_t kCountersMost = 64;
inline constexpr std::uint32_t kNameMost = 100;

}  // namespace selmcast::perf
