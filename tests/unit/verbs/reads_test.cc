// Ways to read from peers over a network that loses, doubles and reorders messages, and what
// becomes of reads that cannot succeed.
#include <cerrno>
#include <cstring>
#include <set>

#include "base/random.h"
#include "tests/unit/verbs/support.h"
#include "transport/verbs/wire_up.h"

namespace selmcast::verbs_test {
namespace {

using testing::HasSubstr;
using verbs::WireUp;

/// A rank that can read and be read from.
struct Reader : RankOn {
  explicit Reader(const std::string& devices) : RankOn(devices) {
    for (std::size_t i = 0; i < there.size(); ++i)
      there[i] = static_cast<std::byte>(i * 7 + i / 256);
    auto made = transport->abilities().reads->register_readable(there);
    auto into = transport->abilities().reads->register_target(here);
    EXPECT_TRUE(made && into);
    readable = std::move(made).value();
    landing = std::move(into).value();
  }
  ReadRequest request(const Endpoint& peer, const Reader& from, std::size_t at, std::uint32_t bytes,
                      std::uint64_t user) {
    return {.peer = peer.id(),
            .from = from.transport->abilities().reads->remote_memory(from.readable.id(),
                                                                     from.there.data() + at),
            .into = here.data() + at,
            .region = landing.id(),
            .bytes = bytes,
            .user = user};
  }
  PostState read(const ReadRequest& one) {
    return transport->abilities().reads->post_reads({&one, 1}).state;
  }

  std::vector<std::byte> there = std::vector<std::byte>(8192), here = std::vector<std::byte>(8192);
  Region readable, landing;
};

std::uint32_t number_at(const Reader& rank, std::size_t offset) {
  const auto address = rank.transport->address();
  std::uint32_t out = 0;
  std::memcpy(&out, address.bytes.data() + 8 + offset, sizeof out);
  return out;
}
std::uint32_t wire_up_queue(const Reader& rank) {
  return number_at(rank, 20);
}
std::optional<WireUp> message_in(const std::vector<std::uint8_t>& bytes) {
  return verbs::decode_wire_up(std::as_bytes(std::span(bytes)));
}
std::vector<std::uint8_t> bytes_of(const WireUp& message) {
  std::vector<std::uint8_t> out(verbs::kWireUpBytes);
  verbs::encode_wire_up(
      message, std::span<std::byte, verbs::kWireUpBytes>(reinterpret_cast<std::byte*>(out.data()),
                                                         verbs::kWireUpBytes));
  return out;
}

/// Keeps the newest ask in `ask`, until the test ends or loses messages otherwise. `lose`: and
/// loses every message.
void note_asks(WireUp& ask, bool lose) {
  fake::world().loses = [&ask, lose](std::uint32_t, const std::vector<std::uint8_t>& bytes) {
    const auto message = message_in(bytes);
    if (message && message->kind == WireUp::Kind::ask) ask = *message;
    return lose && message.has_value();
  };
}

class Reads : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset(2);
    a = std::make_unique<Reader>("fake0");
    b = std::make_unique<Reader>("fake1");
    to_b = a->to(*b);
    to_a = b->to(*a);
  }
  void TearDown() override {
    to_b.reset();
    to_a.reset();
    a.reset();
    b.reset();
    expect_nothing_alive("reading");
  }
  bool connected(milliseconds limit = milliseconds(5000)) {
    return pump(
        {a.get(), b.get()}, [&] { return a->transport->abilities().reads->can_read(to_b.id()); },
        limit);
  }
  bool until_done(std::size_t count, milliseconds limit = milliseconds(5000)) {
    return pump(
        {a.get(), b.get()}, [&] { return a->done.size() >= count; }, limit);
  }
  void expect_reading_works() {
    a->done.clear();
    std::fill(a->here.begin(), a->here.end(), std::byte{0});
    ASSERT_TRUE(connected());
    ASSERT_EQ(a->read(a->request(to_b, *b, 100, 5000, 1)), PostState::accepted);
    ASSERT_TRUE(until_done(1));
    EXPECT_EQ(a->done[0].status, Status::ok);
    EXPECT_TRUE(std::equal(a->here.begin() + 100, a->here.begin() + 5100, b->there.begin() + 100));
  }

  std::unique_ptr<Reader> a, b;
  Endpoint to_b, to_a;
};

