#include "store/protocol.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/unit/store/support.h"

namespace selmcast::store {
namespace {

using test::bytes_of;

std::vector<Message> one_of_each() {
  std::vector<Message> out(8);
  for (std::size_t i = 0; i < out.size(); ++i) out[i].kind = static_cast<MessageKind>(i + 1);
  out[0].rank = 3;
  out[0].world = 8;
  out[2].text = std::string("rank 3 is taken");
  out[3].key = std::string("view/1");
  out[3].value = bytes_of("bytes");
  out[3].only_if_absent = true;
  out[4].key = std::string("k");
  out[5].rank = 65'535;
  return out;
}

TEST(RendezvousProtocol, EveryKindSurvivesTheWayThroughAStreamInPieces) {
  Bytes all;
  for (const Message& message : one_of_each()) {
    const Bytes bytes = encode(message);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  for (std::size_t piece = 1; piece < 40; ++piece) {
    MessageStream stream(kBodyMax);
    std::vector<Message> got;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      stream.feed(std::span(all).subspan(at, std::min(piece, all.size() - at)));
      Message message;
      while (stream.next(message) == MessageStream::State::message) got.push_back(message);
    }
    EXPECT_EQ(got, one_of_each()) << "pieces of " << piece;
  }
}

TEST(RendezvousProtocol, HelloLayoutIsFixed) {
  Message hello;
  hello.kind = MessageKind::hello;
  hello.rank = 0x01020304;
  hello.world = 5;
  const unsigned char expected[] = {15,   0,    0,    0,     // length of the body
                                    1,                       // kind
                                    0x53, 0x4C, 0x4D, 0x52,  // "SLMR"
                                    1,    0,                 // version
                                    4,    3,    2,    1,    5, 0, 0, 0};
  const Bytes bytes = encode(hello);
  ASSERT_EQ(bytes.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

TEST(RendezvousProtocol, HelloOfAnotherVersionIsReadAsFarAsItIsFixed) {
  WireWriter writer;
  writer.put(std::uint8_t{1}).put(kMagic).put(std::uint16_t{99}).put_text("unknown fields");
  const auto message = decode(std::move(writer).take());
  ASSERT_TRUE(message);
  EXPECT_EQ(message->version, 99);
}

TEST(RendezvousProtocol, EveryTruncationAndEveryExtraByteIsMalformed) {
  for (const Message& message : one_of_each()) {
    const Bytes bytes = encode(message);
    const auto body = std::span<const std::byte>(bytes).subspan(4);
    for (std::size_t size = 0; size < body.size(); ++size) {
      EXPECT_FALSE(decode(body.first(size))) << static_cast<int>(message.kind) << ' ' << size;
    }
    Bytes longer(body.begin(), body.end());
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode(longer)) << static_cast<int>(message.kind);
  }
}

TEST(RendezvousProtocol, LimitsOfKeysAndValues) {
  const auto body = [](std::string_view key, std::size_t value_bytes) {
    WireWriter writer;
    writer.put(static_cast<std::uint8_t>(MessageKind::value)).put_text(key);
    writer.put_bytes(Bytes(value_bytes));
    return std::move(writer).take();
  };
  EXPECT_TRUE(decode(body("k", kValueMax)));
  EXPECT_FALSE(decode(body("k", kValueMax + 1)));
  EXPECT_TRUE(decode(body("result/0", kValueMax + 1)));
  EXPECT_FALSE(decode(body("results/0", kValueMax + 1)));
  EXPECT_TRUE(decode(body(std::string(kKeyMax, 'k'), 0)));
  EXPECT_FALSE(decode(body(std::string(kKeyMax + 1, 'k'), 0)));
  EXPECT_FALSE(decode(body("", 3)));
  EXPECT_TRUE(check_pair("k", kValueMax));
  EXPECT_FALSE(check_pair("k", kValueMax + 1));
  EXPECT_TRUE(check_pair("result/0", kResultValueMax));
  EXPECT_FALSE(check_pair("result/0", kResultValueMax + 1));
  EXPECT_FALSE(check_pair("", 1));
}

TEST(RendezvousProtocol, UnknownKindsAreMalformed) {
  for (int kind = 0; kind < 256; ++kind) {
    const std::byte body[] = {static_cast<std::byte>(kind)};
    const bool empty_kind = kind == 2 || kind == 7 || kind == 8;
    EXPECT_EQ(decode(body).has_value(), empty_kind) << kind;
  }
}

TEST(RendezvousProtocol, StreamRefusesLengthsBeyondItsLimitAtOnceAndForEver) {
  for (const std::uint32_t length : {0U, 65U, ~0U}) {
    MessageStream stream(64);
    Bytes prefix(4);
    store_le(prefix.data(), length);
    stream.feed(prefix);
    Message message;
    EXPECT_EQ(stream.next(message), MessageStream::State::malformed) << length;
    stream.feed(encode(one_of_each()[1]));
    EXPECT_EQ(stream.next(message), MessageStream::State::malformed) << length;
  }
}

TEST(RendezvousProtocol, RefusalTextIsCutAndCleaned) {
  Message refusal;
  refusal.kind = MessageKind::refusal;
  refusal.text = std::string("a\x1b[2Jb\n");
  refusal.text.append(5'000, 'x');
  const Bytes bytes = encode(refusal);
  const auto back = decode(std::span(bytes).subspan(4));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text.size(), kRefusalMax);
  EXPECT_EQ(back->text.substr(0, 7), "a [2Jb ");
}

TEST(RendezvousProtocol, RandomAndMutatedBytesNeverCrash) {
  SplitMix64 random(21);
  const auto messages = one_of_each();
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = encode(messages[random.below(8)]);
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random.below(static_cast<std::uint32_t>(bytes.size()))] =
          static_cast<std::byte>(random.below(256));
    }
    MessageStream stream(kBodyMax);
    stream.feed(bytes);
    Message message;
    while (stream.next(message) == MessageStream::State::message) {
      // Whatever is accepted encodes to something that decodes to the same.
      const Bytes again = encode(message);
      const auto back = decode(std::span(again).subspan(4));
      ASSERT_TRUE(back || message.kind == MessageKind::hello);
      if (message.kind != MessageKind::hello) {
        EXPECT_EQ(*back, message);
      }
    }
  }
}

}  // namespace
}  // namespace selmcast::store
