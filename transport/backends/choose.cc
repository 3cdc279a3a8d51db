#include "transport/backends/choose.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "store/keys.h"
#include "transport/backends/route.h"
#include "transport/shm/shm_transport.h"
#if SELMCAST_HAVE_VERBS
#include "transport/verbs/device_port.h"
#endif

namespace selmcast {
namespace {

constexpr const char* kAuto = "auto";
constexpr std::size_t kReasonMax = 512;
/// Of the machine's memory, for the rings of all ranks together.
constexpr std::uint64_t kShmShare = 4;

/// What a rank tells the others first.
struct Offer {
  std::string name;
  std::uint64_t host = 0;
  bool bound = false;  ///< It names an interface or an MTU.
};

Bytes serialize(const Offer& offer) {
  return WireWriter().put_text(offer.name).put(offer.host).put(std::uint32_t{offer.bound}).take();
}

Result<Offer> parse_offer(Rank rank, std::span<const std::byte> bytes) {
  WireReader in(bytes);
  const auto name = in.get_bytes();
  const auto host = in.get<std::uint64_t>();
  const auto bound = in.get<std::uint32_t>();
  if (!name || !in.finished()) {
    return bad_input(rank_name(rank) + " published a malformed choice of transport");
  }
  return Offer{text_in(*name), *host, *bound != 0};
}

std::uint64_t shm_bytes(std::uint64_t world) {
  return world * (world - 1) * ShmOptions{}.ring_bytes;
}

/// The agreement of one rank with the others. Whatever is decided on has been published by all.
class Agreement {
 public:
  Agreement(Rendezvous& store, const StoreAddress& at, const TransportWish& wish)
      : store_(store), at_(at), wish_(wish) {}

  Result<ChosenTransport> reach();
  Result<ChosenTransport> open(const std::string& name) const;

 private:
  Result<std::vector<Bytes>> gather(const char* what, const Bytes& own);
  Result<std::string> refusal(const char* what, std::string own);
  Result<std::string> no_shm(const std::vector<Offer>& offers,
                             std::unique_ptr<Transport>& transport);
  Result<std::string> map_all(std::unique_ptr<Transport>& transport);

  Rendezvous& store_;
  const StoreAddress& at_;
  const TransportWish& wish_;
};

Result<std::vector<Bytes>> Agreement::gather(const char* what, const Bytes& own) {
  const std::string kind = keys::transport(what);
  if (auto ok = put_own(store_, kind, own); !ok) return ok.error();
  std::vector<Bytes> out;
  auto all = each_value(store_, kind, wish_.timeout, "to join",
                        [&](Rank, const Bytes& bytes) -> Result<void> {
                          out.push_back(bytes);
                          return {};
                        });
  if (!all) return std::move(all).error();
  return out;
}

/// `own` says why this rank cannot, or nothing. The first rank's reason that has one.
Result<std::string> Agreement::refusal(const char* what, std::string own) {
  own.resize(std::min(own.size(), kReasonMax));
  const auto raw = std::as_bytes(std::span(own));
  auto all = gather(what, Bytes(raw.begin(), raw.end()));
  if (!all) return std::move(all).error();
  for (Rank rank = 0; rank < all->size(); ++rank) {
    if (!(*all)[rank].empty()) return rank_name(rank) + ": " + text_in((*all)[rank]);
  }
  return std::string();
}

/// Memory of another process can be out of reach for many reasons (users, containers, namespaces),
/// so each rank tries it with each other one.
Result<std::string> Agreement::map_all(std::unique_ptr<Transport>& transport) {
  auto opened = open_transport("shm", wish_.config);
  auto unmade = refusal("shm", opened ? "" : opened.error().message);
  if (!unmade || !unmade->empty()) return unmade;
  const PeerAddress address = (*opened)->address();
  const auto own = address.view();
  auto addresses = gather("memory", Bytes(own.begin(), own.end()));
  if (!addresses) return std::move(addresses).error();
  std::string why;
  for (Rank rank = 0; rank < addresses->size() && why.empty(); ++rank) {
    const Bytes& bytes = (*addresses)[rank];
    PeerAddress peer;
    if (rank == store_.rank()) continue;
    if (bytes.size() > peer.bytes.size()) return bad_input(rank_name(rank) + ": bad address");
    peer.size = static_cast<std::uint32_t>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), peer.bytes.begin());
    if (auto mapped = (*opened)->connect(peer); !mapped) why = mapped.error().message;
  }
  auto unmapped = refusal("mapped", why);
  if (unmapped && unmapped->empty()) transport = std::move(opened).value();
  return unmapped;
}

