// IP multicast of the UDP backend on the loopback interface: who gets what, and nobody else.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "tests/unit/uring/support.h"
#include "transport/uring/udp_address.h"
#include "transport/uring/udp_socket.h"

namespace selmcast {
namespace {

// Of this process: tests of several processes run on one host at the same time.
const std::uint64_t kMulticastJob = 0x5E1'0002 + (static_cast<std::uint64_t>(::getpid()) << 32U);

class UringMulticast : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_uring(uring_config(kMulticastJob));
    if (!opened && opened.error().kind == ErrorKind::unavailable) {
      GTEST_SKIP() << opened.error().message;
    }
    ASSERT_TRUE(opened) << opened.error().message;
  }
};

/// Posts the group's index as a frame of four bytes to each group in `to`.
void announce(UringRank& sender, const std::vector<Membership>& to,
              const std::vector<std::uint32_t>& values, RegionId region) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const LocalSlice slice{reinterpret_cast<const std::byte*>(&values[i]), 4, region};
    const SendRequest request{Destination::to(to[i]), {&slice, 1}, 0, i};
    const std::size_t before = sender.sent.size();
    ASSERT_EQ(sender.transport->post_sends({&request, 1}).accepted, 1U);
    ASSERT_TRUE(run_until({&sender}, [&] { return sender.sent.size() > before; }));
    EXPECT_EQ(sender.sent.back().status, Status::ok) << sender.transport->last_error();
  }
}

std::multiset<std::uint32_t> announced(const UringRank& rank) {
  std::multiset<std::uint32_t> out;
  for (const auto& r : rank.received) {
    EXPECT_EQ(r.data.size(), 4U);
    std::uint32_t value = 0;
    if (r.data.size() == 4) std::memcpy(&value, r.data.data(), 4);
    out.insert(value);
  }
  return out;
}

