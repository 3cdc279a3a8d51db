// Groups of a job as IPv4 multicast addresses: pure functions, shared by all backends whose
// multicast is the network's.
#pragma once

#include <cstdint>
#include <optional>

namespace selmcast {

/// Groups a job can name: GroupAddress::index lies below it.
inline constexpr std::uint32_t kGroupsPerJob = 1U << 18U;

/// What a job's groups are placed by.
std::uint64_t group_hash(std::uint64_t job) noexcept;

/// The address (host byte order) of group `index` of `job`, or nothing when index >= kGroupsPerJob.
/// It is 239.192.0.0/14 (organisation-local scope, RFC 2365 section 6.2) with the low 18 bits
/// index xor hash(job): one to one within a job, and since all 18 bits lie in the 23 that Ethernet
/// takes over (RFC 1112 section 6.4), distinct groups have distinct MAC addresses too. Two jobs of
/// a network may share one; their frames are then told apart by the frame header only.
std::optional<std::uint32_t> group_ipv4(std::uint64_t job, std::uint32_t index) noexcept;

/// The inverse: the index whose group has `ipv4` in `job`, or nothing outside 239.192.0.0/14.
std::optional<std::uint32_t> group_index(std::uint64_t job, std::uint32_t ipv4) noexcept;

}  // namespace selmcast
