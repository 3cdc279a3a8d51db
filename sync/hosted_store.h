// The job's store in the process of rank 0: how it starts, and how long it outlives its users.
#pragma once

#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "store/rendezvous.h"

namespace selmcast {

/// How long others get to hear why a job failed before its store goes.
inline constexpr Duration kLastWords = std::chrono::seconds(2);

/// Where the ranks of a job meet, from its text. Error (bad_input): no such form, or port 0, which
/// each rank would take for another one.
Result<StoreAddress> parse_rendezvous(std::string_view text);

/// Serves the store at `at`. The error (bad_input) says what is wrong with the address, and
/// `elsewhere`: how the caller is told that another process serves it.
Result<std::unique_ptr<StoreServer>> host_store(const StoreAddress& at, std::uint32_t world,
                                                std::string_view elsewhere);

/// Waits until each of the `world` ranks has left or is lost, at most `patience`, so that the end
/// of the store cuts off nobody who is about to leave.
void wait_for_departure(const StoreServer& server, std::uint32_t world, Duration patience);

}  // namespace selmcast
