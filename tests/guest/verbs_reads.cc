// Reading from a peer's memory: the bytes, the order, and what becomes of reads that cannot
// succeed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/guest/devices.h"
#include "transport/verbs/verbs_transport.h"

namespace selmcast::guest {
namespace {

using std::chrono::milliseconds;
using Watch = std::chrono::steady_clock;

class VerbsReads : public testing::Test {
 protected:
  void SetUp() override {
    for (Rank rank = 0; rank < 2; ++rank) ranks_[rank] = open_rank(rank, 99);
    ASSERT_TRUE(ranks_[0] != nullptr && ranks_[1] != nullptr);
    to_peer_ = connect(*ranks_[0], *ranks_[1]);
    to_reader_ = connect(*ranks_[1], *ranks_[0]);
    SplitMix64 random(5);
    for (std::byte& b : there_) b = static_cast<std::byte>(random());
    auto readable = ranks_[1]->abilities().reads->register_readable(there_);
    auto landing = ranks_[0]->abilities().reads->register_target(here_);
    ASSERT_TRUE(readable && landing);
    readable_ = std::move(readable).value();
    landing_ = std::move(landing).value();
  }

  static Endpoint connect(Transport& from, Transport& to) {
    auto made = from.connect(to.address());
    EXPECT_TRUE(made) << made.error().message;
    return std::move(made).value();
  }