TEST_F(Reads, BytesArriveInTheOrderPosted) {
  EXPECT_EQ(a->read(a->request(to_b, *b, 0, 8, 0)), PostState::backpressure);
  expect_reading_works();
  a->done.clear();
  std::uint64_t posted = 0;
  while (a->read(a->request(to_b, *b, posted * 8, 8, posted)) == PostState::accepted) ++posted;
  EXPECT_EQ(posted, 64U);
  ASSERT_TRUE(until_done(64));
  for (std::uint64_t i = 0; i < 64; ++i) EXPECT_EQ(a->done[i].user, i);
}

TEST_F(Reads, LostMessagesAreRepeated) {
  SplitMix64 random(31);
  fake::world().loses = [&](std::uint32_t, const std::vector<std::uint8_t>& bytes) {
    return message_in(bytes) && random() % 2 != 0;
  };
  EXPECT_TRUE(connected());
  EXPECT_EQ(fake::queue_pairs(IBV_QPT_RC).size(), 2U);
  fake::world().loses = nullptr;
  expect_reading_works();
}

TEST_F(Reads, DoubledMessagesMakeOneConnection) {
  fake::world().loses = [&](std::uint32_t qpn, const std::vector<std::uint8_t>& bytes) {
    // Once more, and this once through.
    const auto loses = std::exchange(fake::world().loses, nullptr);
    if (message_in(bytes)) fake::inject(qpn, bytes);
    fake::world().loses = loses;
    return false;
  };
  ASSERT_TRUE(connected());
  const auto before = fake::queue_pairs(IBV_QPT_RC);
  EXPECT_EQ(before.size(), 2U);
  expect_reading_works();
  EXPECT_EQ(fake::queue_pairs(IBV_QPT_RC), before);
}

TEST_F(Reads, BothWaysAtOnceAreTwoConnections) {
  ASSERT_TRUE(pump({a.get(), b.get()}, [&] {
    const bool there = a->transport->abilities().reads->can_read(to_b.id());
    return b->transport->abilities().reads->can_read(to_a.id()) && there;
  }));
  EXPECT_EQ(fake::queue_pairs(IBV_QPT_RC).size(), 4U);
  expect_reading_works();
}

TEST_F(Reads, AnAskThatWasOvertakenDoesNotDisturb) {
  std::vector<std::uint8_t> old;
  fake::world().loses = [&](std::uint32_t qpn, const std::vector<std::uint8_t>& bytes) {
    const auto message = message_in(bytes);
    if (old.empty() && message && message->kind == WireUp::Kind::ask && qpn == wire_up_queue(*b)) {
      old = bytes;
    }
    return false;
  };
  expect_reading_works();
  // A failure makes a later attempt.
  ASSERT_EQ(a->read({.peer = to_b.id(),
                     .from = {},
                     .into = a->here.data(),
                     .region = a->landing.id(),
                     .bytes = 8,
                     .user = 2}),
            PostState::accepted);
  ASSERT_TRUE(until_done(2));
  expect_reading_works();
  const auto serving = fake::queue_pairs(IBV_QPT_RC);
  fake::inject(wire_up_queue(*b), old);
  for (int i = 0; i < 10; ++i) a->poll(), b->poll();
  EXPECT_EQ(fake::queue_pairs(IBV_QPT_RC), serving);
  expect_reading_works();
}

TEST_F(Reads, ANewAttemptOfThePeerReplacesTheConnection) {
  WireUp ask;
  note_asks(ask, false);
  ASSERT_TRUE(connected());
  const auto before = fake::queue_pairs(IBV_QPT_RC);
  ask.attempt += 1000;
  ask.qpn = 0x777;
  fake::inject(wire_up_queue(*b), bytes_of(ask));
  b->poll();
  const auto after = fake::queue_pairs(IBV_QPT_RC);
  ASSERT_EQ(after.size(), 2U);
  EXPECT_NE(before, after);
  // The reader finds out by its next read, and makes the way anew.
  ASSERT_EQ(a->read(a->request(to_b, *b, 0, 8, 0)), PostState::accepted);
  ASSERT_TRUE(until_done(1));
  EXPECT_EQ(a->done[0].status, Status::failed);
  expect_reading_works();
}

