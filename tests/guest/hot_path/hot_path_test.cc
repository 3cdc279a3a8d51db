// What the driver's thread calls between posting frames and their completions, over 2 * 10^4 of
// them or as many as SELMCAST_FRAMES says.
// Watched from outside by strace as well: what lies between two writes to no file (kMark).
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/guest/devices.h"
#include "tests/unit/sync/progress_path/intercept.h"

namespace selmcast::guest {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

/// Some milliseconds each under strace in an emulated guest.
std::uint32_t frames_wanted() {
  const char* const text = std::getenv("SELMCAST_FRAMES");
  const auto count = text == nullptr ? 20'000UL : std::strtoul(text, nullptr, 10);
  return static_cast<std::uint32_t>(std::clamp(count, 1UL, 10'000'000UL));
}
constexpr std::uint32_t kReads = 500;
constexpr std::uint32_t kBatch = 16;
constexpr std::uint32_t kBytes = 1024;
constexpr char kMark[] = "selmcast-mark";

/// Visible to strace, and of no effect.
void mark() {
  [[maybe_unused]] const auto refused = ::syscall(SYS_write, -1, kMark, sizeof kMark - 1);
}

struct Counts {
  std::uint32_t posted = 0, posts = 0, sent = 0, failed = 0, received = 0, reads = 0;
};

/// Two ranks driven by one thread, as two drivers would.
class HotPath : public testing::Test {
 protected:
  void SetUp() override {
    for (Rank rank = 0; rank < 2; ++rank) ranks_[rank] = open_rank(rank, 77);
    ASSERT_TRUE(ranks_[0] != nullptr && ranks_[1] != nullptr);
    auto region = ranks_[0]->register_memory(frame_);
    auto peer = ranks_[0]->connect(ranks_[1]->address());
    auto back = ranks_[1]->connect(ranks_[0]->address());
    auto send_only = ranks_[0]->join({.index = 3}, JoinAs::send_only);
    auto receiver = ranks_[1]->join({.index = 3}, JoinAs::receiver);
    auto readable = ranks_[1]->abilities().reads->register_readable(there_);
    auto landing = ranks_[0]->abilities().reads->register_target(here_);
    ASSERT_TRUE(region && peer && back && send_only && receiver && readable && landing);
    region_ = std::move(region).value();
    peer_ = std::move(peer).value();
    back_ = std::move(back).value();
    send_only_ = std::move(send_only).value();
    receiver_ = std::move(receiver).value();
    readable_ = std::move(readable).value();
    landing_ = std::move(landing).value();
    slice_ = {.data = frame_.data(), .bytes = kBytes, .region = region_.id()};
  }

  void post(Destination to) noexcept {
    const std::uint32_t left = std::min(kBatch, frames_ - counts_.posted);
    // A window, so that the receiver, who has the same thread, is not overrun.
    if (left == 0 || counts_.posted - counts_.sent > 8 * kBatch) return;
    std::array<SendRequest, kBatch> batch{};
    for (auto& one : batch) one = {.destination = to, .slices = {&slice_, 1}};
    const auto outcome = ranks_[0]->post_sends({batch.data(), left});
    counts_.posted += outcome.accepted;
    counts_.posts += outcome.accepted > 0 ? 1 : 0;
  }

  void read_one() noexcept {
    if (reading_ || !ranks_[0]->abilities().reads->can_read(peer_.id())) return;
    const ReadRequest request{
        .peer = peer_.id(),
        .from = ranks_[1]->abilities().reads->remote_memory(readable_.id(), there_.data()),
        .into = here_.data(),
        .region = landing_.id(),
        .bytes = static_cast<std::uint32_t>(here_.size())};
    reading_ = ranks_[0]->abilities().reads->post_reads({&request, 1}).accepted == 1;
  }

  void poll() noexcept {
    std::array<Completion, 64> out;
    for (auto& rank : ranks_) {
      const std::size_t count = rank->poll(out);
      std::array<ReceiveRequest, 64> back;
      std::size_t lent = 0;
      for (std::size_t i = 0; i < count; ++i) {
        counts_.failed += out[i].status == Status::ok ? 0 : 1;
        if (out[i].kind == Completion::Kind::send) ++counts_.sent;
        if (out[i].kind == Completion::Kind::read) {
          ++counts_.reads;
          reading_ = false;
        }
        if (out[i].kind == Completion::Kind::receive) {
          ++counts_.received;
          back[lent++].token = out[i].token;
        }
      }
      rank->post_receives({back.data(), lent});
    }
  }

  /// Until every frame was sent; `reads` at least, one at a time beside them.
  bool run(Destination to, std::uint32_t reads, seconds limit) noexcept {
    const auto end = Clock::now() + limit;
    while (counts_.sent < frames_ || counts_.reads < reads || reading_) {
      if (Clock::now() > end) return false;
      post(to);
      if (counts_.reads < reads) read_one();
      poll();
    }
    return true;
  }

  std::vector<std::byte> frame_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> there_ = std::vector<std::byte>(16'384);
  std::vector<std::byte> here_ = std::vector<std::byte>(16'384);
  std::array<std::unique_ptr<Transport>, 2> ranks_;
  Region region_, readable_, landing_;
  Endpoint peer_, back_;
  Membership send_only_, receiver_;
  LocalSlice slice_;
  bool reading_ = false;
  const std::uint32_t frames_ = frames_wanted();
  Counts counts_;
};

TEST_F(HotPath, NothingIsAllocatedLockedOrAskedOfTheKernelBetweenPostsAndPolls) {
  const auto end = Clock::now() + seconds(10);
  while (!ranks_[0]->abilities().reads->can_read(peer_.id()) && Clock::now() < end) poll();
  intercept::forget();
  mark();
  bool done = false;
  {
    const intercept::Armed armed(intercept::Watch::all);
    done = run(Destination::to(send_only_), kReads, seconds(200));
  }
  mark();
  std::printf("{\"frames\": %u, \"posts\": %u, \"received\": %u, \"reads\": %u, \"own\": %zu",
              counts_.sent, counts_.posts, counts_.received, counts_.reads,
              intercept::caught_from_this_program());
  for (const auto& [name, count] : intercept::calls()) {
    std::printf(", \"%s\": %zu", name.c_str(), count);
  }
  std::printf("}\n");
  ASSERT_TRUE(done) << ranks_[0]->last_error();
  EXPECT_EQ(counts_.failed, 0U);
  EXPECT_GT(counts_.received, 0U);
  EXPECT_EQ(intercept::caught_from_this_program(), 0U);
  for (const auto& [name, count] : intercept::calls()) {
    // Soft-RoCE's doorbell is a system call, its provider's queues have a lock that nobody else
    // ever takes here. Both are the provider's; a NIC's doorbell is a store.
    if (name == "write") {
      EXPECT_LE(count, counts_.posts + counts_.reads) << "more than one for each doorbell";
    } else {
      EXPECT_EQ(name, "pthread_spin_lock") << count << " times";
    }
  }
  if (testing::Test::HasFailure()) intercept::print();
}

}  // namespace
}  // namespace selmcast::guest
