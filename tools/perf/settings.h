// What one run of `selmcast perf` measures, as a value that both ends hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace selmcast::perf {

enum class Op : std::uint8_t { write, write_imm, read, send, ud, multicast, atomic };
inline constexpr std::uint8_t kOps = 7;

/// "write-imm" and so on, as the command line spells them.
std::string_view name_of(Op op) noexcept;
/// Error bad_input with what is allowed.
Result<Op> parse_op(std::string_view text);

/// Datagrams: may be lost, have no queue pair of their own at the other end.
constexpr bool unreliable(Op op) noexcept {
  return op == Op::ud || op == Op::multicast;
}
/// Each message uses up a receive at the other end.
constexpr bool takes_receives(Op op) noexcept {
  return op == Op::send || op == Op::write_imm || unreliable(op);
}
/// Nothing runs at the other end, and an answer comes by itself.
constexpr bool answered_by_device(Op op) noexcept {
  return op == Op::read || op == Op::atomic;
}

struct Settings {
  // The two ends must agree on these (see difference_of()).
  Op op = Op::write;
  bool latency = false;           ///< Ping-pong of one message at a time, instead of a flood.
  bool verify_all = false;        ///< Receiver looks at every byte, not only at a sample.
  std::uint32_t size = 65'536;    ///< Bytes of a message.
  std::uint32_t depth = 128;      ///< Messages under way on a queue pair.
  std::uint32_t queue_pairs = 1;  ///< Used in turn.
  std::uint32_t group = 0;        ///< IPv4 in host byte order; multicast only.

  // The client's business.
  std::uint32_t post_list = 1;     ///< Messages behind one doorbell.
  std::uint32_t signal_every = 0;  ///< Messages that one completion stands for; 0: as depth allows.
  std::uint64_t iterations = 0;    ///< Messages of a repeat; 0: as many as `duration` allows.
  Duration duration = std::chrono::seconds(1);
  std::uint32_t repeats = 5;
  bool warm_up = true;                ///< A quarter of a repeat, not counted.
  std::uint64_t rate_limit_kbps = 0;  ///< 0: none.

  // Each end's own.
  std::uint32_t inline_bytes = 0;  ///< Messages of up to so many bytes travel in the request.
  bool events = false;             ///< Sleep until something completes, instead of polling.
  std::string device;              ///< DEVICE[:PORT[:GID_INDEX]]
  Duration timeout = std::chrono::seconds(20);  ///< Longest silence of the other end.
  std::uint16_t port = 18'600;                  ///< TCP.
};

/// Bounds and combinations; error bad_input names the flag, its value and what is allowed. Fills
/// `signal_every` where it is 0.
Result<void> check(Settings& settings);

/// The flag of the first setting on which the ends must agree and do not, with both values; empty
/// where they do.
std::string difference_of(const Settings& server, const Settings& client);

}  // namespace selmcast::perf
