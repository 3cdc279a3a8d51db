// What goes into a transport and comes out of it: trivially copyable values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace selmcast {

using RegionId = std::uint32_t;
using EndpointId = std::uint32_t;
using MembershipId = std::uint32_t;

enum class Status : std::uint8_t {
  ok,
  oversize,        ///< The request exceeds Capabilities; nothing of it was sent.
  not_registered,  ///< A slice lies outside its registered region; nothing of it was sent.
  closed,          ///< The endpoint or membership named was closed before the post.
  peer_lost,       ///< The peer is gone; on a `lost` completion, `user` is the EndpointId.
  failed,          ///< The operating system or device refused; see Transport::last_error().
};

enum class PostState : std::uint8_t {
  accepted,      ///< Every request was taken.
  backpressure,  ///< Queue full: the prefix was taken; poll() and post the rest again.
  broken,        ///< The transport cannot send any more; see Transport::last_error().
};

/// A prefix of `accepted` requests was taken; each of those gets exactly one send completion.
struct PostOutcome {
  std::uint32_t accepted = 0;
  PostState state = PostState::accepted;
};

/// A piece of registered memory to send from. Must stay valid and unchanged until the completion.
struct LocalSlice {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  RegionId region = 0;
};

/// Where a request goes: one peer, or the receivers of a group.
struct Destination {
  enum class Kind : std::uint8_t { endpoint, group };
  Kind kind = Kind::endpoint;
  std::uint32_t id = 0;  ///< EndpointId or MembershipId.

  /// Of an Endpoint or a Membership.
  template <class Handle>
  static Destination to(const Handle& handle) noexcept {
    return {Handle::kDestination, handle.id()};
  }
};

struct SendRequest {
  Destination destination;
  std::span<const LocalSlice> slices;  ///< The span itself is only read during the post.
  std::uint32_t frame_bytes = 0;       ///< Cut every so many bytes; 0 = one frame.
  std::uint64_t user = 0;              ///< Comes back in the completion.
};

/// Gives a receive buffer back that a completion lent.
struct ReceiveRequest {
  std::uint32_t token = 0;
};

/// Where peers read memory: a value that travels in frames. Opaque but for `address`, which
/// counts bytes.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::array<std::uint32_t, 3> keys{};
  bool operator==(const RemoteMemory&) const = default;
};

/// Reads `bytes` of a peer's memory. Reads from one peer are done in the order posted.
struct ReadRequest {
  EndpointId peer = 0;
  RemoteMemory from;
  std::byte* into = nullptr;  ///< Within `region`, one of RemoteReads::register_target().
  RegionId region = 0;
  std::uint32_t bytes = 0;
  std::uint64_t user = 0;  ///< Comes back in the completion.
};

struct Completion {
  enum class Kind : std::uint8_t {
    send,     ///< The request's memory may be reused; `user` is the request's.
    read,     ///< The bytes are there if `status` says ok; `user` is the request's.
    receive,  ///< One or more frames of equal size arrived back to back in `data`.
    lost,     ///< A connected peer vanished, told once; `user` is its EndpointId. A peer that
              ///< closed its endpoint or its transport in good order is not reported.
  };
  Kind kind = Kind::send;
  Status status = Status::ok;
  std::uint32_t token = 0;        ///< receive: pass to post_receives() when done with `data`.
  std::uint32_t bytes = 0;        ///< receive: size of `data`.
  std::uint32_t frame_bytes = 0;  ///< receive: every frame has this size but the last.
  const std::byte* data = nullptr;
  std::uint64_t user = 0;
  // receive, of frames that lie in the sender's memory (ReadInPlace); otherwise these are 0. `data`
  // has only the first `head_bytes` of each frame, back to back, and `body` has what is left of
  // each, `body_bytes` in all, back to back, too.
  const std::byte* body = nullptr;
  std::uint32_t head_bytes = 0;
  std::uint32_t body_bytes = 0;
};

}  // namespace selmcast
