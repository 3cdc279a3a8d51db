#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "tests/unit/store/support.h"

namespace selmcast::test {
namespace {

/// Every test runs over a unix socket and over TCP.
class RendezvousStore : public testing::TestWithParam<bool> {
 protected:
  StoreAddress address() const {
    return GetParam() ? any_port() : socket_at(directory.file("store"));
  }
  TemporaryDirectory directory;
};

INSTANTIATE_TEST_SUITE_P(Sockets, RendezvousStore, testing::Bool(),
                         [](const auto& socket) { return socket.param ? "tcp" : "unix"; });

Bytes waited(Rendezvous& client, std::string_view key) {
  auto value = wait_for_key(client, key, 10s, "the test");
  EXPECT_TRUE(value) << (value ? "" : value.error().message);
  return value ? *value : Bytes();
}

TEST_P(RendezvousStore, WritesReachEveryClientAlsoThoseThatComeLater) {
  const auto server = serve(address(), 3);
  const auto a = join(*server, 0, 3);
  const auto b = join(*server, 2, 3);
  EXPECT_EQ(a->rank(), 0U);
  EXPECT_EQ(b->rank(), 2U);
  EXPECT_EQ(b->world(), 3U);
  EXPECT_FALSE(b->try_get("x"));
  ASSERT_TRUE(a->put("x", bytes_of("1")));
  EXPECT_EQ(waited(*b, "x"), bytes_of("1"));
  EXPECT_EQ(waited(*a, "x"), bytes_of("1"));
  ASSERT_TRUE(a->put("x", bytes_of("2")));
  ASSERT_TRUE(a->put("end", {}));
  waited(*b, "end");
  EXPECT_EQ(b->try_get("x"), bytes_of("2"));
  const auto late = join(*server, 1, 3);
  EXPECT_EQ(late->try_get("x"), bytes_of("2")) << "the copy is there when connect_store returns";
  EXPECT_EQ(late->try_get("end"), Bytes());
  EXPECT_EQ(server->get("x"), bytes_of("2"));
}

/// A connection that has joined as `rank` and notes the server's messages in the order they come.
class Listener {
 public:
  Listener(const StoreServer& server, Rank rank, std::uint32_t world) : raw_(server.address()) {
    store::Message hello;
    hello.kind = store::MessageKind::hello;
    hello.rank = rank;
    hello.world = world;
    EXPECT_TRUE(raw_.send(store::encode(hello)));
  }
  /// Everything up to a write of `key`, as "key=value".
  std::vector<std::string> until(std::string_view key) {
    std::vector<std::string> out;
    store::MessageStream stream(store::kBodyMax);
    while (raw_.receive()) {
      stream.feed(std::exchange(raw_.heard, {}));
      store::Message message;
      while (stream.next(message) == store::MessageStream::State::message) {
        if (message.kind != store::MessageKind::value) continue;
        if (message.key == key) return out;
        const std::string_view value(reinterpret_cast<const char*>(message.value.data()),
                                     message.value.size());
        out.push_back(message.key + "=" + std::string(value));
      }
    }
    ADD_FAILURE() << "the connection ended before " << key;
    return out;
  }

 private:
  RawClient raw_;
};

TEST_P(RendezvousStore, AllHearTheWritesInOneOrder) {
  constexpr std::uint32_t kWriters = 3;
  constexpr std::uint32_t kWorld = kWriters + 2;
  constexpr int kWrites = 200;
  const auto server = serve(address(), kWorld);
  Listener first(*server, kWriters, kWorld);
  Listener second(*server, kWriters + 1, kWorld);
  std::vector<std::unique_ptr<Rendezvous>> clients;
  for (Rank rank = 0; rank < kWriters; ++rank) clients.push_back(join(*server, rank, kWorld));
  ASSERT_TRUE(clients[0]->put("begin", {}));
  for (auto& client : clients) waited(*client, "begin");
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kWriters; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < kWrites; ++i) {
        const std::string value = std::to_string(rank) + ":" + std::to_string(i);
        ASSERT_TRUE(clients[rank]->put(i % 2 == 0 ? "even" : "odd", bytes_of(value)));
        ASSERT_TRUE(clients[rank]->update(0s));
      }
      ASSERT_TRUE(clients[rank]->put("done/" + std::to_string(rank), {}));
    });
  }
  for (auto& thread : threads) thread.join();
  for (Rank rank = 0; rank < kWriters; ++rank) waited(*clients[0], "done/" + std::to_string(rank));
  ASSERT_TRUE(clients[0]->put("end", {}));
  const auto heard = first.until("end");
  EXPECT_EQ(heard, second.until("end"));
  EXPECT_EQ(heard.size(), 1 + kWriters * (kWrites + 1)) << "begin, the writes, and done of each";
  // The copies end at the last write of each key in that order.
  std::map<std::string, std::string> last;
  for (const std::string& line : heard) last[line.substr(0, line.find('='))] = line;
  for (auto& client : clients) {
    waited(*client, "end");
    for (const char* key : {"even", "odd"}) {
      const std::string line = last[key];
      EXPECT_EQ(client->try_get(key), bytes_of(line.substr(line.find('=') + 1)));
    }
  }
}

