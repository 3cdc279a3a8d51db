// Requests between their post and their completion.
#include "transport/send_ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

#include "base/random.h"

namespace selmcast {
namespace {

struct Entry : SendEntry {
  bool done = false;
};

Entry& post(SendLedger<Entry>& ledger, std::uint64_t user) {
  Entry& entry = ledger.next();
  entry = Entry{};
  entry.user = user;
  ledger.post();
  return entry;
}

std::vector<std::uint64_t> completed(SendLedger<Entry>& ledger, std::size_t room = 16) {
  std::vector<Completion> out(room);
  out.resize(ledger.complete(out, [](const Entry& entry) { return entry.done; }));
  std::vector<std::uint64_t> users;
  for (const Completion& completion : out) {
    EXPECT_EQ(completion.kind, Completion::Kind::send);
    users.push_back(completion.user);
  }
  return users;
}

TEST(SendLedger, HoldsItsDepthAndNoMore) {
  for (const std::uint32_t depth : {1U, 2U, 3U, 5U, 64U}) {
    SendLedger<Entry> ledger(depth);
    EXPECT_TRUE(ledger.empty());
    for (std::uint32_t i = 0; i < depth; ++i) {
      EXPECT_FALSE(ledger.full()) << depth;
      post(ledger, i).done = i == 0;
    }
    EXPECT_TRUE(ledger.full()) << depth;
    EXPECT_EQ(completed(ledger), std::vector<std::uint64_t>{0});
    EXPECT_FALSE(ledger.full()) << depth;
  }
}

TEST(SendLedger, ARequestWaitsForThoseBeforeIt) {
  SendLedger<Entry> ledger(4);
  Entry& first = post(ledger, 10);
  post(ledger, 11).done = true;
  EXPECT_TRUE(completed(ledger).empty());
  first.done = true;
  first.status = Status::failed;
  std::array<Completion, 1> one;
  ASSERT_EQ(ledger.complete(one, [](const Entry& entry) { return entry.done; }), 1U);
  EXPECT_EQ(one[0].user, 10U);
  EXPECT_EQ(one[0].status, Status::failed);
  EXPECT_EQ(completed(ledger), std::vector<std::uint64_t>{11});
  EXPECT_TRUE(ledger.empty());
}

TEST(SendLedger, VisitsThoseThatAreOpen) {
  SendLedger<Entry> ledger(4);
  post(ledger, 1).done = true;
  post(ledger, 2);
  post(ledger, 3);
  completed(ledger);
  std::vector<std::uint64_t> seen;
  ledger.for_each([&](Entry& entry) { seen.push_back(entry.user); });
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{2, 3}));
}

/// Against a plain queue, over many turns of the ring.
TEST(SendLedger, KeepsTheOrderOfThePostsWhateverTheOrderOfTheEnds) {
  for (const std::uint32_t depth : {3U, 8U, 13U}) {
    SplitMix64 random(depth);
    SendLedger<Entry> ledger(depth);
    struct Model {
      std::uint64_t user = 0, number = 0;
      bool done = false;
    };
    std::deque<Model> model;
    std::uint64_t user = 0;
    for (int step = 0; step < 5000; ++step) {
      ASSERT_EQ(ledger.empty(), model.empty());
      ASSERT_EQ(ledger.full(), model.size() == depth);
      if (!ledger.full() && random.chance(0.5)) {
        const std::uint32_t place = ledger.next_place();
        ASSERT_EQ(&ledger.next(), &ledger.in_place(place));
        model.push_back({user, ledger.posted(), false});
        post(ledger, user++);
      }
      if (!model.empty() && random.chance(0.6)) {
        Model& ends = model[random.below(static_cast<std::uint32_t>(model.size()))];
        ends.done = true;
        ledger.numbered(ends.number).done = true;
      }
      const std::size_t room = 1 + random.below(3);
      std::vector<std::uint64_t> expected;
      for (; expected.size() < room && !model.empty() && model.front().done; model.pop_front()) {
        expected.push_back(model.front().user);
      }
      ASSERT_EQ(completed(ledger, room), expected);
    }
  }
}

}  // namespace
}  // namespace selmcast
