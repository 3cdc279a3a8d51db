#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/store/support.h"

namespace selmcast::test {
namespace {

TEST(RendezvousSocketFile, StaleOneIsReplacedAndOnlyASocketIs) {
  const TemporaryDirectory directory;
  const auto at = socket_at(directory.file("store"));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto server = StoreServer::start(at, 1);
    ::_exit(server ? 0 : 1);  // Without destructors: the file stays.
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::exists(at.path));
  auto server = serve(at, 1);
  ASSERT_NE(server, nullptr);
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(at.path));

  std::ofstream(at.path) << "precious";
  const auto refused = StoreServer::start(at, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("not a socket"));
  EXPECT_TRUE(std::filesystem::is_regular_file(at.path));
}

TEST(RendezvousSocketFile, AnotherServersFileIsNotRemoved) {
  const TemporaryDirectory directory;
  const auto at = socket_at(directory.file("store"));
  auto first = serve(at, 1);
  std::filesystem::remove(at.path);
  const auto second = serve(at, 1);
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(at.path));
}

TEST(RendezvousSocketFile, PathsThatCannotBe) {
  const auto message = [](std::string path) {
    const auto server = StoreServer::start(socket_at(std::move(path)), 1);
    EXPECT_FALSE(server);
    if (server) return std::string();
    EXPECT_EQ(server.error().kind, ErrorKind::bad_input);
    return server.error().message;
  };
  EXPECT_THAT(message("/tmp/" + std::string(200, 'x')), testing::HasSubstr("107"));
  EXPECT_THAT(message("/nonexistent-directory/s"), testing::HasSubstr("No such file"));
  EXPECT_FALSE(StoreServer::start(any_port(), 0));
  StoreAddress foreign = any_port();
  foreign.host = "192.0.2.1";  // RFC 5737: nobody's.
  const auto server = StoreServer::start(foreign, 1);
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, testing::HasSubstr("not an address of this machine"));
}

TEST(RendezvousAddress, ParsesTheTwoFormsAndNothingElse) {
  const auto tcp = parse_store_address("tcp://host.example:65535");
  ASSERT_TRUE(tcp);
  EXPECT_EQ(tcp->kind, StoreAddress::Kind::tcp);
  EXPECT_EQ(tcp->host, "host.example");
  EXPECT_EQ(tcp->port, 65535);
  const auto v6 = parse_store_address("tcp://[::1]:7");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(to_string(*v6), "tcp://[::1]:7");
  const auto file = parse_store_address("file:relative/path");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path, "relative/path");
  EXPECT_EQ(to_string(*file), "file:relative/path");
  for (const char* bad : {"", "tcp:", "tcp://", "tcp://host", "tcp://host:", "tcp://:1",
                          "tcp://h:65536", "tcp://h:-1", "tcp://h:1x", "tcp://h: 1", "tcp://::1:5",
                          "file:", "host:1", "FILE:x", "udp://h:1", "tcp://[]:1"}) {
    const auto result = parse_store_address(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(result.error().message, testing::HasSubstr("'" + std::string(bad) + "'"));
  }
  EXPECT_FALSE(parse_store_address(std::string_view("file:a\0b", 8)));
}

TEST(RendezvousAddress, UnknownHostFailsAtOnce) {
  StoreAddress at = any_port();
  at.host = "no such host";
  const auto client = connect_store(at, 0, 1, 60s);
  ASSERT_FALSE(client);
  EXPECT_THAT(client.error().message, testing::HasSubstr("no such host"));
}

TEST(RendezvousLocalStore, BehavesAsTheOthersDo) {
  LocalStore store(4);
  auto a = store.client(0);
  auto b = store.client(1);
  EXPECT_FALSE(*a->update(0s));
  ASSERT_TRUE(a->put("x", bytes_of("1")));
  EXPECT_TRUE(*b->update(0s));
  EXPECT_FALSE(*b->update(0s));
  EXPECT_EQ(b->try_get("x"), bytes_of("1"));
  ASSERT_TRUE(a->create("x", bytes_of("2")));
  EXPECT_EQ(b->try_get("x"), bytes_of("1"));
  ASSERT_TRUE(b->create("y", bytes_of("b")));
  ASSERT_TRUE(a->create("y", bytes_of("a")));
  EXPECT_EQ(a->try_get("y"), bytes_of("b"));
  ASSERT_TRUE(a->put("result/0", bytes_of("r")));
  EXPECT_FALSE(a->try_get("result/0"));
  EXPECT_EQ(store.get("result/0"), bytes_of("r"));
  EXPECT_FALSE(a->put("z", Bytes(store::kValueMax + 1)));
  EXPECT_FALSE(a->put("", {}));
  EXPECT_EQ(a->world(), 4U);
  EXPECT_EQ(b->rank(), 1U);

  auto c = store.client(2);
  c->leave();
  c.reset();
  EXPECT_FALSE(a->lost(2));
  EXPECT_FALSE(a->lost(1));
  b.reset();
  EXPECT_TRUE(a->lost(1));
  store.declare_lost(3);
  EXPECT_TRUE(a->lost(3));
  EXPECT_TRUE(*a->update(0s));
  store.declare_lost(0);
  EXPECT_FALSE(a->update(0s));
  EXPECT_FALSE(a->put("x", {}));
}

}  // namespace
}  // namespace selmcast::test
