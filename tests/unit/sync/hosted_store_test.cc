// The store in rank 0's process: it is there for ranks that start before it, and until all have
// left.
#include "sync/hosted_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "selmcast/worker.h"

namespace selmcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class HostedStore : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "selmcast-hosted-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    at_.path = folder + "/store";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  WorkerConfig config(Rank rank, std::uint32_t world) const {
    WorkerConfig out;
    out.rendezvous = to_string(at_);
    out.rank = rank;
    out.world = world;
    out.transport = "shm";
    out.policy = "select=all";
    out.links = LinkTable{std::vector<Kbps>(world, 800'000), std::vector<Kbps>(world, 800'000)};
    return out;
  }

  std::string folder_;
  StoreAddress at_;
};

TEST_F(HostedStore, RankZeroMayStartLastAndNobodyIsCutOffAtTheEnd) {
  constexpr std::uint32_t kWorld = 3;
  for (int job = 0; job < 10; ++job) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        if (rank == 0) std::this_thread::sleep_for(100ms);
        auto worker = Worker::join(config(rank, kWorld));
        ASSERT_TRUE(worker) << worker.error().message;
        std::vector<float> parameters(1000, static_cast<float>(rank));
        auto added = (*worker)->add_parameters(parameters);
        ASSERT_TRUE(added) << added.error().message;
        auto round = (*worker)->synchronize();
        ASSERT_TRUE(round) << round.error().message;
        EXPECT_FLOAT_EQ(parameters.back(), 1.0F);
        auto left = (*worker)->leave();
        EXPECT_TRUE(left) << rank << ": " << left.error().message;
        if (rank != 0) return;
        // Nobody listens any more: the store went with the last of the others.
        EXPECT_FALSE(std::filesystem::exists(at_.path));
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST_F(HostedStore, RankZeroLeavesLast) {
  std::atomic<bool> left{false};
  std::thread other([&] {
    auto worker = Worker::join(config(1, 2));
    ASSERT_TRUE(worker) << worker.error().message;
    std::this_thread::sleep_for(300ms);
    EXPECT_FALSE(left);
    EXPECT_TRUE((*worker)->leave());
  });
  auto host = Worker::join(config(0, 2));
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_TRUE((*host)->leave());
  left = true;
  EXPECT_FALSE(std::filesystem::exists(at_.path));
  other.join();
}

TEST_F(HostedStore, AServedAddressIsRefusedWithWhatToSet) {
  const auto server = StoreServer::start(at_, 1);
  ASSERT_TRUE(server) << server.error().message;
  auto own = config(0, 1);
  const auto refused = Worker::join(own);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
  for (const std::string& words :
       {to_string(at_), std::string("in use"), std::string("WorkerConfig::host_store = false")}) {
    EXPECT_THAT(refused.error().message, HasSubstr(words));
  }
  own.host_store = false;
  const auto joined = Worker::join(own);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_TRUE((*joined)->leave());
  EXPECT_EQ((*server)->gone(), 1U);
}

TEST_F(HostedStore, OtherRanksHearAtOnceThatRankZeroGaveUp) {
  auto guest = config(1, 2);
  std::thread other([&] {
    auto worker = Worker::join(guest);
    ASSERT_TRUE(worker) << worker.error().message;
    std::vector<float> parameters(10);
    const auto begin = std::chrono::steady_clock::now();
    const auto added = (*worker)->add_parameters(parameters);
    ASSERT_FALSE(added);
    EXPECT_THAT(added.error().message, HasSubstr("rank 0"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  });
  {
    const auto host = Worker::join(config(0, 2));
    ASSERT_TRUE(host) << host.error().message;
  }  // Without leave().
  other.join();
}

TEST_F(HostedStore, DepartureIsThatOfAllRanksAndTheWaitForItEnds) {
  const auto server = StoreServer::start(at_, 2);
  ASSERT_TRUE(server) << server.error().message;
  auto first = connect_store(at_, 0, 2, 5s);
  ASSERT_TRUE(first) << first.error().message;
  auto second = connect_store(at_, 1, 2, 5s);
  ASSERT_TRUE(second) << second.error().message;
  (*first)->leave();
  const auto begin = std::chrono::steady_clock::now();
  wait_for_departure(**server, 2, 100ms);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 100ms);
  EXPECT_EQ((*server)->gone(), 1U);
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    (*second)->leave();
  });
  wait_for_departure(**server, 2, 60s);
  EXPECT_EQ((*server)->gone(), 2U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);
  later.join();
}

TEST_F(HostedStore, PortZeroIsRefusedForItWouldBeAnotherOneOnEachRank) {
  for (const Rank rank : {0U, 1U}) {
    auto own = config(rank, 2);
    own.rendezvous = "tcp://127.0.0.1:0";
    const auto refused = Worker::join(own);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(refused.error().message, HasSubstr("port 0"));
  }
}

}  // namespace
}  // namespace selmcast
