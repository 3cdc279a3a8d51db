// transport=auto: all ranks come to the same answer, whatever differs between them.
#include "transport/backends/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/store/support.h"

namespace selmcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

/// Ranks in threads of this process, each with a wish of its own.
class Choose : public testing::Test {
 protected:
  static TransportWish wish(Rank rank, std::uint32_t world) {
    TransportWish out;
    out.name = "auto";
    out.config.job = 7;
    out.config.rank = rank;
    out.config.world = world;
    out.host = 1;
    out.timeout = 10s;
    return out;
  }

  std::vector<ChosenTransport> choose(const std::vector<TransportWish>& wishes) {
    const auto world = static_cast<std::uint32_t>(wishes.size());
    const StoreAddress at = test::socket_at(folder_.file("store"));
    auto server = StoreServer::start(at, world);
    EXPECT_TRUE(server) << server.error().message;
    std::vector<ChosenTransport> out(world);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        auto store = connect_store(at, rank, world, 10s);
        ASSERT_TRUE(store) << store.error().message;
        auto chosen = choose_transport(**store, at, wishes[rank]);
        ASSERT_TRUE(chosen) << rank << ": " << chosen.error().message;
        out[rank] = std::move(chosen).value();
        (*store)->leave();
      });
    }
    for (auto& thread : threads) thread.join();
    return out;
  }

  static void expect_all(const std::vector<ChosenTransport>& chosen, const std::string& name,
                         const std::string& notice) {
    for (const ChosenTransport& one : chosen) {
      ASSERT_NE(one.transport, nullptr);
      EXPECT_EQ(one.transport->capabilities().name, name);
      EXPECT_THAT(one.notice, StartsWith("transport=auto chose " + name + ": "));
      EXPECT_THAT(one.notice, HasSubstr(notice));
      EXPECT_EQ(one.notice, chosen.front().notice);
    }
  }

  /// Why what needs uring cannot be tested here.
  static std::string no_uring() {
    for (const BackendState& state : backend_states()) {
      if (state.name == "uring" && !state.usable) return state.reason;
    }
    return {};
  }

  test::TemporaryDirectory folder_;
};

TEST_F(Choose, RanksOfOneHostShareMemory) {
  auto chosen = choose({wish(0, 3), wish(1, 3), wish(2, 3)});
  expect_all(chosen, "shm", "all ranks are on one host");
  for (const ChosenTransport& one : chosen) {
    EXPECT_EQ(one.way, "");
    EXPECT_FALSE(one.only_here);
  }
  // What the trial connected is free again for the job itself.
  for (Rank rank = 0; rank < 3; ++rank) {
    for (Rank peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      const auto again = chosen[rank].transport->connect(chosen[peer].transport->address());
      EXPECT_TRUE(again) << again.error().message;
    }
  }
}

TEST_F(Choose, WhatOneRankNamesIsTakenByAll) {
  auto wishes = std::vector{wish(0, 3), wish(1, 3), wish(2, 3)};
  wishes[1].name = "shm";
  auto chosen = choose(wishes);
  EXPECT_EQ(chosen[1].notice, "");
  EXPECT_STREQ(chosen[1].transport->capabilities().name, "shm");
  chosen.erase(chosen.begin() + 1);
  expect_all(chosen, "shm", "rank 1 names it");
}

// Naming lo keeps RDMA devices out on machines that have some: none is called so.
TEST_F(Choose, OneRankOnAnotherHostKeepsAllFromSharedMemory) {
  if (const std::string why = no_uring(); !why.empty()) GTEST_SKIP() << why;
  auto wishes = std::vector{wish(0, 3), wish(1, 3), wish(2, 3)};
  wishes[2].host = 2;
  wishes[2].config.interface = "lo";
  const auto chosen = choose(wishes);
  expect_all(chosen, "uring", "not shm, for rank 2 is on another host than rank 0");
  EXPECT_THAT(chosen[0].notice, HasSubstr("not verbs, for rank "));
  EXPECT_THAT(chosen[0].way, StartsWith("interface lo was taken because the store at file:"));
  EXPECT_TRUE(chosen[0].only_here);
  EXPECT_EQ(chosen[2].way, "");
  EXPECT_FALSE(chosen[2].only_here);
}

TEST_F(Choose, AnInterfaceIsNotNamedForNothing) {
  if (const std::string why = no_uring(); !why.empty()) GTEST_SKIP() << why;
  auto wishes = std::vector{wish(0, 2), wish(1, 2)};
  wishes[0].config.interface = "lo";
  expect_all(choose(wishes), "uring", "not shm, for rank 0 names an interface or an MTU");
}

TEST_F(Choose, MemoryThatOneRankCannotMapIsUsedByNobody) {
  if (const std::string why = no_uring(); !why.empty()) GTEST_SKIP() << why;
  auto wishes = std::vector{wish(0, 3), wish(1, 3), wish(2, 3)};
  // Another job's memory is refused by whoever maps it.
  wishes[2].config.job = 8;
  const auto chosen = choose(wishes);
  for (const ChosenTransport& one : chosen) {
    ASSERT_NE(one.transport, nullptr);
    EXPECT_STRNE(one.transport->capabilities().name, "shm");
    EXPECT_THAT(one.notice, HasSubstr("not shm, for rank 0: "));
    EXPECT_EQ(one.notice, chosen.front().notice);
  }
}

TEST_F(Choose, TheInterfaceThatFailsIsSaidToBeTakenAndWhy) {
  if (const std::string why = no_uring(); !why.empty()) GTEST_SKIP() << why;
  LocalStore store(1);
  auto own = wish(0, 1);
  own.name = "uring";
  own.config.mtu = 100;
  StoreAddress at;
  at.path = "/run/the-store";
  const auto refused = choose_transport(*store.client(0), at, own);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("(interface lo was taken because the store at file:/run/the-store is on "
                        "this host)"));
}

}  // namespace
}  // namespace selmcast
