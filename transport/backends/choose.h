// The transport of a job: opens the one that is named, or has all ranks agree on the best that
// every one of them can use.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "store/rendezvous.h"
#include "transport/backends/open.h"

namespace selmcast {

struct TransportWish {
  std::string name;        ///< As open_transport() takes; `auto` asks for the agreement.
  TransportConfig config;  ///< `interface` empty: the one by which the store is reached.
  std::uint64_t host = 0;  ///< Equal for ranks of one host and network namespace.
  Duration timeout{};      ///< Longest wait for another rank's word.
};

struct ChosenTransport {
  std::unique_ptr<Transport> transport;
  std::string notice;      ///< After `auto`: what was chosen and why, the same on all ranks.
  std::string way;         ///< Where no interface was named: which was taken and why; else empty.
  bool only_here = false;  ///< It was lo, which leads to no other host.
};

/// Under `auto`, by rules that give the same answer on every rank: the transport that another rank
/// names, if one does. Else shm, if all ranks are on one host, none names an interface or an MTU,
/// and every rank has mapped every other one's memory. Else verbs, if every rank has opened an RDMA
/// device. Else uring. Called by all ranks at the same time; `store` is connected to `at`.
/// Errors: as open_transport()'s, naming the interface and why it was taken where none was named;
/// and a rank that is missing.
Result<ChosenTransport> choose_transport(Rendezvous& store, const StoreAddress& at,
                                         const TransportWish& wish);

}  // namespace selmcast
