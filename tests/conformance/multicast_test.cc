// Groups: one copy per member, none for others, join and leave; and a random mix of everything.
#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "tests/conformance/fixture.h"

namespace selmcast::conformance {
namespace {

TEST_P(Conformance, EachMemberGetsOneCopyAndOthersNone) {
  SELMCAST_OPEN_OR_SKIP(9);
  static constexpr std::uint32_t kFrames = 10;
  for (std::uint32_t members = 1; members <= 8; ++members) {
    for (Peer& peer : peers) {
      peer.frames.clear();
      peer.sends.clear();
    }
    std::vector<Membership> joined;
    for (std::uint32_t r = 1; r <= members; ++r)
      joined.push_back(join(r, members, JoinAs::receiver));
    const auto group = join(0, members, JoinAs::send_only);
    settle();
    for (std::uint32_t i = 0; i < kFrames; ++i) send(0, Destination::to(group), {0, members, i});
    const auto complete = [](const Peer& p) { return p.frames.size() >= kFrames; };
    ASSERT_TRUE(pump([&] {
      return peers[0].sends.size() == kFrames &&
             (!GetParam().clean ||
              std::all_of(peers.begin() + 1, peers.begin() + 1 + members, complete));
    })) << members
        << " members";
    pump_quietly(5ms);
    EXPECT_EQ(peers[0].sends.size(), kFrames);
    for (std::uint32_t r = 0; r < 9; ++r) {
      const bool member = r >= 1 && r <= members;
      if (!member) {
        EXPECT_TRUE(peers[r].frames.empty()) << "rank " << r << " is not a member";
      }
      if (!member || !GetParam().clean) continue;
      auto labels = peers[r].labels();
      if (!ordered()) std::sort(labels.begin(), labels.end());
      ASSERT_EQ(labels.size(), kFrames) << "rank " << r << " of " << members;
      for (std::uint32_t i = 0; i < kFrames; ++i) EXPECT_EQ(labels[i], (Label{0, members, i}));
    }
  }
}

TEST_P(Conformance, NobodyIsHandedAGroupItDidNotJoin) {
  SELMCAST_OPEN_OR_SKIP(4);
  // Rank r receives the groups whose bit is set; everyone sends to every group.
  constexpr std::array<unsigned, 4> kJoined{0b00001, 0b00110, 0b01010, 0b00000};
  std::vector<Membership> receivers;
  std::vector<std::vector<Membership>> senders(4);
  for (std::size_t r = 0; r < 4; ++r)
    for (std::uint32_t g = 0; g < 5; ++g) {
      if ((kJoined[r] >> g & 1U) != 0) receivers.push_back(join(r, g, JoinAs::receiver));
      senders[r].push_back(join(r, g, JoinAs::send_only));
    }
  settle();
  for (std::uint32_t i = 0; i < 5; ++i)
    for (std::uint32_t r = 0; r < 4; ++r)
      for (std::uint32_t g = 0; g < 5; ++g) send(r, Destination::to(senders[r][g]), {r, g, i});
  ASSERT_TRUE(pump([&] {
    return std::all_of(peers.begin(), peers.end(),
                       [](const Peer& p) { return p.sends.size() == 25; });
  }));
  pump_quietly();
  for (std::uint32_t r = 0; r < 4; ++r) {
    std::map<Label, int> seen;
    for (const Label& label : peers[r].labels()) {
      EXPECT_NE(kJoined[r] >> label.channel & 1U, 0U)
          << "rank " << r << " was handed group " << label.channel;
      ++seen[label];
    }
    if (!GetParam().clean) continue;
    for (std::uint32_t from = 0; from < 4; ++from)
      for (std::uint32_t g = 0; g < 5; ++g)
        for (std::uint32_t i = 0; i < 5 && from != r; ++i)
          EXPECT_EQ((seen[{from, g, i}]), static_cast<int>(kJoined[r] >> g & 1U));
  }
}

TEST_P(Conformance, LeavingStopsDelivery) {
  SELMCAST_OPEN_OR_SKIP(3);
  const auto stays = join(2, 1, JoinAs::receiver);
  const auto group = join(0, 1, JoinAs::send_only);
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    peers[1].frames.clear();
    peers[2].frames.clear();
    auto member = join(1, 1, JoinAs::receiver);
    settle();
    for (std::uint32_t i = 0; i < 10; ++i) send(0, Destination::to(group), {0, turn, i});
    ASSERT_TRUE(pump([&] {
      return !GetParam().clean || (peers[1].frames.size() == 10 && peers[2].frames.size() == 10);
    }));
    pump_quietly();
    const std::size_t before = peers[1].frames.size();
    member.reset();
    for (std::uint32_t i = 10; i < 20; ++i) send(0, Destination::to(group), {0, turn, i});
    ASSERT_TRUE(pump([&] { return !GetParam().clean || peers[2].frames.size() == 20; }));
    pump_quietly();
    EXPECT_EQ(peers[1].frames.size(), before) << "turn " << turn;
  }
}

TEST_P(Conformance, FramesUnderWayAtALeaveAreNotHandedOver) {
  SELMCAST_OPEN_OR_SKIP(3);
  const auto group = join(0, 1, JoinAs::send_only);
  auto member = join(1, 1, JoinAs::receiver), other = join(1, 2, JoinAs::receiver);
  settle();
  std::vector<LocalSlice> slices;
  for (std::uint32_t i = 0; i < 5; ++i) {
    std::byte* data = peers[0].take(64);
    write_frame({0, 1, i}, data, 64);
    slices.push_back(slice(0, data, 64));
  }
  std::size_t posted = 0;
  for (const LocalSlice& one : slices) {
    const SendRequest request{Destination::to(group), {&one, 1}, 0, 0};
    posted += at(0).post_sends({&request, 1}).accepted;
  }
  // The sender's side runs on, the receiver does not poll before it leaves.
  for (int i = 0; i < 200 && peers[0].sends.size() < posted; ++i) {
    Completion out[8];
    const std::size_t n = at(0).poll(out);
    for (std::size_t k = 0; k < n; ++k) peers[0].sends.push_back(out[k]);
    settle();
  }
  member.reset();
  pump_quietly();
  EXPECT_EQ(peers[0].sends.size(), posted);
  EXPECT_TRUE(peers[1].frames.empty());
}

TEST_P(Conformance, JoiningTwiceStillMeansOneCopy) {
  SELMCAST_OPEN_OR_SKIP(2);
  auto first = join(1, 7, JoinAs::receiver), second = join(1, 7, JoinAs::receiver);
  const auto group = join(0, 7, JoinAs::send_only);
  settle();
  const auto deliver = [&](std::uint32_t number) {
    peers[1].frames.clear();
    send(0, Destination::to(group), {0, 7, number});
    EXPECT_TRUE(pump([&] { return !GetParam().clean || !peers[1].frames.empty(); }));
    pump_quietly();
    return peers[1].frames.size();
  };
  if (GetParam().clean) {
    EXPECT_EQ(deliver(0), 1U);
  }
  first.reset();  // One membership is left.
  if (GetParam().clean) {
    EXPECT_EQ(deliver(1), 1U);
  }
  second.reset();
  send(0, Destination::to(group), {0, 7, 2});
  pump_quietly();
  for (const Label& label : peers[1].labels()) EXPECT_NE(label.number, 2U);
}

TEST_P(Conformance, SendOnlyDoesNotReceive) {
  SELMCAST_OPEN_OR_SKIP(3);
  const auto sender = join(0, 4, JoinAs::send_only), idle = join(1, 4, JoinAs::send_only);
  const auto member = join(2, 4, JoinAs::receiver);
  settle();
  send(0, Destination::to(sender), {0, 4, 0});
  send(2, Destination::to(member), {2, 4, 1});  // Receivers may send too.
  ASSERT_TRUE(pump([&] {
    return peers[0].sends.size() == 1 && peers[2].sends.size() == 1 &&
           (!GetParam().clean || !peers[2].frames.empty());
  }));
  pump_quietly();
  EXPECT_TRUE(peers[0].frames.empty());
  EXPECT_TRUE(peers[1].frames.empty());
}

TEST_P(Conformance, GroupWithoutMembersSwallows) {
  SELMCAST_OPEN_OR_SKIP(2);
  const auto group = join(0, 12, JoinAs::send_only);
  send(0, Destination::to(group), {0, 12, 0});
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 1; }));
  EXPECT_EQ(peers[0].sends[0].status, Status::ok);
  pump_quietly();
  EXPECT_TRUE(peers[1].frames.empty());
}

