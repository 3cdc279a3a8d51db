#include "transport/shm/shm_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <thread>

#include "base/random.h"
#include "transport/shm/shm_bell.h"

namespace selmcast::shm {
namespace {

using namespace std::chrono_literals;

/// A ring in ordinary memory, so that the sanitizers see both ends at the same addresses.
struct TestRing {
  explicit TestRing(std::uint32_t bytes = kRingBytesMin)
      : capacity(bytes),
        memory(std::make_unique<std::byte[]>(bytes)),
        producer(&control, memory.get(), bytes),
        consumer(&control, memory.get(), bytes) {}

  /// A request of `bytes` bytes that all hold `fill`; false without room.
  bool send(std::uint32_t bytes, unsigned char fill) {
    if (!producer.has_room(bytes)) return false;
    std::memset(producer.begin(bytes, std::min(bytes, kFrameMax), 0), fill, bytes);
    producer.commit();
    return true;
  }

  std::uint32_t capacity;
  RingControl control;
  std::unique_ptr<std::byte[]> memory;
  RingProducer producer;
  RingConsumer consumer;
};

bool filled_with(const Record& record, unsigned char fill) {
  for (std::uint32_t i = 0; i < record.bytes; ++i) {
    if (record.data[i] != std::byte{fill}) return false;
  }
  return true;
}

TEST(ShmRing, RecordsComeBackInOrderAcrossManyWraps) {
  TestRing ring;
  SplitMix64 random(7);
  struct Sent {
    std::uint32_t bytes;
    unsigned char fill;
  };
  std::deque<Sent> under_way;
  std::uint64_t total = 0;
  std::uint32_t sent = 0;
  while (total < 20ULL * ring.capacity) {
    const auto bytes = static_cast<std::uint32_t>(random.below(kRequestMax + 1));
    const auto fill = static_cast<unsigned char>(sent);
    if (ring.send(bytes, fill)) {
      under_way.push_back({bytes, fill});
      total += bytes;
      ++sent;
      continue;
    }
    ASSERT_FALSE(under_way.empty()) << "an empty ring must have room for any request";
    Record record;
    ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
    EXPECT_EQ(record.bytes, under_way.front().bytes);
    EXPECT_TRUE(filled_with(record, under_way.front().fill));
    under_way.pop_front();
    ring.consumer.release_to(record.end);
  }
  EXPECT_FALSE(ring.producer.corrupt());
}

TEST(ShmRing, HoldsTwoLargestRequestsWhereverItStands) {
  TestRing ring;
  // Each step moves the start by one line of the ring, through every position.
  for (std::uint32_t line = 0; line < ring.capacity / kLine; ++line) {
    ASSERT_TRUE(ring.send(kRequestMax, 1)) << "line " << line;
    ASSERT_TRUE(ring.send(kRequestMax, 2)) << "line " << line;
    Record record;
    ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
    ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
    ring.consumer.release_to(record.end);
    ASSERT_TRUE(ring.send(0, 0));
    ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
    EXPECT_EQ(record.bytes, 0U);
    ring.consumer.release_to(record.end);
  }
}

TEST(ShmRing, FullMeansFullUntilReleased) {
  TestRing ring;
  std::uint32_t count = 0;
  while (ring.send(40, 9)) ++count;
  // A 40-byte request takes exactly one line: 24 + 40 = 64.
  EXPECT_EQ(count, ring.capacity / kLine);
  Record record;
  ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
  EXPECT_FALSE(ring.send(40, 9)) << "taken is not released";
  ring.consumer.release_to(record.end);
  EXPECT_TRUE(ring.send(40, 9));
  EXPECT_FALSE(ring.send(40, 9));
}

TEST(ShmRing, NewProducerContinuesWhereTheLastStopped) {
  TestRing ring;
  ASSERT_TRUE(ring.send(100, 1));
  RingProducer second(&ring.control, ring.memory.get(), ring.capacity);
  ASSERT_FALSE(second.corrupt());
  ASSERT_TRUE(second.has_room(100));
  std::memset(second.begin(100, 100, 0), 2, 100);
  second.commit();
  Record record;
  ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
  EXPECT_TRUE(filled_with(record, 1));
  ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
  EXPECT_TRUE(filled_with(record, 2));
}

TEST(ShmRing, ProducerNoticesImpossibleHead) {
  for (const std::uint64_t head : {~std::uint64_t{63}, std::uint64_t{1} << 40U, std::uint64_t{7}}) {
    TestRing ring;
    ring.control.head.store(head);
    while (ring.send(1000, 1)) {
    }
    EXPECT_TRUE(ring.producer.corrupt()) << head;
    EXPECT_FALSE(ring.producer.has_room(0)) << head;
  }
}

TEST(ShmRing, ConsumerNoticesImpossibleTail) {
  for (const std::uint64_t tail : {std::uint64_t{kRingBytesMin} + 64, std::uint64_t{1},
                                   std::uint64_t{63}, ~std::uint64_t{0}, ~std::uint64_t{63}}) {
    TestRing ring;
    ring.control.tail.store(tail);
    Record record;
    EXPECT_EQ(ring.consumer.take(record), RingConsumer::Take::corrupt) << tail;
    EXPECT_EQ(ring.consumer.take(record), RingConsumer::Take::corrupt) << tail;
    EXPECT_TRUE(ring.consumer.empty());
  }
}

TEST(ShmRing, ConsumerNoticesTailThatGoesBack) {
  TestRing ring;
  ASSERT_TRUE(ring.send(100, 1));
  Record record;
  ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
  ring.control.tail.store(64);
  EXPECT_EQ(ring.consumer.take(record), RingConsumer::Take::corrupt);
}

TEST(ShmRing, ConsumerNoticesImpossibleRecords) {
  const RecordHeader bad[] = {
      {kRequestMax + 1, kFrameMax, 0, 0, 0},  // larger than any request
      {~0U, 1, 0, 0, 0},                      // wraps around in 32 bits
      {200, 200, 0, 0, 0},                    // reaches past what was published
      {40, 0, 0, 0, 0},                       // bytes without a frame size
      {0, 40, 0, 0, 0},                       // a frame size without bytes
      {40, 41, 0, 0, 0},                      // a frame larger than the record
      {40, 40, 0, 2, 0},                      // neither record nor padding
      {0, 0, 0, 1, 0},                        // padding at the ring's start
  };
  for (const RecordHeader& header : bad) {
    TestRing ring;
    std::memcpy(ring.memory.get(), &header, sizeof header);
    ring.control.tail.store(2 * kLine);
    Record record;
    EXPECT_EQ(ring.consumer.take(record), RingConsumer::Take::corrupt)
        << header.bytes << ' ' << header.frame_bytes << ' ' << header.kind;
  }
}

TEST(ShmRing, PaddingWithNothingBehindIsCorrupt) {
  TestRing ring;
  ASSERT_TRUE(ring.send(40, 1));
  Record record;
  ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
  const RecordHeader skip{0, 0, 0, 1, 0};
  std::memcpy(ring.memory.get() + kLine, &skip, sizeof skip);
  ring.control.tail.store(ring.capacity);
  EXPECT_EQ(ring.consumer.take(record), RingConsumer::Take::corrupt);
}

TEST(ShmRing, RandomMemoryNeverLeadsOutOfTheRing) {
  SplitMix64 random(11);
  int in_place = 0;
  for (int round = 0; round < 300; ++round) {
    TestRing ring;
    for (std::uint32_t line = 0; line < ring.capacity; line += kLine) {
      const auto below = [&](std::uint32_t bound) {
        return static_cast<std::uint32_t>(random.below(bound));
      };
      const RecordHeader header{below(300), below(300), 0,
                                random.chance(0.02) ? 1U : (random.chance(0.4) ? 2U : 0U), 0};
      // About what fits, so that half of them do.
      const std::uint32_t head = below(4), body = header.frame_bytes - head;
      const std::uint32_t frames = (header.bytes - 24) / std::max(head, 1U);
      const PlaceHeader place{.offset = random(),
                              .slot = static_cast<std::uint32_t>(random()),
                              .head_bytes = head,
                              .body_bytes = frames * body - below(2 * body + 1)};
      std::memcpy(ring.memory.get() + line, &header, sizeof header);
      std::memcpy(ring.memory.get() + line + sizeof header, &place, sizeof place);
    }
    ring.control.tail.store(kLine *
                            random.below(static_cast<std::uint32_t>(ring.capacity / kLine + 1)));
    Record record;
    while (ring.consumer.take(record) == RingConsumer::Take::record) {
      ASSERT_GE(record.data, ring.memory.get());
      ASSERT_LE(record.data + record.bytes, ring.memory.get() + ring.capacity);
      if (record.place.head_bytes == 0) continue;
      // Cut as the frames are: every one has a head in the record and at least a byte of the body.
      std::uint64_t body = 0, heads = 0;
      for (; heads < record.bytes; heads += record.place.head_bytes) {
        ASSERT_LT(body, record.place.body_bytes);
        body += record.frame_bytes - record.place.head_bytes;
      }
      ASSERT_EQ(heads, record.bytes);
      ASSERT_GE(body, record.place.body_bytes);
      ++in_place;
    }
  }
  EXPECT_GT(in_place, 0);
}

TEST(ShmLentRecords, RingAdvancesOverReturnedPrefixOnly) {
  LentRecords lent(2, 8);
  const auto a = lent.lend(0, 64);
  const auto other = lent.lend(1, 640);
  const auto b = lent.lend(0, 128);
  const auto c = lent.lend(0, 192);
  EXPECT_FALSE(lent.give_back(b).advanced);
  EXPECT_FALSE(lent.give_back(c).advanced);
  const auto released = lent.give_back(a);
  EXPECT_TRUE(released.advanced);
  EXPECT_EQ(released.to, 192U);
  EXPECT_FALSE(lent.any(0));
  EXPECT_TRUE(lent.any(1));
  EXPECT_EQ(lent.give_back(other).to, 640U);
}

TEST(ShmLentRecords, EveryOrderOfReturnsMatchesTheModel) {
  SplitMix64 random(3);
  LentRecords lent(3, 16);
  struct Held {
    std::uint32_t token;
    std::uint64_t end;
    bool back = false;
  };
  std::deque<Held> model[3];
  std::uint64_t ends[3] = {};
  std::uint32_t held = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (held < 16 && random.chance(0.5)) {
      ASSERT_FALSE(lent.full());
      const auto ring = static_cast<std::uint32_t>(random.below(3));
      ends[ring] += 64;
      model[ring].push_back({lent.lend(ring, ends[ring]), ends[ring]});
      ++held;
      continue;
    }
    const auto ring = static_cast<std::uint32_t>(random.below(3));
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < model[ring].size(); ++i) {
      if (!model[ring][i].back) out.push_back(i);
    }
    if (out.empty()) continue;
    Held& chosen = model[ring][out[random.below(static_cast<std::uint32_t>(out.size()))]];
    chosen.back = true;
    std::uint64_t to = 0;
    std::uint32_t freed = 0;
    for (const Held& h : model[ring]) {
      if (!h.back) break;
      to = h.end;
      ++freed;
    }
    const auto released = lent.give_back(chosen.token);
    EXPECT_EQ(released.ring, ring);
    ASSERT_EQ(released.advanced, freed > 0);
    EXPECT_EQ(released.to, to);
    model[ring].erase(model[ring].begin(), model[ring].begin() + freed);
    held -= freed;
  }
}

