// Registrations that are kept: what the kernel holds, and what a hit costs.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/guest/devices.h"
#include "transport/verbs/verbs_backend.h"

namespace selmcast::guest {
namespace {

using Watch = std::chrono::steady_clock;

class VerbsRegistrations : public testing::Test {
 protected:
  static std::unique_ptr<Transport> open(std::uint64_t idle_bytes) {
    TransportConfig config;
    config.job = 7;
    config.interface = device_names()[0];
    config.idle_registration_bytes = idle_bytes;
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
  static const verbs::RegistrationCache::Counters& counters(const Transport& transport) {
    return static_cast<const verbs::VerbsTransport&>(transport).registrations();
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

TEST_F(VerbsRegistrations, TheKernelHoldsWhatTheCacheSays) {
  const int before = regions();
  if (before < 0) GTEST_SKIP() << "no `rdma resource show mr` here";
  auto transport = open(1U << 30U);
  const int open_ones = regions();
  {
    const Mapping memory(1U << 20U);
    auto one = transport->register_memory(memory.span());
    auto part = transport->register_memory(memory.span().subspan(4096, 8192));
    ASSERT_TRUE(one && part);
    EXPECT_EQ(regions(), open_ones + 1);
    one->reset();
    part->reset();
    EXPECT_EQ(regions(), open_ones + 1);
    for (int times = 0; times < 50; ++times) {
      auto again = transport->register_memory(memory.span());
      ASSERT_TRUE(again);
    }
    EXPECT_EQ(regions(), open_ones + 1);
    EXPECT_EQ(counters(*transport).misses, 1U);
    EXPECT_EQ(counters(*transport).hits, 51U);
    // Peers' keys are not kept.
    auto readable = transport->register_readable(memory.span());
    ASSERT_TRUE(readable);
    EXPECT_EQ(regions(), open_ones + 2);
    readable->reset();
    EXPECT_EQ(regions(), open_ones + 1);
  }
  // Unmapped by now; dropped when the transport sleeps.
  transport->wait(Duration{});
  transport->wait(Duration{});
  EXPECT_EQ(regions(), open_ones);
  EXPECT_EQ(counters(*transport).invalidated, 1U);
  for (int times = 0; times < 300; ++times) {
    const Mapping memory(16384);
    auto lease = transport->register_landing(memory.span());
    ASSERT_TRUE(lease);
    lease->reset();
  }
  EXPECT_LE(regions(), open_ones + 1);
  transport.reset();
  EXPECT_EQ(regions(), before);
}

TEST_F(VerbsRegistrations, SwitchedOffNothingIsKept) {
  const int before = regions();
  if (before < 0) GTEST_SKIP() << "no `rdma resource show mr` here";
  auto transport = open(0);
  const int open_ones = regions();
  const Mapping memory(1U << 20U);
  { ASSERT_TRUE(transport->register_memory(memory.span())); }
  EXPECT_EQ(regions(), open_ones);
}

TEST_F(VerbsRegistrations, CostsOfAHitAndAMiss) {
  for (const std::uint64_t idle : {std::uint64_t{0}, std::uint64_t{1} << 30U}) {
    auto transport = open(idle);
    for (const std::size_t mib : {1U, 64U}) {
      std::vector<double> first, later;
      for (int round = 0; round < 7; ++round) {
        const Mapping memory(mib << 20U);
        for (int times = 0; times < 3; ++times) {
          const auto start = Watch::now();
          auto region = transport->register_memory(memory.span());
          ASSERT_TRUE(region);
          region->reset();
          const std::chrono::duration<double, std::micro> took = Watch::now() - start;
          (times == 0 ? first : later).push_back(took.count());
        }
      }
      std::sort(first.begin(), first.end());
      std::sort(later.begin(), later.end());
      std::printf("%zu MiB, cache %s: first %.1f us, again %.1f us (medians)\n", mib,
                  idle == 0 ? "off" : "on", first[first.size() / 2], later[later.size() / 2]);
      const auto& count = counters(*transport);
      EXPECT_EQ(count.hits > 0, idle != 0);
    }
  }
}

}  // namespace
}  // namespace selmcast::guest
