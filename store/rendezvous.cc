#include "store/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "store/keys.h"

namespace selmcast {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kFile = "file:";

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(duration).count());
  return text;
}

Error bad_address(std::string_view text, const char* why) {
  return bad_input("rendezvous address '" + std::string(text) + "': " + why +
                   "; allowed are tcp://HOST:PORT and file:PATH");
}

Result<StoreAddress> parse_tcp(std::string_view text) {
  const std::string_view rest = text.substr(kTcp.size());
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text, "the port is missing");
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad_address(text, "an IPv6 host goes in brackets, tcp://[::1]:PORT");
  }
  if (host.empty()) return bad_address(text, "the host is missing");
  if (host.find('\0') != std::string_view::npos)
    return bad_address(text, "the host has a NUL byte");
  StoreAddress out;
  out.kind = StoreAddress::Kind::tcp;
  out.host = host;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (port.empty() || error != std::errc{} || end != port.data() + port.size()) {
    return bad_address(text, "the port is not a number from 0 to 65535");
  }
  return out;
}

}  // namespace

Result<StoreAddress> parse_store_address(std::string_view text) {
  if (text.starts_with(kTcp)) return parse_tcp(text);
  if (!text.starts_with(kFile)) return bad_address(text, "unknown form");
  StoreAddress out;
  out.path = text.substr(kFile.size());
  if (out.path.empty()) return bad_address(text, "the path is missing");
  if (out.path.find('\0') != std::string::npos) return bad_address(text, "the path has a NUL byte");
  return out;
}

std::string to_string(const StoreAddress& address) {
  if (address.kind == StoreAddress::Kind::unix_socket) return std::string(kFile) + address.path;
  const bool v6 = address.host.find(':') != std::string::npos;
  return std::string(kTcp) + (v6 ? "[" + address.host + "]" : address.host) + ":" +
         std::to_string(address.port);
}

Result<Bytes> wait_for_key(Rendezvous& rendezvous, std::string_view key, Duration timeout,
                           std::string_view what, std::optional<Rank> from) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + timeout;
  const auto waiting = [&] {
    return "rank " + std::to_string(rendezvous.rank()) + " waiting for " + std::string(what);
  };
  while (true) {
    if (auto value = rendezvous.try_get(key)) return std::move(*value);
    if (from && rendezvous.lost(*from)) {
      return failed(waiting() + ": rank " + std::to_string(*from) + " was lost");
    }
    const Duration left = deadline - clock.now();
    if (left <= Duration::zero()) {
      return failed(waiting() + ": key '" + std::string(key) + "' did not appear within " +
                    seconds_text(timeout));
    }
    if (auto changed = rendezvous.update(left); !changed) {
      return Error{changed.error().kind, waiting() + ": " + changed.error().message};
    }
  }
}

std::string rank_name(Rank rank) {
  return "rank " + std::to_string(rank);
}

Result<void> put_own(Rendezvous& rendezvous, std::string_view kind,
                     std::span<const std::byte> value) {
  return rendezvous.put(keys::of_rank(kind, rendezvous.rank()), value);
}

Result<void> each_value(Rendezvous& rendezvous, std::string_view kind, Duration timeout,
                        std::string_view does,
                        const std::function<Result<void>(Rank, const Bytes&)>& use) {
  for (Rank rank = 0; rank < rendezvous.world(); ++rank) {
    auto bytes = wait_for_key(rendezvous, keys::of_rank(kind, rank), timeout,
                              rank_name(rank) + " " + std::string(does), rank);
    if (!bytes) return std::move(bytes).error();
    if (auto ok = use(rank, *bytes); !ok) return ok;
  }
  return {};
}

}  // namespace selmcast