/// Everyone sends frames of random size, alone or several in a request, to peers and groups.
class Mix {
 public:
  static constexpr std::uint32_t kRanks = 4, kGroups = 3, kRounds = 250;
  /// Channels below kRanks are ranks, the others groups. Rank r is in group g iff (r + g) % 3 != 0.
  static bool member(std::uint32_t rank, std::uint32_t group) { return (rank + group) % 3 != 0; }
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> sent;  // By source and channel.
};

TEST_P(Conformance, RandomTrafficArrivesWhereItBelongs) {
  SELMCAST_OPEN_OR_SKIP(Mix::kRanks);
  Mix mix;
  SplitMix64 random(2026);
  std::vector<Membership> receivers;
  std::vector<std::vector<Membership>> groups(Mix::kRanks);
  for (std::uint32_t r = 0; r < Mix::kRanks; ++r)
    for (std::uint32_t g = 0; g < Mix::kGroups; ++g) {
      if (Mix::member(r, g)) receivers.push_back(join(r, g, JoinAs::receiver));
      groups[r].push_back(join(r, g, JoinAs::send_only));
    }
  settle();
  std::vector<std::uint32_t> posted(Mix::kRanks);
  for (std::uint32_t round = 0; round < Mix::kRounds; ++round) {
    const auto from = static_cast<std::uint32_t>(random.below(Mix::kRanks));
    auto channel = static_cast<std::uint32_t>(random.below(Mix::kRanks + Mix::kGroups));
    if (channel == from) channel = (from + 1) % Mix::kRanks;
    const auto frame = static_cast<std::uint32_t>(kLabelBytes + random.below(300));
    const auto frames = static_cast<std::uint32_t>(1 + random.below(4));
    std::byte* data = peers[from].take(std::size_t{frame} * frames);
    for (std::uint32_t i = 0; i < frames; ++i)
      write_frame({from, channel, mix.sent[{from, channel}]++}, data + std::size_t{i} * frame,
                  frame);
    const LocalSlice one = slice(from, data, frame * frames);
    post(from,
         channel < Mix::kRanks ? to(from, channel)
                               : Destination::to(groups[from][channel - Mix::kRanks]),
         {&one, 1}, frame, posted[from]++);
    if (random.chance(0.3)) poll_all();
  }
  const auto expected = [&](std::uint32_t rank) {
    std::size_t frames = 0;
    for (const auto& [way, count] : mix.sent) {
      const auto [from, channel] = way;
      if (from == rank) continue;  // Own frames may come back or not.
      if (channel == rank || (channel >= Mix::kRanks && Mix::member(rank, channel - Mix::kRanks)))
        frames += count;
    }
    return frames;
  };
  const auto foreign = [&](std::uint32_t rank) {
    const auto labels = peers[rank].labels();
    return static_cast<std::size_t>(std::count_if(
        labels.begin(), labels.end(), [&](const Label& l) { return l.source != rank; }));
  };
  ASSERT_TRUE(pump([&] {
    for (std::uint32_t r = 0; r < Mix::kRanks; ++r) {
      if (peers[r].sends.size() < posted[r]) return false;
      if (GetParam().clean && foreign(r) < expected(r)) return false;
    }
    return true;
  }));
  pump_quietly();
  for (std::uint32_t r = 0; r < Mix::kRanks; ++r) {
    EXPECT_EQ(peers[r].sends.size(), posted[r]);
    if (GetParam().clean) {
      EXPECT_EQ(foreign(r), expected(r));
    }
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> next;
    for (const Label& l : peers[r].labels()) {
      ASSERT_LT(l.number, (mix.sent[{l.source, l.channel}]));
      if (l.channel < Mix::kRanks) {
        EXPECT_EQ(l.channel, r);
      }
      if (l.channel >= Mix::kRanks) {
        EXPECT_TRUE(Mix::member(r, l.channel - Mix::kRanks));
      }
      if (ordered()) {
        EXPECT_EQ(l.number, (next[{l.source, l.channel}]++));
      }
    }
  }
}

}  // namespace
}  // namespace selmcast::conformance
