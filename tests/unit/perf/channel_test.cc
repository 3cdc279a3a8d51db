// How the two ends of a measurement find each other, where the machine does not let them.
#include "tools/perf/channel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/unique_fd.h"

namespace selmcast::perf {
namespace {

/// A loopback port that nobody listened at a moment ago.
sockaddr_in some_address() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof out;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&out), size), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&out), &size), 0);
  return out;
}

TEST(PerfChannel, AProcessWithoutDescriptorsSaysSoInsteadOfSpinning) {
  const sockaddr_in address = some_address();
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // The lowest free descriptor is the last one that there may be: the listener gets it.
  const int lowest = ::fcntl(client.get(), F_DUPFD_CLOEXEC, 0);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  rlimit before{}, few{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = static_cast<rlim_t>(lowest) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto begun = std::chrono::steady_clock::now();
  std::thread knocks([&] {
    for (int i = 0; i < 1000; ++i) {
      if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const auto got = Channel::accept_one(ntohs(address.sin_port), std::chrono::seconds(10));
  knocks.join();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, testing::HasSubstr("Too many open files"));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(9));
}

}  // namespace
}  // namespace selmcast::perf