TEST_P(RendezvousStore, AWriteIsSeenOnlyAfterWhatItsWriterHadSeen) {
  const auto server = serve(address(), 3);
  const auto a = join(*server, 0, 3);
  const auto b = join(*server, 1, 3);
  const auto c = join(*server, 2, 3);
  for (int i = 0; i < 200; ++i) {
    const std::string n = std::to_string(i);
    ASSERT_TRUE(a->put("cause", bytes_of(n)));
    while (b->try_get("cause") != bytes_of(n)) ASSERT_TRUE(b->update(5s));
    ASSERT_TRUE(b->put("effect" + n, {}));
    waited(*c, "effect" + n);
    EXPECT_EQ(c->try_get("cause"), bytes_of(n));
  }
}

TEST_P(RendezvousStore, CreateHasExactlyOneWinner) {
  constexpr std::uint32_t kWorld = 4;
  constexpr int kRounds = 50;
  const auto server = serve(address(), kWorld);
  std::vector<std::vector<Bytes>> winners(kWorld);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      const auto client = join(*server, rank, kWorld);
      for (int i = 0; i < kRounds; ++i) {
        const std::string key = "epoch/" + std::to_string(i);
        ASSERT_TRUE(client->create(key, bytes_of(std::to_string(rank))));
        winners[rank].push_back(waited(*client, key));
      }
      client->leave();
    });
  }
  for (auto& thread : threads) thread.join();
  for (Rank rank = 1; rank < kWorld; ++rank) EXPECT_EQ(winners[rank], winners[0]);
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(server->get("epoch/" + std::to_string(i)), winners[0][static_cast<std::size_t>(i)]);
  }
}

TEST_P(RendezvousStore, ResultsStayAtTheServerAndMayBeLarge) {
  const auto server = serve(address(), 2);
  const auto a = join(*server, 0, 2);
  const auto b = join(*server, 1, 2);
  Bytes large(store::kResultValueMax);
  for (std::size_t i = 0; i < large.size(); i += 4093) large[i] = static_cast<std::byte>(i);
  ASSERT_TRUE(a->put("result/0", large));
  EXPECT_FALSE(a->put("result/0", Bytes(store::kResultValueMax + 1)));
  EXPECT_FALSE(a->put("other", Bytes(store::kValueMax + 1)));
  ASSERT_TRUE(a->put("end", {}));
  waited(*b, "end");
  EXPECT_FALSE(b->try_get("result/0"));
  a->leave();
  EXPECT_EQ(server->get("result/0"), large);
}

