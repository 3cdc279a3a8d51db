// Registrations: what the kernel holds, and for how long.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdio>
#include <memory>
#include <string>

#include "tests/guest/devices.h"
#include "transport/verbs/verbs_transport.h"

namespace selmcast::guest {
namespace {

class VerbsRegistrations : public testing::Test {
 protected:
  static std::unique_ptr<Transport> open() {
    TransportConfig config;
    config.job = 7;
    config.interface = device_names()[0];
    auto opened = open_verbs(config);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(opened).value();
  }
  /// What the kernel holds of all devices.
  static int regions() {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
        ::popen("rdma resource show mr | wc -l", "r"), &::pclose);
    int count = -1;
    if (pipe == nullptr || std::fscanf(pipe.get(), "%d", &count) != 1) return -1;
    return count;
  }
  struct Mapping {
    explicit Mapping(std::size_t size)
        : bytes(size),
          at(static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {}
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { ::munmap(at, bytes); }
    std::span<std::byte> span() const { return {at, bytes}; }
    std::size_t bytes;
    std::byte* at;
  };
};

TEST_F(VerbsRegistrations, EndWithTheirRegion) {
  const int before = regions();
  if (before < 0) GTEST_SKIP() << "no `rdma resource show mr` here";
  auto transport = open();
  const int open_ones = regions();
  {
    const Mapping memory(1U << 20U);
    auto one = transport->register_memory(memory.span());
    auto part = transport->register_memory(memory.span().subspan(4096, 8192));
    auto readable = transport->abilities().reads->register_readable(memory.span());
    ASSERT_TRUE(one && part && readable);
    EXPECT_EQ(regions(), open_ones + 3);
    part->reset();
    EXPECT_EQ(regions(), open_ones + 2);
  }
  EXPECT_EQ(regions(), open_ones);
  transport.reset();
  EXPECT_EQ(regions(), before);
}

}  // namespace
}  // namespace selmcast::guest
