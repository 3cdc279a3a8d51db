#include "transport/verbs/ipoib.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>

#include "base/system_files.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint64_t kTypeInfiniband = 32;  // ARPHRD_INFINIBAND
constexpr std::size_t kHardwareBytes = 20;     // flags and queue pair, 4; GID, 16
constexpr std::size_t kIdentifierBytes = 8;    // of a GID, at its end
constexpr std::uint32_t kDefaultPartition = 0xFFFF;

std::optional<std::uint32_t> hex_number(std::string_view digits) {
  std::uint32_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, value, 16);
  if (error != std::errc{} || at != end) return {};
  return value;
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

/// "80:00:02:08:fe:80:...", 20 bytes.
std::optional<std::array<std::uint8_t, kHardwareBytes>> hardware_address(std::string_view text) {
  std::array<std::uint8_t, kHardwareBytes> out{};
  if (text.size() != 3 * kHardwareBytes - 1) return {};
  for (std::size_t i = 0; i < kHardwareBytes; ++i) {
    const auto value = hex_number(text.substr(3 * i, 2));
    if (!value || (i + 1 < kHardwareBytes && text[3 * i + 2] != ':')) return {};
    out[i] = static_cast<std::uint8_t>(*value);
  }
  return out;
}

bool is_of_port(const ibv_gid& gid, const std::string& folder) {
  if (read_system_number(folder + "/type") != kTypeInfiniband) return false;
  const auto text = read_system_file(folder + "/address");
  const auto address = text ? hardware_address(first_line(*text)) : std::nullopt;
  return address && std::equal(address->end() - kIdentifierBytes, address->end(),
                               std::end(gid.raw) - kIdentifierBytes);
}

bool in_other_partition(const std::string& folder) {
  const auto text = read_system_file(folder + "/pkey");
  if (!text || !text->starts_with("0x")) return false;
  const auto key = hex_number(first_line(*text).substr(2));
  return key && *key != kDefaultPartition;
}

}  // namespace

std::string ipoib_interface(const ibv_gid& gid, const std::string& folder) {
  using Rank = std::tuple<bool, bool, std::string>;  // the least is the best
  std::optional<Rank> best;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string path = at->path();
    if (!is_of_port(gid, path)) continue;
    const std::string name = at->path().filename();
    Rank rank{in_other_partition(path), !interface_ipv4(name), name};
    if (!best || rank < *best) best = std::move(rank);
  }
  return best ? std::get<std::string>(*best) : std::string();
}

std::string& interfaces_folder() {
  static std::string folder = "/sys/class/net";
  return folder;
}

std::optional<std::uint32_t> interface_ipv4(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::optional<std::uint32_t> out;
  for (const ifaddrs* at = list; at != nullptr && !out; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || name != at->ifa_name)
      continue;
    sockaddr_in address{};
    std::memcpy(&address, at->ifa_addr, sizeof address);
    out = ntohl(address.sin_addr.s_addr);
  }
  freeifaddrs(list);
  return out;
}

}  // namespace selmcast::verbs
