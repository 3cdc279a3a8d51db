// Owners of what is set up in a transport. Whoever holds one includes transport/transport.h.
#pragma once

#include <cstdint>
#include <utility>

#include "transport/requests.h"

namespace selmcast {

/// A multicast group of the job. Every rank of the job that names the same index means the same
/// group; backends map (their job id, index) to a network group.
struct GroupAddress {
  std::uint32_t index = 0;
};

enum class JoinAs : std::uint8_t { receiver, send_only };

class Transport;

namespace detail {
enum class HandleKind : std::uint8_t { region, endpoint, membership };
}

/// Move-only owner of something set up in a transport; its destructor undoes it. Must not outlive
/// the transport.
template <detail::HandleKind kind>
class TransportHandle {
 public:
  TransportHandle() = default;
  TransportHandle(Transport* owner, std::uint32_t id) noexcept : owner_(owner), id_(id) {}
  TransportHandle(TransportHandle&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), id_(other.id_) {}
  TransportHandle& operator=(TransportHandle&& other) noexcept {
    if (this != &other) {
      reset();
      owner_ = std::exchange(other.owner_, nullptr);
      id_ = other.id_;
    }
    return *this;
  }
  ~TransportHandle() { reset(); }

  /// What a request names when it goes to this handle.
  static constexpr auto kDestination =
      kind == detail::HandleKind::endpoint ? Destination::Kind::endpoint : Destination::Kind::group;
  std::uint32_t id() const noexcept { return id_; }
  explicit operator bool() const noexcept { return owner_ != nullptr; }
  void reset() noexcept;

 private:
  Transport* owner_ = nullptr;
  std::uint32_t id_ = 0;
};

using Region = TransportHandle<detail::HandleKind::region>;          ///< Registered memory.
using Endpoint = TransportHandle<detail::HandleKind::endpoint>;      ///< A connected peer.
using Membership = TransportHandle<detail::HandleKind::membership>;  ///< A joined group.

}  // namespace selmcast
