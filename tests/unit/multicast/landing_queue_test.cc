// Frames put in place by guess, against a model of the device that writes as soon as it may.
#include "multicast/landing_queue.h"

#include <map>
#include <set>

#include "base/random.h"
#include "tests/unit/multicast/landing_device.h"

namespace selmcast::landing_test {
namespace {

constexpr std::uint32_t kJob = 7, kTag = 3, kPayload = 64;
constexpr std::byte kOld{0x11};

/// One rank that hears a sender through a group: what a session does, without its timers.
class Rank1 {
 public:
  Rank1(std::uint32_t depth, std::uint32_t frames, std::uint32_t last_bytes)
      : shape{std::uint64_t{frames - 1} * kPayload + last_bytes, kPayload, 8},
        device(depth),
        queue(device, kJob, kTag, shape),
        rows(2, Bytes(shape.bytes, kOld)) {
    queue.refill();
  }

  const Bytes& sent_in(std::uint32_t round) {
    Bytes& out = sent[round];
    if (!out.empty()) return out;
    SplitMix64 random(round + 100);
    out.resize(shape.bytes);
    for (auto& byte : out) byte = static_cast<std::byte>(random());
    return out;
  }
  Bytes frame(std::uint32_t round, std::uint32_t index, std::uint16_t flags = 0, Rank sender = 5) {
    const Bytes& row = sent_in(round);
    FrameHeader header{.kind = FrameKind::data,
                       .job = kJob,
                       .sender = sender,
                       .epoch = 1,
                       .round = round,
                       .offset = shape.offset_of(index),
                       .length = static_cast<std::uint16_t>(shape.length_of(index)),
                       .flags = flags};
    const std::span payload{row.data() + header.offset, header.length};
    header.check = payload_check(payload);
    Bytes out(kFrameHeaderBytes + header.length);
    encode_frame(header, payload, out.data());
    std::copy(payload.begin(), payload.end(), out.begin() + kFrameHeaderBytes);
    return out;
  }
  void open(std::uint32_t round, bool guesses = true) {
    now = round;
    fresh.clear();
    live_before = rows[live];
    queue.open({.sender = 5,
                .epoch = 1,
                .round = round,
                .stream = 0,
                .shape = shape,
                .row = rows[1 - live].data(),
                .region = 0,
                .guesses = guesses});
  }
  /// Puts a frame if the session would take it.
  void take(const ParsedFrame& parsed) {
    const auto& header = parsed.header;
    if (parsed.error != FrameError::none || header.kind != FrameKind::data || header.sender != 5 ||
        header.round != now || !queue.is_open()) {
      ++refused;
      return;
    }
    // As the session does: a corrupt one is as good as lost.
    if (payload_check(parsed.payload) != header.check) {
      ++refused;
      return;
    }
    const Bytes& row = sent_in(now);
    ASSERT_EQ(0, std::memcmp(parsed.payload.data(), row.data() + header.offset, header.length));
    if (!fresh.insert(shape.frame_at(header.offset)).second) return;
    queue.put(shape.frame_at(header.offset), parsed.payload);
  }
  /// A repair that came by unicast, or was read.
  void repair(std::uint32_t index) {
    const Bytes bytes = frame(now, index, frame_flag::kRepair);
    take(parse_frame(bytes, kJob));
  }
  void poll(std::size_t most = ~std::size_t{0}) {
    Completion completion;
    for (; most > 0 && device.next(completion); --most) {
      ASSERT_EQ(LandingQueue::tag_of(completion), kTag);
      take(queue.arrived(completion));
    }
    queue.refill();
    ASSERT_FALSE(device.names_twice());
  }
  bool complete() const { return fresh.size() == shape.frames(); }
  void close(bool whole) {
    const std::byte* const row = rows[1 - live].data();
    ASSERT_TRUE(queue.close(whole));
    ASSERT_FALSE(device.names(row, row + shape.bytes)) << "the device may still write to the row";
    ASSERT_EQ(rows[live], live_before) << "what is in use was touched";
    if (!whole) return;
    ASSERT_EQ(rows[1 - live], sent_in(now));
    live = 1 - live;
  }

