// The sockets of the store: addresses, listening, connecting. All are non-blocking and CLOEXEC.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "store/rendezvous.h"

namespace selmcast::store {

/// A listening socket and where it really listens.
struct Listener {
  UniqueFd fd;
  StoreAddress at;
  std::uint64_t device = 0;  ///< unix_socket: identity of the file, so that only it is removed.
  std::uint64_t inode = 0;
};

/// bad_input when the address is in use, malformed for this machine or not permitted. A socket file
/// whose server is dead is replaced; a file that is no socket is left alone and refused.
Result<Listener> listen_at(const StoreAddress& at);
/// Removes the socket file if it is still the one that `listener` made.
void remove_socket_file(const Listener& listener) noexcept;

/// One attempt until `deadline`. An empty fd means that nobody listens there yet: try again.
Result<UniqueFd> try_connect(const StoreAddress& at, TimePoint deadline);

/// Waits until `events` (POLLIN, POLLOUT) or an error condition; false when `deadline` passed.
bool wait_ready(int fd, short events, TimePoint deadline) noexcept;

/// Keep-alive and no delay on TCP; nothing on unix sockets.
void tune(int fd) noexcept;

}  // namespace selmcast::store
