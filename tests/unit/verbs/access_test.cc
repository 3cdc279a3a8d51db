// With which rights memory is registered: what may be written in any order, and what must not.
#include "tests/unit/verbs/support.h"

namespace selmcast::verbs_test {
namespace {

constexpr int kRelaxed = IBV_ACCESS_RELAXED_ORDERING;

class Access : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { expect_nothing_alive("registering"); }
};

TEST_F(Access, WhatIsLookedAtAfterItsCompletionMayBeWrittenInAnyOrder) {
  RankOn a("fake0"), b("fake0");
  const auto to_b = a.to(b);
  b.keep = true;
  std::vector<std::byte> here(8192);
  auto landing = a.transport->abilities().reads->register_target(here);
  ASSERT_TRUE(landing);
  EXPECT_EQ(fake::access_to(here.data()), IBV_ACCESS_LOCAL_WRITE | kRelaxed);
  const std::byte* frame = nullptr;
  a.send(Destination::to(to_b), 1, 0);
  std::array<Completion, 8> out;
  for (std::size_t i = 0; i < b.transport->poll(out); ++i) frame = out[i].data;
  ASSERT_NE(frame, nullptr);
  EXPECT_EQ(fake::access_to(frame), IBV_ACCESS_LOCAL_WRITE | kRelaxed);
}

TEST_F(Access, WhatPeersReadIsReadInOrder) {
  // A tag must not be read before the data that it stands for.
  RankOn a("fake0");
  std::vector<std::byte> there(8192);
  auto readable = a.transport->abilities().reads->register_readable(there);
  ASSERT_TRUE(readable);
  EXPECT_EQ(fake::access_to(there.data()), IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(fake::access_to(a.memory.data()), 0);
}

}  // namespace
}  // namespace selmcast::verbs_test
