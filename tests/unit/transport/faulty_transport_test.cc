#include "tests/faulty/faulty_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "base/wire.h"
#include "transport/sim/sim_network.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kBytes = 64;

/// Rank 0 sends, rank 1 receives through the decorator, on a clean simulated network.
class Faulty {
 public:
  explicit Faulty(const FaultPlan& plan, std::uint32_t receive_buffers = 256)
      : net_(config(receive_buffers)),
        sender(make_faulty_transport(net_.attach(0), plan)),
        receiver(make_faulty_transport(net_.attach(1), plan)),
        memory_(kBytes),
        region_(std::move(sender->register_memory(memory_)).value()),
        endpoint_(std::move(sender->connect(receiver->address())).value()) {}

  PostOutcome send(std::uint32_t number) {
    store_le(memory_.data(), number);
    const LocalSlice slice{memory_.data(), kBytes, region_.id()};
    const SendRequest request{Destination::to(endpoint_), {&slice, 1}, 0, number};
    const PostOutcome outcome = sender->post_sends({&request, 1});
    while (net_.next_event() != kNever) net_.advance_to(net_.next_event());
    Completion done[4];
    completed += sender->poll(done);
    return outcome;
  }
  std::vector<Completion> poll() {
    std::vector<Completion> out(16);
    out.resize(receiver->poll(out));
    return out;
  }
  void give_back(const Completion& c) {
    const ReceiveRequest back{c.token};
    EXPECT_EQ(receiver->post_receives({&back, 1}).accepted, 1U);
  }
  /// Sends `count` numbered frames, one poll each, then polls until nothing comes any more.
  std::vector<std::uint32_t> numbers(std::uint32_t count) {
    std::vector<std::uint32_t> out;
    int quiet = 0;
    for (std::uint32_t i = 0; i < count || quiet < 20; ++i) {
      if (i < count) send(i);
      const auto got = poll();
      quiet = got.empty() ? quiet + 1 : 0;
      for (const Completion& c : got) {
        EXPECT_EQ(c.kind, Completion::Kind::receive);
        EXPECT_EQ(c.bytes, kBytes);
        out.push_back(load_le<std::uint32_t>(c.data));
        give_back(c);
      }
    }
    return out;
  }
  std::size_t buffers_in_use() const { return net_.buffers_in_use(); }

 private:
  static SimConfig config(std::uint32_t receive_buffers) {
    SimConfig out;
    out.links.resize(2);
    out.receive_buffers = receive_buffers;
    out.lossless = true;
    return out;
  }
  SimNetwork net_;

 public:
  std::unique_ptr<Transport> sender, receiver;
  std::size_t completed = 0;

 private:
  std::vector<std::byte> memory_;
  Region region_;
  Endpoint endpoint_;
};

std::vector<std::uint32_t> ascending(std::uint32_t count) {
  std::vector<std::uint32_t> out(count);
  for (std::uint32_t i = 0; i < count; ++i) out[i] = i;
  return out;
}

void expect_binomial(std::size_t count, double n, double p) {
  EXPECT_NEAR(static_cast<double>(count), n * p, 5 * std::sqrt(n * p * (1 - p)));
}