  StreamShape shape;
  LandingDevice device;
  LandingQueue queue;
  std::vector<Bytes> rows;
  std::map<std::uint32_t, Bytes> sent;
  Bytes live_before;
  std::size_t live = 0;
  std::uint32_t now = 0;
  std::set<std::uint32_t> fresh;
  int refused = 0;
};

TEST(LandingQueue, WithoutLossAllButTheFirstFewComeInPlaceAndNothingOfThemIsCopied) {
  constexpr std::uint32_t kFrames = 1000, kLast = 24;
  Rank1 rank(64, kFrames, kLast);
  for (std::uint32_t round = 0; round < 5; ++round) {
    rank.open(round);
    for (std::uint32_t f = 0; f < kFrames; ++f) {
      rank.device.arrive(rank.frame(round, f));
      if (f % 16 == 15) rank.poll();
    }
    rank.poll();
    ASSERT_TRUE(rank.complete());
    rank.close(true);
    const auto& counted = rank.queue.counters();
    const std::uint64_t rounds = round + 1, spare = LandingQueue::kSpare;
    EXPECT_EQ(counted.landed_frames, rounds * (kFrames - spare));
    EXPECT_EQ(counted.landed_bytes, rounds * ((kFrames - spare - 1) * kPayload + kLast));
    EXPECT_EQ(counted.misplaced_frames, 0U);
    EXPECT_EQ(counted.copied_bytes, rounds * spare * kPayload);
    EXPECT_EQ(rank.device.posted(), spare);
  }
  EXPECT_EQ(rank.device.taken_back, 0);
  EXPECT_EQ(rank.device.lost, 0);
}

// One frame is lost while the queue is full. The receives that are posted then are one off: as many
// wrong guesses as there are; those posted later are right.
TEST(LandingQueue, ALossCostsOneQueueOfWrongGuesses) {
  constexpr std::uint32_t kFrames = 400, kDepth = 32, kLost = 100;
  Rank1 rank(kDepth, kFrames, kPayload);
  rank.open(0);
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    if (f != kLost) rank.device.arrive(rank.frame(0, f));
    rank.poll();
  }
  rank.repair(kLost);
  ASSERT_TRUE(rank.complete());
  const auto counted = rank.queue.counters();
  EXPECT_EQ(counted.misplaced_frames, kDepth);
  // All but the first, the lost one, and those that came to the place of the one before.
  EXPECT_EQ(counted.landed_frames, kFrames - LandingQueue::kSpare - kDepth - 1);
  rank.close(true);
  EXPECT_EQ(rank.device.taken_back, 0) << "the shift has gone by";
}

// Frames 101, 102 and, in the same batch, an old one that another receiver asked for: it takes the
// receive of 103, and 103 to 131 come to the places of 104 to 132. The first receive posted then
// would be for 132, which has one: it names nothing, and from 133 on the guess is right again.
TEST(LandingQueue, ARepairByTheGroupShiftsTheOtherWay) {
  constexpr std::uint32_t kFrames = 400, kDepth = 32;
  Rank1 rank(kDepth, kFrames, kPayload);
  rank.open(0);
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    rank.device.arrive(rank.frame(0, f));
    if (f == 101) continue;
    if (f == 102) rank.device.arrive(rank.frame(0, 10, frame_flag::kRepair));
    rank.poll();
  }
  ASSERT_TRUE(rank.complete());
  EXPECT_EQ(rank.queue.counters().misplaced_frames, 1U + 29U);
  EXPECT_EQ(rank.queue.counters().landed_frames, kFrames - LandingQueue::kSpare - 29 - 1);
  rank.close(true);
  EXPECT_EQ(rank.device.taken_back, 0);
}

// The same at the end: what is posted must be taken back before the row may be used.
TEST(LandingQueue, ALossAtTheEndLeavesReceivesThatAreTakenBack) {
  constexpr std::uint32_t kFrames = 50;
  Rank1 rank(16, kFrames, 8);
  rank.open(0);
  for (std::uint32_t f = 0; f + 1 < kFrames; ++f) {
    if (f != 40) rank.device.arrive(rank.frame(0, f));
    rank.poll();
  }
  rank.repair(40);
  rank.repair(kFrames - 1);
  ASSERT_TRUE(rank.complete());
  rank.close(true);
  EXPECT_EQ(rank.device.taken_back, 1);
  EXPECT_EQ(rank.device.posted(), LandingQueue::kSpare);
}

TEST(LandingQueue, ARoundWithoutGuessesCopiesEveryFrameOnceWhateverIsLost) {
  constexpr std::uint32_t kFrames = 400, kDepth = 32;
  Rank1 rank(kDepth, kFrames, kPayload);
  rank.open(0, false);
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    if (f % 7 != 0) rank.device.arrive(rank.frame(0, f));
    rank.poll();
  }
  for (std::uint32_t f = 0; f < kFrames; f += 7) rank.repair(f);
  ASSERT_TRUE(rank.complete());
  EXPECT_EQ(rank.queue.counters().landed_frames, 0U);
  EXPECT_EQ(rank.queue.counters().misplaced_frames, 0U);
  EXPECT_EQ(rank.queue.counters().copied_bytes, kFrames * kPayload);
  rank.close(true);
  rank.open(1);
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    rank.device.arrive(rank.frame(1, f));
    rank.poll();
  }
  ASSERT_TRUE(rank.complete());
  EXPECT_GE(rank.queue.counters().landed_frames, kFrames - kDepth);
  rank.close(true);
}

// As many receives as with a row, so that a sender's window is not lost.
TEST(LandingQueue, ARoundWithoutARowTakesTheWholeQueue) {
  constexpr std::uint32_t kFrames = 200, kDepth = 64;
  Rank1 rank(kDepth, kFrames, kPayload);
  rank.queue.open_without_row();
  EXPECT_EQ(rank.device.posted(), kDepth);
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    rank.device.arrive(rank.frame(0, f));
    if (f % kDepth == kDepth - 1) rank.poll();
  }
  rank.poll();
  EXPECT_EQ(rank.device.lost, 0);
  EXPECT_EQ(rank.queue.counters().misplaced_frames, 0U);
  EXPECT_EQ(rank.device.posted(), kDepth);
  // The next one has a row: what is left names nothing, the rest is guessed.
  rank.open(1);
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    rank.device.arrive(rank.frame(1, f));
    rank.poll();
  }
  ASSERT_TRUE(rank.complete());
  EXPECT_EQ(rank.queue.counters().landed_frames, kFrames - kDepth);
  rank.close(true);
}