  void poll_all() {
    std::array<Completion, 64> out;
    for (std::size_t r = 0; r < 2; ++r) {
      if (ranks_[r] == nullptr) continue;
      const std::size_t count = ranks_[r]->poll(out);
      for (std::size_t i = 0; i < count; ++i) {
        if (out[i].kind == Completion::Kind::read) done_.push_back(out[i]);
      }
    }
  }
  template <class Done>
  bool pump(Done done, milliseconds limit = milliseconds(20'000)) {
    const auto end = Watch::now() + limit;
    while (!done()) {
      if (Watch::now() > end) return false;
      poll_all();
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  bool connected() {
    return pump([this] { return ranks_[0]->abilities().reads->can_read(to_peer_.id()); });
  }
  ReadRequest request(std::size_t from, std::size_t into, std::uint32_t bytes, std::uint64_t user) {
    return {
        .peer = to_peer_.id(),
        .from = ranks_[1]->abilities().reads->remote_memory(readable_.id(), there_.data() + from),
        .into = here_.data() + into,
        .region = landing_.id(),
        .bytes = bytes,
        .user = user};
  }
  PostState post(const ReadRequest& request) {
    return ranks_[0]->abilities().reads->post_reads({&request, 1}).state;
  }

  static constexpr std::size_t kBytes = 300'000;
  std::array<std::unique_ptr<Transport>, 2> ranks_;
  std::vector<std::byte> there_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> here_ = std::vector<std::byte>(kBytes);
  Endpoint to_peer_, to_reader_;
  Region readable_, landing_;
  std::vector<Completion> done_;
};

TEST_F(VerbsReads, BytesArriveAndCompletionsKeepTheirOrder) {
  ASSERT_TRUE(connected());
  const std::vector<std::uint32_t> sizes{1, 8, 4095, 4096, 4097, 70'000, 131'072};
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < sizes.size(); ++i) {
    ASSERT_EQ(post(request(at, at, sizes[i], i)), PostState::accepted);
    at += sizes[i];
  }
  ASSERT_TRUE(pump([&] { return done_.size() == sizes.size(); }));
  for (std::uint64_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(done_[i].user, i);
    EXPECT_EQ(done_[i].status, Status::ok);
  }
  EXPECT_TRUE(
      std::equal(here_.begin(), here_.begin() + static_cast<std::ptrdiff_t>(at), there_.begin()));
  EXPECT_TRUE(std::all_of(here_.begin() + static_cast<std::ptrdiff_t>(at), here_.end(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(VerbsReads, NothingIsTakenBeforeTheWayIsMade) {
  EXPECT_EQ(post(request(0, 0, 8, 0)), PostState::backpressure);
  ASSERT_TRUE(connected());
  EXPECT_EQ(post(request(0, 0, 8, 0)), PostState::accepted);
  EXPECT_TRUE(pump([&] { return done_.size() == 1; }));
}

TEST_F(VerbsReads, MoreThanTheDepthIsBackpressureAndAllComplete) {
  ASSERT_TRUE(connected());
  std::uint32_t posted = 0;
  while (post(request(posted * 8, posted * 8, 8, posted)) == PostState::accepted) ++posted;
  EXPECT_EQ(posted, 64U);
  ASSERT_TRUE(pump([&] { return done_.size() == posted; }));
  EXPECT_EQ(post(request(0, 0, 8, 99)), PostState::accepted);
  EXPECT_TRUE(pump([&] { return done_.size() == posted + 1; }));
}

TEST_F(VerbsReads, RefusedMemoryFailsWhatWasPostedAndTheWayIsMadeAnew) {
  ASSERT_TRUE(connected());
  auto beyond = request(0, 0, 4096, 1);
  beyond.from.address += kBytes - 8;
  ASSERT_EQ(post(beyond), PostState::accepted);
  post(request(0, 0, 8, 2));
  ASSERT_TRUE(pump([&] { return done_.size() >= 2; }));
  EXPECT_EQ(done_[0].status, Status::failed);
  EXPECT_EQ(done_[1].status, Status::failed);
  EXPECT_NE(ranks_[0]->last_error().find("memory region"), std::string::npos)
      << ranks_[0]->last_error();
  done_.clear();
  const auto start = Watch::now();
  ASSERT_TRUE(connected());
  const auto took = std::chrono::duration_cast<milliseconds>(Watch::now() - start).count();
  RecordProperty("reconnect_ms", static_cast<int>(took));
  ASSERT_EQ(post(request(100, 100, 5000, 3)), PostState::accepted);
  ASSERT_TRUE(pump([&] { return done_.size() == 1; }));
  EXPECT_EQ(done_[0].status, Status::ok);
  EXPECT_TRUE(std::equal(here_.begin() + 100, here_.begin() + 5100, there_.begin() + 100));
}

TEST_F(VerbsReads, DeregisteredMemoryIsNotRead) {
  ASSERT_TRUE(connected());
  const auto stale = request(0, 0, 64, 7);
  readable_.reset();
  ASSERT_EQ(post(stale), PostState::accepted);
  ASSERT_TRUE(pump([&] { return done_.size() == 1; }));
  EXPECT_EQ(done_[0].status, Status::failed);
  EXPECT_TRUE(
      std::all_of(here_.begin(), here_.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(VerbsReads, SendableMemoryThatIsNotReadableIsNotRead) {
  ASSERT_TRUE(connected());
  auto sendable = ranks_[1]->register_memory(there_);
  ASSERT_TRUE(sendable);
  auto forbidden = request(0, 0, 64, 7);
  forbidden.from = ranks_[1]->abilities().reads->remote_memory(sendable->id(), there_.data());
  ASSERT_EQ(post(forbidden), PostState::accepted);
  ASSERT_TRUE(pump([&] { return done_.size() == 1; }));
  EXPECT_EQ(done_[0].status, Status::failed);
}

TEST_F(VerbsReads, AClosedEndpointEndsItsReads) {
  ASSERT_TRUE(connected());
  ASSERT_EQ(post(request(0, 0, 131'072, 5)), PostState::accepted);
  to_peer_.reset();
  ASSERT_TRUE(pump([&] { return done_.size() == 1; }));
  EXPECT_EQ(done_[0].user, 5U);
}

TEST_F(VerbsReads, APeerThatIsGoneFailsReadsWithinTheRetries) {
  ASSERT_TRUE(connected());
  const auto late = request(0, 0, 64, 6);
  to_reader_.reset();
  readable_.reset();
  ranks_[1].reset();
  ASSERT_EQ(post(late), PostState::accepted);
  // Eight tries of 67 ms, which a device may stretch to four times that.
  ASSERT_TRUE(pump([&] { return done_.size() == 1; }, milliseconds(8 * 67 * 4 + 4'000)));
  EXPECT_EQ(done_[0].status, Status::failed);
  const std::string text = ranks_[0]->last_error();
  EXPECT_NE(text.find("does not acknowledge"), std::string::npos) << text;
  EXPECT_NE(text.find(device_names()[0]), std::string::npos) << text;
}

}  // namespace
}  // namespace selmcast::guest
