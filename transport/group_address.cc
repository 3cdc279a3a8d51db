#include "transport/group_address.h"

#include "base/random.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kGroupBase = 0xEFC00000U;  // 239.192.0.0
constexpr std::uint32_t kGroupMask = kGroupsPerJob - 1;
constexpr std::uint64_t kGroupSalt =
    0x75'64'70'2D'67'72'6F'75U;  // keeps other users of the job id apart

}  // namespace

std::uint64_t group_hash(std::uint64_t job) noexcept {
  return mix_seed(job ^ kGroupSalt);
}

std::optional<std::uint32_t> group_ipv4(std::uint64_t job, std::uint32_t index) noexcept {
  if (index >= kGroupsPerJob) return std::nullopt;
  return kGroupBase | ((index ^ static_cast<std::uint32_t>(group_hash(job))) & kGroupMask);
}

std::optional<std::uint32_t> group_index(std::uint64_t job, std::uint32_t ipv4) noexcept {
  if ((ipv4 & ~kGroupMask) != kGroupBase) return std::nullopt;
  return (ipv4 ^ static_cast<std::uint32_t>(group_hash(job))) & kGroupMask;
}

}  // namespace selmcast
