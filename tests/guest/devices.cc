#include "tests/guest/devices.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "transport/verbs/device_port.h"
#include "transport/verbs/verbs_transport.h"

namespace selmcast::guest {

std::vector<std::string> device_names() {
  const char* const set = std::getenv("SELMCAST_DEVICES");
  std::istringstream text(set == nullptr ? "rxe0" : set);
  std::vector<std::string> out;
  for (std::string name; std::getline(text, name, ',');) out.push_back(name);
  return out;
}

std::unique_ptr<Transport> open_rank(Rank rank, std::uint64_t job) {
  TransportConfig config;
  config.job = job;
  config.rank = rank;
  config.world = 2;
  config.interface = device_names()[rank % device_names().size()];
  auto opened = open_verbs(config);
  EXPECT_TRUE(opened) << opened.error().message;
  return opened ? std::move(opened).value() : nullptr;
}

unsigned ipv6_gid_index(const std::string& device) {
  const auto opened = verbs::open_port({.device = device});
  if (!opened) return 0;
  unsigned local = 0;
  for (std::uint32_t i = 0; i < 16; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(opened->context.get(), 1, i, &entry, 0) != 0) continue;
    const auto kind = verbs::kind_of({.gid = entry.gid, .index = i, .type = entry.gid_type},
                                     IBV_LINK_LAYER_ETHERNET);
    if (kind == verbs::GidKind::rocev2_ipv6) return i;
    if (kind == verbs::GidKind::rocev2_link_local) local = i;
  }
  return local;
}

}  // namespace selmcast::guest
