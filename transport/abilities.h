// What some transports can do beside sending and receiving, each an interface that a transport has
// or has not (Transport::abilities()). Ask once, at set-up, and keep the pointer: it lives as long
// as the transport.
//
// Threads, errors, and which calls are set-up and which are data are as in transport.h: an ability
// belongs to the transport's one thread, and its data calls (marked so) neither allocate, lock,
// throw nor log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/units.h"
#include "transport/handles.h"

namespace selmcast {

/// Peers' memory can be read; their processors take no part in it.
class RemoteReads {
 public:
  /// As Transport::register_memory(), and peers may read it.
  virtual Result<Region> register_readable(std::span<const std::byte> memory) = 0;
  /// Memory that what is read arrives in. It stays the caller's and must outlive the Region.
  virtual Result<Region> register_target(std::span<std::byte> memory) = 0;
  /// Where peers read `at`, which lies in a region of register_readable(); a value without meaning
  /// for a region that is gone.
  virtual RemoteMemory remote_memory(RegionId region, const std::byte* at) const noexcept = 0;
  /// Data. Whether reads from this peer can be posted. The first call has the way to it made, which
  /// takes a while; after an error it is made anew.
  virtual bool can_read(EndpointId peer) noexcept = 0;
  /// Data. Takes a prefix, like Transport::post_sends(); each request taken has exactly one
  /// completion of kind read. A peer for which can_read() is false is backpressure.
  virtual PostOutcome post_reads(std::span<const ReadRequest> requests) noexcept = 0;

 protected:
  ~RemoteReads() = default;
};

/// The device can pace what it sends.
class Pacing {
 public:
  /// Has the device send no faster than `wire_kbps` in all, frames to all destinations together; 0:
  /// as fast as it can. A bound for what sessions pace anyway, so that their bursts leave evenly.
  /// False: not at this rate; it sends as fast as it can. System calls, hence for changes of plan
  /// only.
  virtual bool limit_rate(Kbps wire_kbps) noexcept = 0;

 protected:
  ~Pacing() = default;
};

/// Receives say when their frames came.
class Timestamps {
 public:
  /// Data. When the device took in the (last) frame of a receive completion, whose buffer is still
  /// lent: nanoseconds, never 0, on a clock of its own of which only differences mean something.
  virtual std::uint64_t arrival_ns(const Completion& receive) const noexcept = 0;

 protected:
  ~Timestamps() = default;
};

/// What is sent from a SharedMemory (base/shared_memory.h) is read by its receivers where it lies,
/// also after the send has completed: it must not change before they said that they need it no
/// more, or it was withdrawn.
class ReadInPlace {
 public:
  /// Data. Everything sent to this peer so far may change from now on. What the peer has not begun
  /// to read it drops; if it was just reading, its post_receives() says `broken`, once.
  virtual void withdraw(EndpointId peer) noexcept = 0;

 protected:
  ~ReadInPlace() = default;
};

/// Null: the transport has no such ability, here or as it was opened.
struct Abilities {
  RemoteReads* reads = nullptr;
  Pacing* pacing = nullptr;
  ReadInPlace* in_place = nullptr;
  const Timestamps* timestamps = nullptr;
};

}  // namespace selmcast
