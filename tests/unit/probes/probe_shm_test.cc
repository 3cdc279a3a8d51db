// The probe on a real transport: one thread per rank, shared memory, a store behind a socket.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "probes/probe.h"
#include "transport/backends/open.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kWorld = 3;

class ProbeOnShm : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "probe-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    at_.path = directory_ / "store";
    auto server = StoreServer::start(at_, kWorld);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(server).value();
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  /// One rank from joining the store to leaving it; an empty result says why in `why`.
  std::vector<LinkEstimate> run_rank(Rank rank, std::string& why) const {
    auto store = connect_store(at_, rank, kWorld, std::chrono::seconds(20));
    if (!store) return why = store.error().message, std::vector<LinkEstimate>();
    TransportConfig place;
    place.job = job_;
    place.rank = rank;
    place.world = kWorld;
    auto transport = open_transport("shm", place);
    if (!transport) return why = transport.error().message, std::vector<LinkEstimate>();
    const PeerAddress own = (*transport)->address();
    static_cast<void>((*store)->put("address/" + std::to_string(rank), own.view()));
    std::vector<Endpoint> endpoints(kWorld);
    std::vector<EndpointId> ids(kWorld);
    for (Rank peer = 0; peer < kWorld; ++peer) {
      if (peer == rank) continue;
      auto bytes = wait_for_key(**store, "address/" + std::to_string(peer),
                                std::chrono::seconds(20), "an address", peer);
      if (!bytes) return why = bytes.error().message, std::vector<LinkEstimate>();
      PeerAddress address;
      address.size = static_cast<std::uint32_t>(bytes->size());
      std::copy(bytes->begin(), bytes->end(), address.bytes.begin());
      auto endpoint = (*transport)->connect(address);
      if (!endpoint) return why = endpoint.error().message, std::vector<LinkEstimate>();
      endpoints[peer] = std::move(endpoint).value();
      ids[peer] = endpoints[peer].id();
    }
    ProbeConfig config;
    config.host_of_rank.assign(kWorld, 0);
    config.train_bytes_max = 8U << 20U;
    auto probe = Probe::create(**transport, **store, ids, config);
    if (!probe) return why = probe.error().message, std::vector<LinkEstimate>();
    auto estimates = run_probe(**probe, **transport, SteadyClock());
    (*store)->leave();
    if (!estimates) return why = estimates.error().message, std::vector<LinkEstimate>();
    return *estimates;
  }

  std::filesystem::path directory_;
  StoreAddress at_;
  std::unique_ptr<StoreServer> server_;
  std::uint64_t job_ =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
};

TEST_F(ProbeOnShm, AllRanksReachTheSameEstimates) {
  if (const auto opened = open_transport("shm", TransportConfig{}); !opened) {
    GTEST_SKIP() << opened.error().message;
  }
  std::vector<std::vector<LinkEstimate>> estimates(kWorld);
  std::vector<std::string> why(kWorld);
  std::vector<std::thread> threads;
  for (Rank r = 0; r < kWorld; ++r) {
    threads.emplace_back([&, r] { estimates[r] = run_rank(r, why[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (Rank r = 0; r < kWorld; ++r) {
    ASSERT_EQ(estimates[r].size(), kWorld) << why[r];
    for (Rank of = 0; of < kWorld; ++of) {
      const LinkEstimate& e = estimates[r][of];
      EXPECT_GT(e.transmit.low_kbps, 0U);
      EXPECT_GT(e.receive.low_kbps, 0U);
      EXPECT_GT(e.latency, Duration::zero());
      EXPECT_EQ(e.transmit.loss, 0.0) << "shared memory loses nothing";
      EXPECT_EQ(e.transmit.available_kbps, estimates[0][of].transmit.available_kbps);
      EXPECT_EQ(e.receive.available_kbps, estimates[0][of].receive.available_kbps);
    }
  }
}

}  // namespace
}  // namespace selmcast
