// All ranks start or none does, whatever becomes of one of them meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "sync/roster.h"
#include "tests/unit/store/support.h"

namespace selmcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::uint32_t kWorld = 4;
constexpr Rank kOdd = 2;  ///< The rank that something happens to.

class Start : public testing::Test {
 protected:
  void SetUp() override {
    server_ = test::serve(test::socket_at(folder_.file("store")), kWorld);
    for (Rank rank = 0; rank < kWorld; ++rank) {
      auto client = connect_store(server_->address(), rank, kWorld, 5s);
      ASSERT_TRUE(client) << client.error().message;
      clients_.push_back(std::move(client).value());
    }
  }

  /// What the ranks hear, in order, when `odd` is done in place of one rank's start.
  template <class Odd>
  std::vector<std::string> start(Duration timeout, Odd odd) {
    std::vector<std::string> heard(kWorld);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        auto word = rank == kOdd ? odd(clients_[rank], timeout)
                                 : agree_on_start(*clients_[rank], {}, timeout);
        heard[rank] = word ? "starts" : word.error().message;
      });
    }
    for (auto& thread : threads) thread.join();
    return heard;
  }

  test::TemporaryDirectory folder_;
  std::unique_ptr<StoreServer> server_;
  std::vector<std::unique_ptr<Rendezvous>> clients_;
};

using Client = std::unique_ptr<Rendezvous>;

TEST_F(Start, AllTogether) {
  const auto heard = start(
      5s, [](Client& client, Duration timeout) { return agree_on_start(*client, {}, timeout); });
  EXPECT_THAT(heard, testing::Each("starts"));
}

TEST_F(Start, OneThatCannotEndsAllWithItsReason) {
  const auto heard = start(5s, [](Client& client, Duration timeout) {
    return agree_on_start(*client, unavailable("no memory for an accumulator"), timeout);
  });
  EXPECT_EQ(heard[kOdd], "no memory for an accumulator");
  for (Rank rank = 0; rank < kWorld; ++rank) {
    if (rank == kOdd) continue;
    EXPECT_THAT(heard[rank], HasSubstr("rank 2 could not start: no memory for an accumulator"));
  }
}

TEST_F(Start, AFailureThatFollowsFromAnotherRanksNamesThatToo) {
  ASSERT_FALSE(agree_on_start(*clients_[kOdd], failed("rank 2: no thread"), 5s));
  const auto later = agree_on_start(*clients_[0], failed("rank 2 is gone"), 5s);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().message,
            "rank 2 is gone; before that rank 2 could not start: rank 2: no thread");
}

TEST_F(Start, OneThatDiesBeforeEndsAll) {
  const auto heard = start(5s, [](Client& client, Duration) {
    client.reset();  // Without goodbye.
    return Result<void>(failed("dead"));
  });
  for (Rank rank = 0; rank < kWorld; ++rank) {
    if (rank == kOdd) continue;
    EXPECT_THAT(heard[rank], HasSubstr("rank 2 was lost while the job started"));
  }
}

TEST_F(Start, OneThatIsSilentEndsAllInTime) {
  const auto heard = start(200ms, [](Client&, Duration) { return Result<void>(failed("silent")); });
  for (Rank rank = 0; rank < kWorld; ++rank) {
    if (rank == kOdd) continue;
    EXPECT_THAT(heard[rank], HasSubstr("rank 2 did not finish its set-up"));
  }
}

// Some ranks hear of the death first and others of the last rank's readiness; some are at their
// deadline: whichever is written first holds for all.
TEST_F(Start, WhateverComesFirstHoldsForEveryone) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    clients_.clear();
    server_.reset();
    SetUp();
    const bool late = random() % 3 == 0;  // Ready just when the others give up.
    const auto after = std::chrono::microseconds(late ? 18'000 + random() % 4'000 : random() % 300);
    auto heard = start(20ms, [&](Client& client, Duration timeout) -> Result<void> {
      std::this_thread::sleep_for(after);
      if (late) return agree_on_start(*client, {}, timeout);
      auto put = client->put("set-up/2", {});
      client.reset();  // Dies at once, ready or not in the others' eyes.
      return put;
    });
    const std::string first = heard[0];
    for (Rank rank = 0; rank < kWorld; ++rank) {
      if (rank == kOdd && !late) continue;
      EXPECT_EQ(heard[rank] == "starts", first == "starts") << trial << ": " << heard[rank];
    }
  }
}

}  // namespace
}  // namespace selmcast