TEST(ShmLentRecordsDeathTest, ReturningTwiceIsAProgrammerError) {
  LentRecords lent(1, 4);
  lent.lend(0, 64);
  const auto second = lent.lend(0, 128);
  lent.give_back(second);
  EXPECT_DEATH(lent.give_back(second), "not lent");
  EXPECT_DEATH(lent.give_back(99), "not lent");
}

/// Two threads hand `count` records over and sleep on their bells, without any time limit that
/// could hide a lost wake-up: one would end in the 20 s sleep that the test takes for a failure.
TEST(ShmBell, NoWakeUpIsLostBetweenTwoThreads) {
  constexpr std::uint32_t kCount = 30'000;
  constexpr Duration kForever = 20s;
  const auto overslept_on = [&](std::atomic<std::uint32_t>& bell, const auto& anything) {
    const auto began = std::chrono::steady_clock::now();
    if (sleep_on_bell(bell, kForever, anything)) return false;
    // A late ring for an earlier sleep may wake for nothing; that is no lost one.
    return std::chrono::steady_clock::now() - began >= kForever;
  };
  TestRing ring;
  std::atomic<std::uint32_t> receiver_bell{kAwake};
  std::atomic<std::uint32_t> sender_bell{kAwake};
  std::atomic<int> overslept{0};

  std::thread sender([&] {
    SplitMix64 random(5);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const auto bytes = static_cast<std::uint32_t>(4 + random.below(20'000));
      while (!ring.producer.has_room(bytes)) {
        if (overslept_on(sender_bell, [&] { return ring.producer.has_room_before_sleep(bytes); })) {
          ++overslept;
          return;
        }
      }
      std::memcpy(ring.producer.begin(bytes, std::min(bytes, kFrameMax), 0), &i, sizeof i);
      ring.producer.commit();
      ring_bell(receiver_bell);
    }
  });

  std::uint32_t expected = 0;
  while (expected < kCount) {
    Record record;
    const auto take = ring.consumer.take(record);
    if (take == RingConsumer::Take::record) {
      std::uint32_t value = 0;
      std::memcpy(&value, record.data, sizeof value);
      ASSERT_EQ(value, expected);
      ++expected;
      ring.consumer.release_to(record.end);
      if (ring.consumer.room_wanted()) ring_bell(sender_bell);
      continue;
    }
    ASSERT_EQ(take, RingConsumer::Take::none);
    if (ring.consumer.room_wanted()) ring_bell(sender_bell);
    if (overslept_on(receiver_bell, [&] { return !ring.consumer.empty_before_sleep(); })) {
      ++overslept;
      break;
    }
  }
  sender.join();
  EXPECT_EQ(overslept.load(), 0);
  EXPECT_EQ(expected, kCount);
}

TEST(ShmBell, ARequestAnsweredWhileAwakeIsMadeAgain) {
  TestRing ring;
  std::atomic<std::uint32_t> bell{kAwake};
  std::uint32_t put = 0;
  for (; ring.producer.has_room(20'000); ++put) {
    ring.producer.begin(20'000, kFrameMax, 0);
    ring.producer.commit();
  }
  ASSERT_FALSE(ring.producer.has_room_before_sleep(20'000));
  // The consumer frees all but one record and answers; the producer has not announced its sleep.
  Record record;
  for (std::uint32_t taken = 0; taken + 1 < put; ++taken) {
    ASSERT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
  }
  ring.consumer.release_to(record.end);
  ASSERT_TRUE(ring.consumer.room_wanted());
  ring_bell(bell);
  // Now it sleeps for more than that, and the consumer frees the rest before the kernel is entered.
  EXPECT_TRUE(sleep_on_bell(bell, 5s, [&] {
    const bool room = ring.producer.has_room_before_sleep(ring.capacity);
    EXPECT_FALSE(room);
    EXPECT_EQ(ring.consumer.take(record), RingConsumer::Take::record);
    ring.consumer.release_to(record.end);
    if (ring.consumer.room_wanted()) ring_bell(bell);
    return room;
  })) << "asleep, although the consumer has freed everything";
}

TEST(ShmBell, RingBeforeTheKernelIsEnteredIsNotLost) {
  std::atomic<std::uint32_t> bell{kAwake};
  // anything() finds nothing, but the ring comes between it and the system call.
  EXPECT_TRUE(sleep_on_bell(bell, 20s, [&] {
    ring_bell(bell);
    return false;
  }));
  EXPECT_FALSE(sleep_on_bell(bell, 1ms, [] { return false; }));
}

}  // namespace
}  // namespace selmcast::shm