/// Why shared memory will not do; else nothing, and `transport` is open.
Result<std::string> Agreement::no_shm(const std::vector<Offer>& offers,
                                      std::unique_ptr<Transport>& transport) {
  for (Rank rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].host != offers.front().host) {
      return rank_name(rank) + " is on another host than rank 0, or in another network namespace";
    }
    if (offers[rank].bound) return rank_name(rank) + " names an interface or an MTU";
  }
  // The same on every rank, for they are on one host.
  const auto memory = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES))) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t needed = shm_bytes(offers.size());
  if (memory != 0 && needed > memory / kShmShare) {
    return std::to_string(offers.size()) + " ranks would take " + std::to_string(needed >> 20U) +
           " MiB of memory";
  }
  return map_all(transport);
}

Result<ChosenTransport> Agreement::open(const std::string& name) const {
  ChosenTransport out;
  TransportConfig config = wish_.config;
  if (config.interface.empty() && name != "shm") {
    auto route = route_to(at_);
    if (name == "verbs") {
#if SELMCAST_HAVE_VERBS
      // A cluster's store may be reached through a network without RDMA: then any device will do.
      auto port = verbs::port_behind(route ? route->interface : std::string());
      if (!port) return std::move(port).error();
      config.interface = port->name;
      out.way = "device " + port->name + " was taken because ";
      out.way += port->behind ? "it is behind interface " + route->interface + " and " + route->why
                              : "it is the first usable one, and none is behind the interface that "
                                "leads to the store at " +
                                    to_string(at_);
#endif
    } else {
      if (!route) return std::move(route).error();
      config.interface = route->interface;
      config.ipv4 = route->ipv4;
      out.way = "interface " + route->interface + " was taken because " + route->why;
      out.only_here = route->loopback;
    }
  }
  auto transport = open_transport(name, config);
  if (!transport) {
    Error error = std::move(transport).error();
    if (!out.way.empty()) error.message += " (" + out.way + ")";
    return error;
  }
  out.transport = std::move(transport).value();
  return out;
}

Result<ChosenTransport> Agreement::reach() {
  const TransportConfig& config = wish_.config;
  const Offer own{wish_.name, wish_.host, !config.interface.empty() || config.mtu != 0};
  if (wish_.name != kAuto) {
    // Others may leave the choice to this rank.
    auto told = put_own(store_, keys::transport("offer"), serialize(own));
    if (!told) return std::move(told).error();
    return open(wish_.name);
  }
  auto told = gather("offer", serialize(own));
  if (!told) return std::move(told).error();
  std::vector<Offer> offers;
  for (Rank rank = 0; rank < told->size(); ++rank) {
    auto offer = parse_offer(rank, (*told)[rank]);
    if (!offer) return std::move(offer).error();
    offers.push_back(std::move(offer).value());
  }
  const auto chosen = [](Result<ChosenTransport> out, const std::string& name,
                         const std::string& why) {
    if (out) out->notice = "transport=auto chose " + name + ": " + why;
    return out;
  };
  for (Rank rank = 0; rank < offers.size(); ++rank) {
    const std::string& name = offers[rank].name;
    if (name != kAuto) return chosen(open(name), name, rank_name(rank) + " names it");
  }
  ChosenTransport shm;
  auto not_shm = no_shm(offers, shm.transport);
  if (!not_shm) return std::move(not_shm).error();
  if (shm.transport != nullptr) return chosen(std::move(shm), "shm", "all ranks are on one host");
  auto verbs = open("verbs");
  auto not_verbs = refusal("verbs", verbs ? "" : verbs.error().message);
  if (!not_verbs) return std::move(not_verbs).error();
  std::string why = "not shm, for " + *not_shm;
  if (not_verbs->empty()) {
    return chosen(std::move(verbs), "verbs", "every rank has a usable RDMA device; " + why);
  }
  verbs = failed("closed");  // Its memory is pinned.
  return chosen(open("uring"), "uring", why + "; not verbs, for " + *not_verbs);
}

}  // namespace

Result<ChosenTransport> choose_transport(Rendezvous& store, const StoreAddress& at,
                                         const TransportWish& wish) {
  return Agreement(store, at, wish).reach();
}

}  // namespace selmcast
