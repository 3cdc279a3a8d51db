// What a request comes to, against a brute force.
#include "transport/request_shape.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/random.h"

namespace selmcast {
namespace {

constexpr RegionId kRegion = 5;
constexpr std::size_t kMemory = 4096;

class Shape : public testing::Test {
 protected:
  Shape() : memory_(kMemory), whole_(memory_) {
    limits_.max_frame_bytes = 100;
    limits_.max_request_bytes = 1000;
    limits_.max_request_slices = 4;
    limits_.max_request_frames = 16;
  }
  LocalSlice slice(std::size_t at, std::uint32_t bytes) const {
    return {memory_.data() + at, bytes, kRegion};
  }
  Status measured(std::vector<LocalSlice> slices, std::uint32_t frame_bytes) {
    SendRequest request;
    request.slices = slices;
    request.frame_bytes = frame_bytes;
    visited_ = 0;
    shape_ = {7, 7, 7};
    return measure(
        request, limits_, [this](RegionId id) { return id == kRegion ? &whole_ : nullptr; },
        [this](const LocalSlice& visited) { visited_ += visited.bytes; }, shape_);
  }

  std::vector<std::byte> memory_;
  std::span<const std::byte> whole_;
  Capabilities limits_;
  RequestShape shape_;
  std::uint64_t visited_ = 0;
};

TEST_F(Shape, CutsAsOneWouldByHand) {
  SplitMix64 random(4);
  int good = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto bytes = static_cast<std::uint32_t>(random.below(1100));
    const auto frame_bytes = static_cast<std::uint32_t>(random.below(140));
    std::vector<std::uint32_t> frames;
    for (std::uint32_t left = bytes; left > 0; left -= frames.back()) {
      frames.push_back(frame_bytes == 0 ? left : std::min(left, frame_bytes));
    }
    const bool fits =
        bytes <= 1000 && frames.size() <= 16 && (frames.empty() || frames.front() <= 100);
    const std::uint32_t half = bytes / 2;
    const Status status = measured({slice(3, half), slice(77, bytes - half)}, frame_bytes);
    ASSERT_EQ(status, fits ? Status::ok : Status::oversize) << bytes << " by " << frame_bytes;
    if (!fits) continue;
    ++good;
    ASSERT_EQ(shape_.bytes, bytes);
    ASSERT_EQ(shape_.frames, frames.size());
    ASSERT_EQ(shape_.frame_bytes, frames.empty() ? 0 : frames.front());
    ASSERT_EQ(visited_, bytes);
  }
  EXPECT_GT(good, 100);
}

TEST_F(Shape, EverySliceLiesInItsRegion) {
  EXPECT_EQ(measured({slice(0, 100)}, 0), Status::ok);
  EXPECT_EQ(measured({slice(kMemory - 100, 100)}, 0), Status::ok);
  EXPECT_EQ(measured({slice(kMemory - 99, 100)}, 0), Status::not_registered);
  EXPECT_EQ(measured({slice(kMemory, 1)}, 0), Status::not_registered);
  EXPECT_EQ(measured({{memory_.data() - 1, 1, kRegion}}, 0), Status::not_registered);
  EXPECT_EQ(measured({{memory_.data(), 1, kRegion + 1}}, 0), Status::not_registered);
  EXPECT_EQ(measured({slice(0, 1), slice(0, ~0U)}, 0), Status::not_registered);
  EXPECT_EQ(shape_.bytes, 7U) << "what is refused is not measured";
  // One without a byte is nothing, wherever it lies.
  EXPECT_EQ(measured({{nullptr, 0, 99}, slice(1, 2)}, 0), Status::ok);
  EXPECT_EQ(shape_.bytes, 2U);
}

TEST_F(Shape, HasNoMoreSlicesThanTheLimit) {
  EXPECT_EQ(measured(std::vector<LocalSlice>(4, slice(0, 1)), 0), Status::ok);
  EXPECT_EQ(measured(std::vector<LocalSlice>(5, slice(0, 1)), 0), Status::oversize);
}

TEST(LiesIn, HasNoOverflowAtEitherEnd) {
  std::array<std::byte, 8> memory{};
  const auto* const last = reinterpret_cast<const std::byte*>(~std::uintptr_t{0});
  EXPECT_TRUE(lies_in(memory, memory.data() + 8, 0));
  EXPECT_TRUE(lies_in(memory, memory.data(), 8));
  EXPECT_FALSE(lies_in(memory, memory.data(), 9));
  EXPECT_FALSE(lies_in(memory, last, 2));
  EXPECT_FALSE(lies_in(memory, nullptr, 1));
  EXPECT_FALSE(lies_in({}, memory.data(), 1));
}

}  // namespace
}  // namespace selmcast