TEST_P(RendezvousStore, LeaveReturnsAfterTheServerHasEverything) {
  const auto server = serve(address(), 2);
  const auto busy = join(*server, 1, 2);
  auto a = join(*server, 0, 2);
  // Unread news in the client's socket turns its close into a reset on TCP.
  for (int j = 0; j < 50; ++j) ASSERT_TRUE(busy->put("news", Bytes(10'000)));
  ASSERT_TRUE(a->put("result/x", Bytes(3'000'000)));
  a->leave();
  EXPECT_EQ(server->gone(), 1U);
  EXPECT_EQ(server->get("result/x").value_or(Bytes()).size(), 3'000'000U);
  a.reset();
  ASSERT_TRUE(busy->put("end", {}));
  waited(*busy, "end");
  EXPECT_FALSE(server->lost(0));
}

TEST_P(RendezvousStore, BrokenConnectionIsALossThatAllHearOf) {
  const auto server = serve(address(), 4);
  const auto a = join(*server, 0, 4);
  auto b = join(*server, 1, 4);
  auto c = join(*server, 2, 4);
  c->leave();
  c.reset();
  b.reset();
  while (!a->lost(1)) ASSERT_TRUE(a->update(5s));
  EXPECT_FALSE(a->lost(0));
  EXPECT_FALSE(a->lost(2)) << "it said goodbye";
  EXPECT_FALSE(a->lost(99));
  EXPECT_TRUE(server->lost(1));
  EXPECT_EQ(server->gone(), 2U);
  const auto late = join(*server, 3, 4);
  EXPECT_TRUE(late->lost(1)) << "known when connect_store returns";
  const auto failed = wait_for_key(*a, "never", 20s, "rank 1's address", Rank{1});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("rank 1 was lost"), std::string::npos);
  EXPECT_NE(failed.error().message.find("rank 1's address"), std::string::npos);
}

TEST_P(RendezvousStore, DeclaredLossIsHeardAndShutsTheRankOut) {
  const auto server = serve(address(), 3);
  const auto a = join(*server, 0, 3);
  const auto b = join(*server, 1, 3);
  server->declare_lost(1);
  server->declare_lost(2);
  server->declare_lost(77);
  EXPECT_TRUE(server->lost(1));
  while (!a->lost(1) || !a->lost(2)) ASSERT_TRUE(a->update(5s));
  Result<bool> news = b->update(5s);
  while (news) news = b->update(5s);
  EXPECT_NE(news.error().message.find("rank 1 was declared lost"), std::string::npos)
      << news.error().message;
  EXPECT_FALSE(b->put("x", {}));
  const auto late = connect_store(server->address(), 2, 3, 5s);
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("lost"), std::string::npos);
}

TEST_P(RendezvousStore, KilledProcessIsALoss) {
  const auto server = serve(address(), 2);
  const auto at = server->address();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto client = connect_store(at, 1, 2, 5s);
    if (!client || !(*client)->put("here", {})) ::_exit(1);
    while (true) ::pause();
  }
  const auto a = join(*server, 0, 2);
  waited(*a, "here");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (!a->lost(1)) ASSERT_TRUE(a->update(5s));
}