TEST_F(Reads, ForeignAndHostileMessagesMakeNothing) {
  WireUp ask;
  note_asks(ask, true);
  EXPECT_FALSE(connected(milliseconds(60)));
  fake::world().loses = nullptr;
  const auto before = fake::queue_pairs(IBV_QPT_RC);
  const auto tell = [&](WireUp message) {
    fake::inject(wire_up_queue(*b), bytes_of(message));
    b->poll();
    EXPECT_EQ(fake::queue_pairs(IBV_QPT_RC), before);
  };
  WireUp other = ask;
  ++other.job;
  tell(other);
  other = ask;
  other.sender.gid.raw[15] ^= 1U;
  tell(other);
  other = ask;
  ++other.sender.frames_qpn;
  tell(other);
  other = ask;
  other.kind = WireUp::Kind::answer;
  tell(other);
  SplitMix64 random(33);
  for (int i = 0; i < 2000; ++i) {
    auto bytes = bytes_of(ask);
    const auto flip = static_cast<std::uint8_t>(1 + random() % 255);
    // Magic, version or kind; or another size.
    bytes[random() % 8] ^= flip;
    if (random() % 3 == 0) bytes.resize(random() % 200);
    fake::inject(wire_up_queue(*b), bytes);
    b->poll();
  }
  EXPECT_EQ(fake::queue_pairs(IBV_QPT_RC), before);
  expect_reading_works();
}

TEST_F(Reads, MoreMessagesAtOnceThanThereAreSlots) {
  WireUp ask;
  note_asks(ask, false);
  ASSERT_TRUE(connected());
  // Answers that nobody fetches from the device, then a flood of asks.
  fake::world().hold = true;
  for (int i = 0; i < 100; ++i) fake::inject(wire_up_queue(*b), bytes_of(ask));
  for (int i = 0; i < 5; ++i) b->poll();
  for (int i = 0; i < 100; ++i) {
    fake::inject(wire_up_queue(*b), bytes_of(ask));
    b->poll();
  }
  fake::world().hold = false;
  fake::deliver();
  expect_reading_works();
}

TEST_F(Reads, AMessageThatCannotBeSentDoesNotEndAllMessages) {
  for (const auto status : {IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_GENERAL_ERR}) {
    int left = 2;
    fake::world().send_status = [&](const ibv_qp& qp, const ibv_send_wr& request) {
      const bool message = qp.qp_type == IBV_QPT_UD && request.opcode == IBV_WR_SEND;
      return message && left > 0 && left-- > 0 ? status : IBV_WC_SUCCESS;
    };
    ASSERT_TRUE(connected()) << ibv_wc_status_str(status);
    fake::world().send_status = nullptr;
    to_b.reset();
    to_b = a->to(*b);
  }
  expect_reading_works();
}

TEST_F(Reads, AMessageQueueInErrorComesBack) {
  fake::break_queue_pair(wire_up_queue(*a));
  fake::break_queue_pair(wire_up_queue(*b));
  expect_reading_works();
}

TEST_F(Reads, AnyFailingCallDelaysTheWayAndDoesNotPreventIt) {
  for (const std::string call :
       {"ibv_create_qp", "ibv_modify_qp", "ibv_post_send", "ibv_post_recv"}) {
    for (int at = 1; at <= 8; ++at) {
      SCOPED_TRACE(call + " " + std::to_string(at));
      fake::world().fail(call, at, ENOMEM, 3);
      ASSERT_TRUE(connected());
      fake::world().fail("", 0, 0);
      to_b.reset();
      to_a.reset();
      to_b = a->to(*b);
      to_a = b->to(*a);
    }
  }
  fake::world().fail("ibv_create_qp", 1, ENOMEM, 1000);
  EXPECT_FALSE(connected(milliseconds(60)));
  EXPECT_THAT(a->transport->last_error(), HasSubstr("creating an RC queue pair"));
  fake::world().fail("", 0, 0);
  expect_reading_works();
}

TEST_F(Reads, EachErrorStatusFailsItsReadAndTheRestOnce) {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; ++status) {
    const auto value = static_cast<ibv_wc_status>(status);
    SCOPED_TRACE(ibv_wc_status_str(value));
    a->done.clear();
    ASSERT_TRUE(connected());
    int number = 0;
    fake::world().send_status = [&](const ibv_qp& qp, const ibv_send_wr&) {
      return qp.qp_type == IBV_QPT_RC && ++number == 3 ? value : IBV_WC_SUCCESS;
    };
    fake::world().hold = true;
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_EQ(a->read(a->request(to_b, *b, 8 * i, 8, i)), PostState::accepted);
    }
    fake::world().hold = false;
    fake::deliver();
    ASSERT_TRUE(until_done(5));
    fake::world().send_status = nullptr;
    for (std::uint64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(a->done[i].user, i);
      EXPECT_EQ(a->done[i].status, i < 2 ? Status::ok : Status::failed);
    }
    if (value != IBV_WC_WR_FLUSH_ERR) {
      EXPECT_THAT(a->transport->last_error(), HasSubstr(ibv_wc_status_str(value)));
      EXPECT_THAT(a->transport->last_error(), HasSubstr("reading from ::ffff:10.0.0.2"));
    }
  }
  expect_reading_works();
}

