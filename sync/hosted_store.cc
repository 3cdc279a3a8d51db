#include "sync/hosted_store.h"

#include <string>
#include <thread>

namespace selmcast {

namespace {
constexpr Duration kLook = std::chrono::milliseconds(5);
}

Result<StoreAddress> parse_rendezvous(std::string_view text) {
  auto address = parse_store_address(text);
  if (!address || address->kind != StoreAddress::Kind::tcp || address->port != 0) return address;
  return bad_input("rendezvous " + to_string(*address) +
                   ": port 0 names no port; give all ranks the same one");
}

Result<std::unique_ptr<StoreServer>> host_store(const StoreAddress& at, std::uint32_t world,
                                                std::string_view elsewhere) {
  auto server = StoreServer::start(at, world);
  if (server || server.error().kind != ErrorKind::bad_input) return server;
  return bad_input("rank 0 cannot serve the job's store at " + server.error().message +
                   "; if another process serves this job there, " + std::string(elsewhere));
}

void wait_for_departure(const StoreServer& server, std::uint32_t world, Duration patience) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + patience;
  while (server.gone() < world && clock.now() < deadline) std::this_thread::sleep_for(kLook);
}

}  // namespace selmcast
