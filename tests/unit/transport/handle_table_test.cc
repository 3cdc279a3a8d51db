// Ids of what is set up, and the handles that own them.
#include "transport/handle_table.h"

#include <gmock/gmock.h>

#include <map>

#include "bench/null_transport.h"

namespace selmcast {
namespace {

TEST(HandleTable, StaleIdsAreNotFound) {
  HandleTable<int> table;
  const auto first = table.insert(10);
  const auto second = table.insert(20);
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, 0U);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(*table.find(*first), 10);
  EXPECT_EQ(table.erase(*first), 10);
  EXPECT_EQ(table.find(*first), nullptr);
  EXPECT_EQ(table.erase(*first), std::nullopt);
  const auto third = table.insert(30);
  ASSERT_TRUE(third);
  EXPECT_NE(*third, *first);
  EXPECT_EQ(table.find(*first), nullptr);
  EXPECT_EQ(*table.find(*third), 30);
  EXPECT_EQ(*table.find(*second), 20);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(~std::uint32_t{0}), nullptr);
}

TEST(HandleTable, HoldsExactlyItsPlaces) {
  HandleTable<int> table;
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < HandleTable<int>::kPlaces; ++i) {
    const auto id = table.insert(static_cast<int>(i));
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  EXPECT_EQ(table.insert(1), std::nullopt);
  EXPECT_TRUE(table.erase(ids[500]));
  EXPECT_TRUE(table.insert(2));
  EXPECT_EQ(table.insert(3), std::nullopt);
}

TEST(HandleTable, NamesEachValueByItsId) {
  HandleTable<int> table;
  std::map<std::uint32_t, int> expected;
  for (int value = 0; value < 5; ++value) expected[*table.insert(value)] = value;
  const std::uint32_t gone = std::next(expected.begin(), 2)->first;
  table.erase(gone);
  expected.erase(gone);
  expected[*table.insert(9)] = 9;  // in the place of the one that is gone, under another id
  std::map<std::uint32_t, int> seen;
  table.for_each([&](std::uint32_t id, int& value) {
    seen[id] = value;
    value += 100;
  });
  EXPECT_EQ(seen, expected);
  for (const auto& [id, value] : expected) EXPECT_EQ(*table.find(id), value + 100);
}

/// Forgets what its handles named.
class Owner final : public NullTransport {
 public:
  HandleTable<int> values;

 private:
  void release(detail::HandleKind, std::uint32_t id) noexcept override { values.erase(id); }
};

TEST(HandOut, TheHandleOwnsTheValue) {
  Owner owner;
  auto out = hand_out<detail::HandleKind::endpoint>(owner, owner.values, 7);
  ASSERT_TRUE(out);
  const std::uint32_t id = out->id();
  EXPECT_EQ(*owner.values.find(id), 7);
  out->reset();
  EXPECT_EQ(owner.values.find(id), nullptr);
}

TEST(HandOut, AFullTableSaysWhatToRelease) {
  Owner owner;
  for (std::size_t i = 0; i < HandleTable<int>::kPlaces; ++i) owner.values.insert(1);
  const auto region = hand_out<detail::HandleKind::region>(owner, owner.values, 1);
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().kind, ErrorKind::failed);
  EXPECT_THAT(region.error().message, testing::HasSubstr("65536 regions are registered already"));
  EXPECT_THAT(hand_out<detail::HandleKind::membership>(owner, owner.values, 1).error().message,
              testing::HasSubstr("65536 memberships are held already; release some"));
}

}  // namespace
}  // namespace selmcast
