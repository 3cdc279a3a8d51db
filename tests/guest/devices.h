// What the RDMA devices of the machine are called, for tests that run in a guest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace selmcast::guest {

/// Of SELMCAST_DEVICES, "rxe0,rxe1"; rxe0 alone where that is not set.
std::vector<std::string> device_names();

/// A rank of a job of two on its device; a test failure and null where it cannot be opened.
std::unique_ptr<Transport> open_rank(Rank rank, std::uint64_t job);

/// Of the first RoCE v2 GID of the device that is an IPv6 address but not link-local, else any IPv6
/// one; 0 where there is none.
unsigned ipv6_gid_index(const std::string& device);

}  // namespace selmcast::guest