TEST(LandingQueue, ADeviceThatGivesNothingBackKeepsTheRow) {
  Rank1 rank(16, 50, 8);
  rank.open(0);
  rank.device.gives_back = false;
  EXPECT_FALSE(rank.queue.close(true));
}

std::uint32_t below(SplitMix64& random, std::uint32_t end) {
  return static_cast<std::uint32_t>(random.below(end));
}

/// A round with everything that can go wrong, and how it is to end.
struct Trouble {
  double loss, twice, late, foreign, repeat;
  bool dies, errors;
};

void random_round(Rank1& rank, std::uint32_t round, SplitMix64& random, const Trouble& trouble) {
  const auto chance = [&](double p) { return random.chance(p); };
  const std::uint32_t frames = rank.shape.frames();
  rank.open(round, !chance(0.2));
  std::vector<std::uint32_t> held_back;
  const std::uint32_t end = trouble.dies ? below(random, frames) : frames;
  for (std::uint32_t f = 0; f < end; ++f) {
    if (chance(trouble.foreign)) {
      const bool stale = round > 0 && chance(0.5);
      rank.device.arrive(stale ? rank.frame(round - 1, below(random, frames))
                               : rank.frame(round, below(random, frames), 0, 6));
    }
    if (chance(trouble.foreign)) {
      auto bad = rank.frame(round, f);
      bad[below(random, static_cast<std::uint32_t>(bad.size()))] ^= std::byte{4};
      rank.device.arrive(bad);
    }
    if (chance(trouble.late)) {
      held_back.push_back(f);
    } else if (!chance(trouble.loss)) {
      rank.device.arrive(rank.frame(round, f));
      if (chance(trouble.twice)) rank.device.arrive(rank.frame(round, f));
    }
    if (!held_back.empty() && chance(0.3)) {
      rank.device.arrive(rank.frame(round, held_back.back()));
      held_back.pop_back();
    }
    // Repairs by the group, and by unicast or reads, of frames sent or to be sent.
    if (chance(trouble.repeat)) {
      rank.device.arrive(rank.frame(round, below(random, f + 1), frame_flag::kRepair));
    }
    if (chance(trouble.repeat)) rank.repair(below(random, frames));
    if (trouble.errors && chance(0.01)) rank.device.restart();
    if (trouble.errors && chance(0.05)) rank.device.refuse = 1;
    if (chance(0.2)) rank.poll(below(random, 4) == 0 ? below(random, 5) : ~std::size_t{0});
    if (testing::Test::HasFatalFailure()) return;
  }
  rank.poll();
  if (trouble.dies) return rank.close(false);
  for (std::uint32_t f = 0; f < frames; ++f) {
    if (!rank.fresh.contains(f)) rank.repair(f);
    // The device goes on writing while the last repairs come.
    if (chance(0.1)) rank.device.arrive(rank.frame(round, below(random, frames)));
  }
  ASSERT_TRUE(rank.complete());
  rank.close(true);
}

TEST(LandingQueue, ThousandsOfRandomRoundsEndWithTheSendersBytes) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SplitMix64 random(seed);
    const std::uint32_t frames = 1 + below(random, 60), last = 8 * (1 + below(random, 8));
    Rank1 rank(6 + below(random, 20), frames, last);
    const Trouble kinds[] = {
        {0, 0, 0, 0, 0, false, false},           {0.05, 0, 0, 0, 0, false, false},
        {0, 0.1, 0.1, 0, 0, false, false},       {0.1, 0.1, 0.1, 0.1, 0.1, false, false},
        {0.3, 0.05, 0.2, 0.1, 0.3, true, false}, {0.1, 0.1, 0.1, 0.1, 0.1, false, true}};
    for (std::uint32_t round = 0; round < 6; ++round) {
      random_round(rank, round, random, kinds[below(random, 6)]);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " round " << round;
    }
    rank.poll();
    const auto before = rank.queue.counters();
    rank.open(6);
    for (std::uint32_t f = 0; f < frames; ++f) {
      rank.device.arrive(rank.frame(6, f));
      rank.poll();
    }
    ASSERT_TRUE(rank.complete());
    rank.close(true);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    const auto after = rank.queue.counters();
    const auto landed = after.landed_bytes - before.landed_bytes;
    ASSERT_EQ(landed + after.copied_bytes - before.copied_bytes, rank.shape.bytes) << seed;
    ASSERT_EQ(after.misplaced_frames, before.misplaced_frames) << seed;
    if (frames > 2 * LandingQueue::kSpare) {
      ASSERT_GE(after.landed_frames - before.landed_frames, frames - 2 * LandingQueue::kSpare);
    }
  }
}

}  // namespace
}  // namespace selmcast::landing_test