TEST_F(Reads, AReadThatNeverEndsFailsAfterItsDeadlineOnce) {
  ASSERT_TRUE(connected());
  fake::world().hold = true;
  ASSERT_EQ(a->read(a->request(to_b, *b, 0, 8, 7)), PostState::accepted);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(until_done(1, std::chrono::seconds(20)));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(a->done[0].user, 7U);
  EXPECT_EQ(a->done[0].status, Status::failed);
  fake::world().hold = false;
  fake::deliver();
  for (int i = 0; i < 10; ++i) a->poll();
  EXPECT_EQ(a->done.size(), 1U);
  expect_reading_works();
}

TEST_F(Reads, AClosedEndpointFailsItsReadsOnce) {
  ASSERT_TRUE(connected());
  fake::world().hold = true;
  for (std::uint64_t i = 0; i < 3; ++i) a->read(a->request(to_b, *b, 0, 8, i));
  to_b.reset();
  a->poll();
  fake::world().hold = false;
  fake::deliver();
  for (int i = 0; i < 10; ++i) a->poll();
  ASSERT_EQ(a->done.size(), 3U);
  for (const Completion& one : a->done) EXPECT_EQ(one.status, Status::failed);
  to_b = a->to(*b);
  expect_reading_works();
}

TEST_F(Reads, MessagesUnderWayKeepTheirEndpointsWay) {
  fake::world().hold = true;
  EXPECT_FALSE(connected(milliseconds(50)));
  to_b.reset();
  for (int i = 0; i < 5; ++i) a->poll();
  fake::world().hold = false;
  fake::deliver();
  a->poll();
  to_b = a->to(*b);
  expect_reading_works();
}

TEST_F(Reads, MemoryThatIsNotRegisteredHereFailsTheReadAlone) {
  ASSERT_TRUE(connected());
  auto wrong = a->request(to_b, *b, 0, 8, 4);
  wrong.region = 0;
  ASSERT_EQ(a->read(wrong), PostState::accepted);
  ASSERT_TRUE(until_done(1));
  EXPECT_EQ(a->done[0].user, 4U);
  EXPECT_EQ(a->done[0].status, Status::not_registered);
  expect_reading_works();
}

TEST_F(Reads, ABrokenDeviceFailsItsReadsAtOnce) {
  ASSERT_TRUE(connected());
  fake::world().hold = true;
  for (std::uint64_t i = 0; i < 3; ++i) a->read(a->request(to_b, *b, 0, 8, i));
  fake::raise("fake0", IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(until_done(3, milliseconds(1000)));
  for (const Completion& one : a->done) EXPECT_EQ(one.status, Status::failed);
  EXPECT_EQ(a->read(a->request(to_b, *b, 0, 8, 9)), PostState::broken);
  fake::world().hold = false;
}

TEST_F(Reads, RandomFaultsCompleteEachReadExactlyOnce) {
  SplitMix64 random(35);
  fake::world().send_status = [&](const ibv_qp&, const ibv_send_wr&) {
    return random() % 40 == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS;
  };
  fake::world().loses = [&](std::uint32_t, const std::vector<std::uint8_t>&) {
    return random() % 3 == 0;
  };
  std::uint64_t posted = 0;
  ASSERT_TRUE(pump(
      {a.get(), b.get()},
      [&] {
        fake::world().hold = random() % 2 == 0;
        if (!fake::world().hold) fake::deliver();
        for (std::uint64_t n = random() % 20; n > 0 && posted < 1500; --n) {
          if (a->read(a->request(to_b, *b, random() % 8000, 8, posted)) != PostState::accepted)
            break;
          ++posted;
        }
        return posted == 1500;
      },
      std::chrono::seconds(60)));
  fake::world().hold = false;
  fake::world().send_status = nullptr;
  fake::world().loses = nullptr;
  fake::deliver();
  ASSERT_TRUE(until_done(posted));
  for (int i = 0; i < 20; ++i) a->poll();
  std::set<std::uint64_t> users;
  for (const Completion& one : a->done) EXPECT_TRUE(users.insert(one.user).second) << one.user;
  EXPECT_EQ(users.size(), posted);
  expect_reading_works();
}

}  // namespace
}  // namespace selmcast::verbs_test
