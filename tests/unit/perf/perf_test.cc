#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "tools/perf/counters.h"
#include "tools/perf/exchange.h"
#include "tools/perf/figures.h"
#include "tools/perf/settings.h"

namespace selmcast::perf {
namespace {

Hello some_hello(std::uint32_t queues = 2) {
  Hello out;
  out.settings.op = Op::send;
  out.settings.latency = true;
  out.settings.size = 0x01020304;
  out.settings.depth = 77;
  out.settings.queue_pairs = queues;
  out.settings.group = 0xEF010203;
  for (std::size_t i = 0; i < 16; ++i) out.end.gid[i] = static_cast<std::uint8_t>(0xF0 + i);
  out.end.lid = 0x1234;
  out.end.mtu = 5;
  out.end.reads = 16;
  out.end.rkey = 0xAABBCCDD;
  out.end.source = 0x1122334455667788;
  out.end.target = 0x99;
  for (std::uint32_t q = 0; q < queues; ++q) out.end.queues.push_back({q + 1, 0xFFFFFF - q});
  return out;
}

TEST(PerfExchange, HelloHasItsDocumentedBytes) {
  const Bytes bytes = encode_hello(some_hello(1));
  const std::array<unsigned, 64> expected{
      'S',  'P',  'R',  'F',  1,    0,    3,    1,    4,    3,    2,    1,    77,
      0,    0,    0,    1,    0,    0,    0,    3,    2,    1,    0xEF, 0xF0, 0xF1,
      0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE,
      0xFF, 0x34, 0x12, 5,    16,   0xDD, 0xCC, 0xBB, 0xAA, 0x88, 0x77, 0x66, 0x55,
      0x44, 0x33, 0x22, 0x11, 0x99, 0,    0,    0,    0,    0,    0,    0};
  ASSERT_EQ(bytes.size(), expected.size() + 8);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << i;
  }
}

TEST(PerfExchange, HelloReturns) {
  for (const std::uint32_t queues : {1U, 2U, 64U}) {
    const Hello sent = some_hello(queues);
    const auto got = decode_hello(encode_hello(sent));
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->end, sent.end);
    EXPECT_EQ(difference_of(sent.settings, got->settings), "");
  }
}

TEST(PerfExchange, HelloOfEveryOtherLengthIsRefused) {
  const Bytes good = encode_hello(some_hello());
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto got = decode_hello(std::span(good).first(size));
    ASSERT_FALSE(got) << size;
    EXPECT_EQ(got.error().kind, ErrorKind::bad_input);
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_hello(longer));
}

TEST(PerfExchange, HelloWithAValueOutOfRangeIsRefused) {
  struct Change {
    std::size_t at;
    unsigned value;
    const char* what;
  };
  for (const Change& c :
       {Change{0, 'X', "magic"}, Change{4, 2, "version"}, Change{6, 7, "op"}, Change{7, 4, "flags"},
        Change{16, 0, "no queue pair"}, Change{16, 65, "too many queue pairs"},
        Change{19, 1, "far too many"}, Change{42, 0, "MTU"}, Change{42, 6, "MTU"},
        Change{67, 1, "a queue pair number of 25 bits"},
        Change{71, 1, "a packet number of 25 bits"}}) {
    Bytes bytes = encode_hello(some_hello(1));
    bytes[c.at] = static_cast<std::byte>(c.value);
    EXPECT_FALSE(decode_hello(bytes)) << c.what;
  }
}

TEST(PerfExchange, HostileBytesAreReadWithinTheirBounds) {
  // Each buffer is as long as its content, so that a sanitizer sees a step beyond it.
  SplitMix64 random(5);
  const Bytes hello = encode_hello(some_hello(3));
  const Bytes report = encode_report({.received = 1, .moved = {{"a", 1}, {"bc", 2}}});
  for (int turn = 0; turn < 20'000; ++turn) {
    for (const Bytes& good : {hello, report}) {
      Bytes bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(random.below(
                                                   static_cast<std::uint32_t>(good.size()) + 1)));
      for (int i = 0; i < 3 && !bytes.empty(); ++i) {
        bytes[random.below(static_cast<std::uint32_t>(bytes.size()))] =
            static_cast<std::byte>(random.below(256));
      }
      if (const auto got = decode_hello(bytes)) {
        EXPECT_EQ(got->end.queues.size(), got->settings.queue_pairs);
        EXPECT_LE(got->end.queues.size(), 64U);
      }
      if (const auto got = decode_report(bytes)) {
        EXPECT_LE(got->moved.size(), kCountersMost);
      }
    }
  }
}

TEST(PerfExchange, HeaderBoundsWhatFollows) {
  const auto decode = [](std::uint32_t size, std::uint16_t kind) {
    std::array<std::byte, kHeaderBytes> bytes{};
    store_le(bytes.data(), size);
    store_le(bytes.data() + 4, kind);
    return decode_header(bytes);
  };
  EXPECT_TRUE(decode(kMessageMost, 1));
  EXPECT_TRUE(decode(0, 9));
  EXPECT_FALSE(decode(kMessageMost + 1, 1));
  EXPECT_FALSE(decode(0xFFFFFFFF, 1));
  EXPECT_FALSE(decode(0, 0));
  EXPECT_FALSE(decode(0, 10));
}

