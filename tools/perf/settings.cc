#include "tools/perf/settings.h"

#include <algorithm>
#include <array>

namespace selmcast::perf {
namespace {

constexpr std::array<std::string_view, kOps> kNames{"write", "write-imm", "read",  "send",
                                                    "ud",    "multicast", "atomic"};
constexpr std::uint32_t kSizeMost = 1U << 30U;
constexpr std::uint32_t kDepthMost = 16'384;
constexpr std::uint32_t kQueuePairsMost = 64;
constexpr std::uint64_t kIterationsMost = 1'000'000'000;
constexpr std::uint32_t kRepeatsMost = 1'000;
constexpr std::uint32_t kInlineMost = 4'096;
constexpr std::uint64_t kRateMost = 4'000'000'000;  // The verbs call takes 32 bits of kbit/s.

Result<void> within(const char* flag, std::uint64_t value, std::uint64_t least,
                    std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return bad_input(std::string("perf: ") + flag + ": " + std::to_string(value) + " is not within " +
                   std::to_string(least) + ".." + std::to_string(most));
}

Result<void> check_numbers(const Settings& s) {
  struct Bound {
    const char* flag;
    std::uint64_t value, least, most;
  };
  const std::array<Bound, 8> bounds{{{"--size", s.size, 1, kSizeMost},
                                     {"--depth", s.depth, 1, kDepthMost},
                                     {"--queue-pairs", s.queue_pairs, 1, kQueuePairsMost},
                                     {"--post-list", s.post_list, 1, s.depth},
                                     {"--iterations", s.iterations, 0, kIterationsMost},
                                     {"--repeats", s.repeats, 1, kRepeatsMost},
                                     {"--inline", s.inline_bytes, 0, kInlineMost},
                                     {"--rate-limit", s.rate_limit_kbps, 0, kRateMost}}};
  for (const Bound& bound : bounds) {
    if (auto ok = within(bound.flag, bound.value, bound.least, bound.most); !ok) return ok;
  }
  return {};
}

Result<void> check_combinations(const Settings& s) {
  const std::string op = "perf: --op " + std::string(name_of(s.op)) + ": ";
  if (s.op == Op::atomic && s.size != 8) {
    return bad_input(op + "an atomic operation has --size 8, not " + std::to_string(s.size));
  }
  if (unreliable(s.op) && s.queue_pairs > 1) {
    return bad_input(op + "--queue-pairs is for connected queue pairs; leave it out");
  }
  if (!s.latency) return {};
  if (s.op == Op::multicast) {
    return bad_input(op + "--latency needs an answer, which a group does not give; use --op ud");
  }
  if (s.queue_pairs > 1) return bad_input(op + "--latency uses one queue pair");
  if (s.events && s.op == Op::write) {
    return bad_input(op + "--latency with --events: a write wakes nobody; use write-imm or send");
  }
  return {};
}

/// The group is multicast, and not one that routers and switches treat specially.
bool usable_group(std::uint32_t group) noexcept {
  return group >> 28U == 0xEU && group >> 8U != 0xE00000U;
}

}  // namespace

std::string_view name_of(Op op) noexcept {
  return kNames[static_cast<std::size_t>(op)];
}

Result<Op> parse_op(std::string_view text) {
  const auto at = std::find(kNames.begin(), kNames.end(), text);
  if (at != kNames.end()) return static_cast<Op>(at - kNames.begin());
  std::string allowed;
  for (const auto name : kNames) allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  return bad_input("perf: --op '" + std::string(text) + "' is unknown; allowed: " + allowed);
}

Result<void> check(Settings& s) {
  if (auto ok = check_numbers(s); !ok) return ok;
  if (auto ok = check_combinations(s); !ok) return ok;
  if (s.op == Op::multicast && !usable_group(s.group)) {
    return bad_input("perf: --group is not a multicast address beyond 224.0.0.0/24");
  }
  // A whole list must find room while all before it wait for one completion.
  const std::uint32_t most = s.depth - s.post_list + 1;
  if (s.signal_every == 0) s.signal_every = std::clamp(s.depth / 2, 1U, most);
  if (s.signal_every > most) {
    return bad_input("perf: --signal-every " + std::to_string(s.signal_every) +
                     " leaves no room for a list: with --depth " + std::to_string(s.depth) +
                     " and --post-list " + std::to_string(s.post_list) + " at most " +
                     std::to_string(most));
  }
  return {};
}

std::string difference_of(const Settings& server, const Settings& client) {
  const auto differ = [](const char* flag, const std::string& here, const std::string& there) {
    return std::string(flag) + " is " + here + " at the server and " + there + " at the client";
  };
  const auto word = [](bool on) { return std::string(on ? "on" : "off"); };
  if (server.op != client.op) {
    return differ("--op", std::string(name_of(server.op)), std::string(name_of(client.op)));
  }
  if (server.latency != client.latency) {
    return differ("--latency", word(server.latency), word(client.latency));
  }
  if (server.verify_all != client.verify_all) {
    return differ("--verify-all", word(server.verify_all), word(client.verify_all));
  }
  struct Number {
    const char* flag;
    std::uint32_t here, there;
  };
  for (const Number& n :
       {Number{"--size", server.size, client.size}, Number{"--depth", server.depth, client.depth},
        Number{"--queue-pairs", server.queue_pairs, client.queue_pairs},
        Number{"--group (as a number)", server.group, client.group}}) {
    if (n.here != n.there) {
      return differ(n.flag, std::to_string(n.here), std::to_string(n.there));
    }
  }
  return {};
}

}  // namespace selmcast::perf