TEST(FaultyTransport, EmptyPlanChangesNothing) {
  Faulty faulty({});
  EXPECT_FALSE(faulty.receiver->capabilities().loses_frames);
  EXPECT_EQ(faulty.numbers(1'000), ascending(1'000));
  EXPECT_EQ(faulty.completed, 1'000U);
  EXPECT_EQ(faulty.receiver->counters().received_frames, 1'000U);
  EXPECT_EQ(faulty.buffers_in_use(), 0U);
}

TEST(FaultyTransport, DropsTheStatedShare) {
  Faulty faulty({.drop = 0.1});
  EXPECT_TRUE(faulty.receiver->capabilities().loses_frames);
  const auto got = faulty.numbers(10'000);
  expect_binomial(10'000 - got.size(), 10'000, 0.1);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
  EXPECT_EQ(faulty.buffers_in_use(), 0U);  // Dropped buffers went back to their owner.
}

TEST(FaultyTransport, DuplicatesTheStatedShare) {
  Faulty faulty({.duplicate = 0.2});
  const auto got = faulty.numbers(10'000);
  expect_binomial(got.size() - 10'000, 10'000, 0.2);
  EXPECT_EQ(std::set(got.begin(), got.end()).size(), 10'000U);
  EXPECT_EQ(faulty.buffers_in_use(), 0U);
}

TEST(FaultyTransport, ADuplicatesBufferLivesUntilBothAreBack) {
  for (const std::size_t first_back : {0U, 1U}) {
    Faulty faulty({.duplicate = 1.0});
    faulty.send(42);
    const auto got = faulty.poll();
    ASSERT_EQ(got.size(), 2U);
    EXPECT_NE(got[0].token, got[1].token);
    faulty.give_back(got[first_back]);
    EXPECT_EQ(faulty.buffers_in_use(), 1U);
    EXPECT_EQ(load_le<std::uint32_t>(got[1 - first_back].data), 42U);
    faulty.give_back(got[1 - first_back]);
    EXPECT_EQ(faulty.buffers_in_use(), 0U);
  }
}

TEST(FaultyTransport, ReordersWithinAFewAndLosesNothing) {
  Faulty faulty({.reorder = 0.2});
  auto got = faulty.numbers(10'000);
  EXPECT_FALSE(std::is_sorted(got.begin(), got.end()));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(static_cast<double>(got[i]) - static_cast<double>(i)), 16.0);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, ascending(10'000));
  EXPECT_EQ(faulty.buffers_in_use(), 0U);
}

TEST(FaultyTransport, TheLastHeldFrameComesWithoutSuccessors) {
  Faulty faulty({.reorder = 1.0});
  EXPECT_EQ(faulty.numbers(1), ascending(1));
}

TEST(FaultyTransport, CorruptsOneBitOfAPrivateCopy) {
  Faulty faulty({.duplicate = 1.0, .corrupt = 1.0});
  for (std::uint32_t i = 0; i < 500; ++i) {
    faulty.send(i);
    const auto got = faulty.poll();
    ASSERT_EQ(got.size(), 2U);
    int flipped = 0;
    for (std::uint32_t b = 0; b < kBytes; ++b)
      flipped += std::popcount(std::to_integer<unsigned>(got[0].data[b] ^ got[1].data[b]));
    EXPECT_EQ(flipped, 1);
    EXPECT_EQ(load_le<std::uint32_t>(got[1].data), i);  // The lender's buffer is as it was.
    for (const Completion& c : got) faulty.give_back(c);
  }
  EXPECT_EQ(faulty.buffers_in_use(), 0U);
}

TEST(FaultyTransport, CorruptedCopiesRunOutGracefully) {
  Faulty faulty({.corrupt = 1.0});
  std::vector<Completion> held;
  for (std::uint32_t i = 0; i < 100; ++i) {
    faulty.send(0);
    for (const Completion& c : faulty.poll()) held.push_back(c);
  }
  ASSERT_EQ(held.size(), 100U);
  const std::vector<std::byte> zeros(kBytes);
  const auto intact = std::count_if(held.begin(), held.end(), [&](const Completion& c) {
    return std::equal(zeros.begin(), zeros.end(), c.data);
  });
  EXPECT_GT(intact, 0);
  EXPECT_LT(intact, 100);
  for (const Completion& c : held) faulty.give_back(c);
  EXPECT_EQ(faulty.buffers_in_use(), 0U);
}

TEST(FaultyTransport, BackpressureTakesNothingAndPasses) {
  Faulty faulty({.backpressure = 0.5});
  std::size_t refused = 0;
  for (std::uint32_t i = 0; i < 4'000; ++i) {
    const PostOutcome outcome = faulty.send(i);
    if (outcome.state == PostState::accepted) continue;
    EXPECT_EQ(outcome.state, PostState::backpressure);
    EXPECT_EQ(outcome.accepted, 0U);
    ++refused;
  }
  expect_binomial(refused, 4'000, 0.5);
  EXPECT_EQ(faulty.completed, 4'000 - refused);
}

TEST(FaultyTransport, HeldBuffersNeverExhaustTheReceiver) {
  // With every buffer lent, duplicated or held back, frames still all come in the end.
  Faulty faulty({.duplicate = 0.5, .reorder = 0.5, .corrupt = 0.5}, 8);
  const auto got = faulty.numbers(2'000);
  EXPECT_GE(got.size(), 2'000U);
  EXPECT_EQ(faulty.buffers_in_use(), 0U);
}

TEST(FaultyTransport, EqualSeedsRepeatAndOthersDiffer) {
  const auto run = [](std::uint64_t seed) {
    return Faulty({.seed = seed, .drop = 0.1, .duplicate = 0.1, .reorder = 0.1}).numbers(500);
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

TEST(FaultyTransportDeathTest, ProgrammerErrorsAbort) {
  EXPECT_DEATH(Faulty({.drop = -0.1}), "chances");
  EXPECT_DEATH(static_cast<void>(make_faulty_transport(nullptr, {})), "nothing to decorate");
  Faulty faulty({});
  faulty.send(1);
  const auto got = faulty.poll();
  faulty.give_back(got.at(0));
  EXPECT_DEATH(faulty.give_back(got.at(0)), "not lent");
}

}  // namespace
}  // namespace selmcast