TEST_F(UringMulticast, OnePostReachesEightMembers) {
  UringRank sender(kMulticastJob);
  std::vector<std::unique_ptr<UringRank>> members;
  std::vector<UringRank*> all = {&sender};
  std::vector<Membership> joined;
  for (int i = 0; i < 8; ++i) {
    members.push_back(std::make_unique<UringRank>(kMulticastJob));
    auto membership = members.back()->transport->join({5}, JoinAs::receiver);
    ASSERT_TRUE(membership) << membership.error().message;
    joined.push_back(std::move(*membership));
    all.push_back(members.back().get());
  }
  auto group = sender.transport->join({5}, JoinAs::send_only);
  const auto memory = pattern_bytes(62'804, 1);
  auto region = sender.transport->register_memory(memory);
  ASSERT_TRUE(group && region);
  const LocalSlice slice{memory.data(), 62'804, region->id()};
  const SendRequest request{Destination::to(*group), {&slice, 1}, 8972, 9};
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(sender.transport->post_sends({&request, 1}).accepted, 1U);
  }
  EXPECT_TRUE(run_until(all, [&] {
    for (const auto& m : members) {
      if (m->transport->counters().received_bytes < 10 * 62'804) return false;
    }
    return sender.sent.size() == 10;
  }));
  EXPECT_EQ(sender.transport->counters().sent_bytes, 10 * 62'804U);
  for (const auto& m : members) {
    std::vector<std::byte> got;
    for (const auto& r : m->received) got.insert(got.end(), r.data.begin(), r.data.end());
    ASSERT_EQ(got.size(), 10 * memory.size());
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_TRUE(std::equal(memory.begin(), memory.end(),
                             got.begin() + static_cast<std::ptrdiff_t>(i * memory.size())));
    }
    EXPECT_EQ(m->transport->counters().received_frames, 70U);
  }
  EXPECT_TRUE(sender.received.empty());
}

TEST_F(UringMulticast, NobodyIsHandedAGroupItDidNotJoin) {
  // Each of 50 groups has two of four ranks as members, so that every rank holds about 25
  // memberships: more than one socket takes by default.
  constexpr std::uint32_t kGroups = 50;
  std::vector<std::unique_ptr<UringRank>> ranks;
  std::vector<UringRank*> all;
  std::vector<Membership> held;
  std::vector<std::multiset<std::uint32_t>> expected(4);
  for (std::uint32_t r = 0; r < 4; ++r) {
    ranks.push_back(std::make_unique<UringRank>(kMulticastJob));
    all.push_back(ranks.back().get());
    for (std::uint32_t g = 0; g < kGroups; ++g) {
      if (g % 4 != r && (g + 1 + (g / 4) % 3) % 4 != r) continue;
      auto membership = ranks[r]->transport->join({g}, JoinAs::receiver);
      ASSERT_TRUE(membership) << membership.error().message;
      held.push_back(std::move(*membership));
      expected[r].insert(g);
    }
    ASSERT_GT(expected[r].size(), 20U);
  }
  UringRank sender(kMulticastJob);
  all.push_back(&sender);
  std::vector<Membership> to;
  std::vector<std::uint32_t> values(kGroups);
  for (std::uint32_t g = 0; g < kGroups; ++g) {
    auto membership = sender.transport->join({g}, JoinAs::send_only);
    ASSERT_TRUE(membership);
    to.push_back(std::move(*membership));
    values[g] = g;
  }
  auto region = sender.transport->register_memory(std::as_bytes(std::span(values)));
  ASSERT_TRUE(region);
  announce(sender, to, values, region->id());
  run_until(all, [&] {
    for (std::size_t r = 0; r < 4; ++r) {
      if (ranks[r]->received.size() < expected[r].size()) return false;
    }
    return true;
  });
  run_for(all, std::chrono::milliseconds(50));
  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(announced(*ranks[r]), expected[r]) << "rank " << r;
  EXPECT_TRUE(sender.received.empty());
}

TEST_F(UringMulticast, LeavingStopsAGroupAlsoForWhatIsQueued) {
  UringRank sender(kMulticastJob);
  UringRank member(kMulticastJob);
  std::vector<Membership> to;
  std::vector<std::uint32_t> values = {0, 1};
  for (const std::uint32_t g : values) {
    auto membership = sender.transport->join({g}, JoinAs::send_only);
    ASSERT_TRUE(membership);
    to.push_back(std::move(*membership));
  }
  auto region = sender.transport->register_memory(std::as_bytes(std::span(values)));
  auto zero = member.transport->join({0}, JoinAs::receiver);
  auto one = member.transport->join({1}, JoinAs::receiver);
  auto one_again = member.transport->join({1}, JoinAs::receiver);
  ASSERT_TRUE(region && zero && one && one_again);
  announce(sender, to, values, region->id());
  // Both frames wait in the socket, since the member was not driven yet.
  zero->reset();
  one->reset();
  announce(sender, to, values, region->id());
  run_until({&member}, [&] { return member.received.size() >= 2; });
  run_for({&member}, std::chrono::milliseconds(50));
  EXPECT_EQ(announced(member), (std::multiset<std::uint32_t>{1, 1}));
  one_again->reset();
  announce(sender, to, values, region->id());
  run_for({&member}, std::chrono::milliseconds(50));
  EXPECT_EQ(member.received.size(), 2U);
  auto back = member.transport->join({0}, JoinAs::receiver);
  ASSERT_TRUE(back);
  announce(sender, to, values, region->id());
  run_until({&member}, [&] { return member.received.size() >= 3; });
  run_for({&member}, std::chrono::milliseconds(50));
  EXPECT_EQ(announced(member), (std::multiset<std::uint32_t>{0, 1, 1}));
}

TEST_F(UringMulticast, UnicastToTheGroupPortIsNotDelivered) {
  UringRank member(kMulticastJob);
  auto membership = member.transport->join({0}, JoinAs::receiver);
  ASSERT_TRUE(membership);
  UringRank stranger(kMulticastJob);
  const auto memory = pattern_bytes(100, 2);
  auto region = stranger.transport->register_memory(memory);
  auto endpoint = stranger.transport->connect(uring::encode_peer(
      {.ipv4 = INADDR_LOOPBACK, .port = uring::group_target(kMulticastJob, 0)->port}));
  ASSERT_TRUE(region && endpoint);
  const LocalSlice slice{memory.data(), 100, region->id()};
  const SendRequest request{Destination::to(*endpoint), {&slice, 1}, 0, 0};
  ASSERT_EQ(stranger.transport->post_sends({&request, 1}).accepted, 1U);
  run_for({&stranger, &member}, std::chrono::milliseconds(50));
  EXPECT_EQ(stranger.sent.size(), 1U);
  EXPECT_TRUE(member.received.empty());
}

TEST_F(UringMulticast, JobsOfOneHostDoNotHearEachOther) {
  UringRank ours(kMulticastJob);
  UringRank theirs(kMulticastJob + 1);
  auto our_group = ours.transport->join({0}, JoinAs::receiver);
  auto their_group = theirs.transport->join({0}, JoinAs::receiver);
  ASSERT_TRUE(our_group && their_group);
  UringRank sender(kMulticastJob);
  std::vector<Membership> to;
  auto membership = sender.transport->join({0}, JoinAs::send_only);
  ASSERT_TRUE(membership);
  to.push_back(std::move(*membership));
  const std::vector<std::uint32_t> values = {0};
  auto region = sender.transport->register_memory(std::as_bytes(std::span(values)));
  ASSERT_TRUE(region);
  announce(sender, to, values, region->id());
  EXPECT_TRUE(run_until({&ours, &theirs}, [&] { return ours.received.size() == 1; }));
  run_for({&ours, &theirs}, std::chrono::milliseconds(30));
  EXPECT_TRUE(theirs.received.empty());
}

TEST_F(UringMulticast, AnotherProcessOfTheHostHearsOnlyItsGroups) {
  // The child joins the odd ones of 44 groups (22 memberships) and tells what it heard.
  constexpr std::uint32_t kGroups = 44;
  std::array<int, 2> ready{};
  std::array<int, 2> answer{};
  ASSERT_EQ(pipe(ready.data()), 0);
  ASSERT_EQ(pipe(answer.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    UringRank member(kMulticastJob);
    std::vector<Membership> held;
    for (std::uint32_t g = 1; g < kGroups; g += 2) {
      auto membership = member.transport->join({g}, JoinAs::receiver);
      if (!membership) _exit(1);
      held.push_back(std::move(*membership));
    }
    if (write(ready[1], "r", 1) != 1) _exit(1);
    run_until({&member}, [&] { return member.received.size() == kGroups / 2; });
    run_for({&member}, std::chrono::milliseconds(50));
    std::vector<std::uint32_t> heard;
    for (const std::uint32_t value : announced(member)) heard.push_back(value);
    const auto size = static_cast<ssize_t>(heard.size() * 4);
    _exit(write(answer[1], heard.data(), heard.size() * 4) == size ? 0 : 1);
  }
  close(ready[1]);
  close(answer[1]);
  UringRank even(kMulticastJob);
  UringRank sender(kMulticastJob);
  std::vector<Membership> held;
  std::vector<Membership> to;
  std::vector<std::uint32_t> values(kGroups);
  std::multiset<std::uint32_t> expected_even;
  std::multiset<std::uint32_t> expected_odd;
  for (std::uint32_t g = 0; g < kGroups; ++g) {
    (g % 2 == 0 ? expected_even : expected_odd).insert(g);
    values[g] = g;
    auto membership = sender.transport->join({g}, JoinAs::send_only);
    ASSERT_TRUE(membership);
    to.push_back(std::move(*membership));
    if (g % 2 != 0) continue;
    auto receiving = even.transport->join({g}, JoinAs::receiver);
    ASSERT_TRUE(receiving) << receiving.error().message;
    held.push_back(std::move(*receiving));
  }
  auto region = sender.transport->register_memory(std::as_bytes(std::span(values)));
  ASSERT_TRUE(region);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  announce(sender, to, values, region->id());
  run_until({&even}, [&] { return even.received.size() >= expected_even.size(); });
  run_for({&even}, std::chrono::milliseconds(50));
  EXPECT_EQ(announced(even), expected_even);
  std::vector<std::uint32_t> heard(4 * kGroups);
  const ssize_t size = read(answer[0], heard.data(), heard.size() * 4);
  ASSERT_GE(size, 0);
  heard.resize(static_cast<std::size_t>(size) / 4);
  EXPECT_EQ(std::multiset<std::uint32_t>(heard.begin(), heard.end()), expected_odd);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ready[0]);
  close(answer[0]);
}

TEST_F(UringMulticast, AHeldGroupPortIsReportedWithTheRemedy) {
  const std::uint64_t job = kMulticastJob + 77;
  const UniqueFd holder(socket(AF_INET, SOCK_DGRAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uring::group_target(job, 0)->port);
  ASSERT_EQ(bind(holder.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  UringRank rank(job);
  const auto membership = rank.transport->join({0}, JoinAs::receiver);
  ASSERT_FALSE(membership);
  EXPECT_EQ(membership.error().kind, ErrorKind::unavailable);
  EXPECT_NE(membership.error().message.find(std::to_string(uring::group_target(job, 0)->port)),
            std::string::npos);
}

}  // namespace
}  // namespace selmcast