TEST_P(RendezvousStore, RefusalsNameBothSidesAndComeAtOnce) {
  const auto server = serve(address(), 4);
  const auto a = join(*server, 0, 4);
  const auto start = std::chrono::steady_clock::now();
  const auto refusal = [&](Rank rank, std::uint32_t world) {
    const auto client = connect_store(server->address(), rank, world, 60s);
    EXPECT_FALSE(client);
    if (client) return std::string();
    EXPECT_EQ(client.error().kind, ErrorKind::bad_input);
    return client.error().message;
  };
  EXPECT_THAT(refusal(1, 8), testing::AllOf(testing::HasSubstr("8"), testing::HasSubstr("4")));
  EXPECT_THAT(refusal(0, 4), testing::HasSubstr("rank 0 is taken"));
  EXPECT_THAT(refusal(4, 4), testing::HasSubstr("rank 4 is out of range"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
  {
    auto left = join(*server, 1, 4);
    left->leave();
  }
  EXPECT_THAT(refusal(1, 4), testing::HasSubstr("already left"));
}

TEST_P(RendezvousStore, OtherVersionIsRefusedWithBothNumbers) {
  const auto server = serve(address(), 2);
  RawClient old(server->address());
  store::Message hello;
  hello.kind = store::MessageKind::hello;
  hello.version = 77;
  hello.world = 2;
  ASSERT_TRUE(old.send(store::encode(hello)));
  ASSERT_TRUE(old.closed_by_server());
  store::MessageStream stream(store::kBodyMax);
  stream.feed(old.heard);
  store::Message answer;
  ASSERT_EQ(stream.next(answer), store::MessageStream::State::message);
  EXPECT_EQ(answer.kind, store::MessageKind::refusal);
  EXPECT_THAT(answer.text, testing::AllOf(testing::HasSubstr("77"), testing::HasSubstr("1")));
}

TEST_P(RendezvousStore, MalformedClientsAreDroppedAndDisturbNobody) {
  const auto server = serve(address(), 3);
  const auto a = join(*server, 0, 3);
  const auto text = [](std::string_view t) { return bytes_of(t); };
  const Bytes attacks[] = {
      text("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), Bytes(4), Bytes(200, std::byte{0xFF}),
      store::encode_write("x", text("y"), false),  // before hello
  };
  for (const Bytes& attack : attacks) {
    RawClient raw(server->address());
    ASSERT_TRUE(raw.send(attack));
    EXPECT_TRUE(raw.closed_by_server());
  }
  RawClient joined(server->address());
  store::Message hello;
  hello.kind = store::MessageKind::hello;
  hello.rank = 2;
  hello.world = 3;
  ASSERT_TRUE(joined.send(store::encode(hello)));
  ASSERT_TRUE(joined.send(Bytes(64, std::byte{0xFF})));
  EXPECT_TRUE(joined.closed_by_server());
  while (!a->lost(2)) ASSERT_TRUE(a->update(5s));
  ASSERT_TRUE(a->put("still", text("well")));
  EXPECT_EQ(waited(*a, "still"), text("well"));
  EXPECT_FALSE(server->get("x"));
}

TEST_P(RendezvousStore, SilentConnectionIsClosedAfterAWhile) {
  const auto server = serve(address(), 2);
  RawClient silent(server->address());
  ASSERT_TRUE(silent.send(Bytes(2)));
  EXPECT_TRUE(silent.closed_by_server(20s));
}

TEST_P(RendezvousStore, FloodOfStrangersLeavesRoomForRanks) {
  const auto server = serve(address(), 2);
  std::vector<std::unique_ptr<RawClient>> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(std::make_unique<RawClient>(server->address()));
  // The server keeps 68 of them for up to 5 s, then there is room again.
  const auto a = connect_store(server->address(), 0, 2, 20s);
  EXPECT_TRUE(a) << (a ? "" : a.error().message);
}

TEST_P(RendezvousStore, ClientStartsBeforeItsServer) {
  StoreAddress at = address();
  if (at.kind == StoreAddress::Kind::tcp) at = serve(at, 1)->address();  // A port that was free.
  Result<std::unique_ptr<Rendezvous>> early = failed("not tried");
  std::thread thread([&] { early = connect_store(at, 0, 1, 20s); });
  std::this_thread::sleep_for(100ms);
  const auto server = serve(at, 1);
  thread.join();
  EXPECT_TRUE(early) << (early ? "" : early.error().message);
}

TEST_P(RendezvousStore, NobodyThereIsAnErrorAtTheDeadline) {
  StoreAddress at = address();
  if (at.kind == StoreAddress::Kind::tcp) at = serve(at, 1)->address();
  const auto start = std::chrono::steady_clock::now();
  const auto client = connect_store(at, 5, 8, 200ms);
  ASSERT_FALSE(client);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 200ms);
  EXPECT_THAT(client.error().message,
              testing::AllOf(testing::HasSubstr(to_string(at)), testing::HasSubstr("rank 5")));
}

TEST_P(RendezvousStore, LossOfTheServerIsAnErrorThatNamesIt) {
  auto server = serve(address(), 2);
  const auto a = join(*server, 0, 2);
  const std::string at = to_string(server->address());
  server.reset();
  Result<bool> news = a->update(5s);
  while (news) news = a->update(5s);
  EXPECT_THAT(news.error().message, testing::HasSubstr(at));
  EXPECT_FALSE(a->put("x", {}));
  EXPECT_FALSE(a->create("x", {}));
  EXPECT_FALSE(wait_for_key(*a, "x", 20s, "x"));
  a->leave();
}

TEST_P(RendezvousStore, RestartedServerTakesItsAddressBackAndIsEmpty) {
  auto server = serve(address(), 1);
  const auto at = server->address();
  const auto a = join(*server, 0, 1);
  ASSERT_TRUE(a->put("x", bytes_of("1")));
  waited(*a, "x");
  server.reset();
  server = serve(at, 1);
  const auto again = join(*server, 0, 1);
  EXPECT_FALSE(again->try_get("x"));
}

TEST_P(RendezvousStore, AddressInUseIsBadInput) {
  const auto server = serve(address(), 1);
  const auto second = StoreServer::start(server->address(), 1);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(second.error().message,
              testing::AllOf(testing::HasSubstr("in use"),
                             testing::HasSubstr(to_string(server->address()))));
  EXPECT_NE(join(*server, 0, 1), nullptr) << "the first server is unharmed";
}

TEST_P(RendezvousStore, UpdateWaitsNoLongerThanAsked) {
  const auto server = serve(address(), 1);
  const auto a = join(*server, 0, 1);
  const auto start = std::chrono::steady_clock::now();
  const auto nothing = a->update(50ms);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(*nothing);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
  EXPECT_FALSE(*a->update(0ms));
  EXPECT_FALSE(*a->update(-5ms));
  const auto late = wait_for_key(*a, "never", 50ms, "what never comes");
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message,
              testing::AllOf(testing::HasSubstr("what never comes"), testing::HasSubstr("'never'"),
                             testing::HasSubstr("0.05 s")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

}  // namespace
}  // namespace selmcast::test