TEST(PerfExchange, ReportReturnsAndLeavesOutWhatIsTooMuch) {
  Report sent{.received = 1,
              .bytes_checked = 2,
              .wrong = 3,
              .late = 4,
              .foreign = 5,
              .elapsed_ns = 6,
              .cpu_ns = 7,
              .moved = {{"rnr", 8}, {"seq", 9}}};
  auto got = decode_report(encode_report(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, sent);
  sent.moved.assign(kCountersMost + 5, {std::string(kNameMost + 5, 'n'), 1});
  got = decode_report(encode_report(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->moved.size(), kCountersMost);
  EXPECT_EQ(got->moved[0].name.size(), kNameMost);
}

TEST(PerfSettings, TheFlagThatDiffersIsNamed) {
  const Settings server;
  EXPECT_EQ(difference_of(server, server), "");
  struct Change {
    const char* flag;
    void (*make)(Settings&);
  };
  for (const Change& c : {Change{"--op", [](Settings& s) { s.op = Op::read; }},
                          Change{"--latency", [](Settings& s) { s.latency = true; }},
                          Change{"--verify-all", [](Settings& s) { s.verify_all = true; }},
                          Change{"--size", [](Settings& s) { s.size = 1; }},
                          Change{"--depth", [](Settings& s) { s.depth = 1; }},
                          Change{"--queue-pairs", [](Settings& s) { s.queue_pairs = 2; }},
                          Change{"--group", [](Settings& s) { s.group = 1; }}}) {
    Settings client;
    c.make(client);
    EXPECT_EQ(difference_of(server, client).rfind(c.flag, 0), 0U) << c.flag;
  }
  Settings other;  // The client's own business.
  other.post_list = 8;
  other.iterations = 5;
  other.inline_bytes = 64;
  EXPECT_EQ(difference_of(server, other), "");
}

TEST(PerfSettings, SignalsLeaveRoomForAList) {
  // Before the completion of a signalled message frees its room, up to signal_every - 1 messages
  // and the list with the signal must fit.
  for (std::uint32_t depth = 1; depth <= 20; ++depth) {
    for (std::uint32_t list = 1; list <= depth; ++list) {
      Settings s;
      s.depth = depth;
      s.post_list = list;
      ASSERT_TRUE(check(s));
      EXPECT_GE(s.signal_every, 1U);
      EXPECT_LE(s.signal_every - 1 + list, depth);
    }
  }
}

TEST(PerfFigures, NearestRank) {
  std::vector<std::uint32_t> sorted(1000);
  for (std::uint32_t i = 0; i < 1000; ++i) sorted[i] = i + 1;
  EXPECT_EQ(percentile(sorted, 0.5), 500U);
  EXPECT_EQ(percentile(sorted, 0.99), 990U);
  EXPECT_EQ(percentile(sorted, 0.999), 999U);
  EXPECT_EQ(percentile(sorted, 1.0), 1000U);
  EXPECT_EQ(percentile(std::span(sorted).first(10), 0.99), 10U);
  EXPECT_EQ(percentile(std::span(sorted).first(1), 0.001), 1U);
  EXPECT_EQ(percentile({}, 0.5), 0U);
}

TEST(PerfFigures, MedianAndSpread) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 10}).median, 3);
}

TEST(PerfCounters, TroubleIsToldByName) {
  for (const char* name :
       {"retry_exceeded_err", "rcvd_rnr_err", "out_of_seq_request", "completer_retry_err",
        "duplicate_request", "out_of_buffer", "local_ack_timeout_err", "rx_icrc_encapsulated",
        "port_rcv_errors", "port_xmit_discards", "rx_drops", "oos_drop_count", "link_downed"}) {
    EXPECT_TRUE(tells_of_trouble(name)) << name;
  }
  for (const char* name : {"sent_pkts", "rcvd_pkts", "ack_deferred", "rdma_sends", "port_xmit_data",
                           "np_cnp_sent", "rx_read_requests", "lifespan"}) {
    EXPECT_FALSE(tells_of_trouble(name)) << name;
  }
}

TEST(PerfCounters, OnlyThoseOfTroubleThatGrew) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("perf_counters_" + std::to_string(::getpid()));
  const auto hw = folder / "ports" / "2" / "hw_counters";
  std::filesystem::create_directories(hw);
  const auto set = [&](const char* name, const char* text) { std::ofstream(hw / name) << text; };
  set("out_of_seq_request", "5\n");
  set("rnr_err", "7\n");
  set("sent_pkts", "10\n");
  set("drops", "no number\n");
  set("retry_err", "9\n");
  const auto before = read_counters(folder, 2);
  EXPECT_EQ(before.size(), 4U);
  set("out_of_seq_request", "8\n");
  set("sent_pkts", "20\n");
  set("retry_err", "2\n");  // Reset meanwhile.
  const auto found = moved(before, read_counters(folder, 2));
  EXPECT_EQ(text_of(found), "out_of_seq_request +3");
  EXPECT_TRUE(read_counters(folder, 1).empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace selmcast::perf
