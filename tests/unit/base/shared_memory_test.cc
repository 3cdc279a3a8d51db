#include "base/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace selmcast {
namespace {

TEST(SharedMemory, IsZeroedAndAtLeastAsLargeAsAskedFor) {
  const auto memory = SharedMemory::allocate(5000);
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->shared());
  ASSERT_GE(memory->size(), 5000U);
  EXPECT_TRUE(std::all_of(memory->bytes().begin(), memory->bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(memory->floats(1250).data(), reinterpret_cast<float*>(memory->data()));
  EXPECT_EQ(memory->floats(1250).size(), 1250U);
}

TEST(SharedMemory, NothingIsRefused) {
  const auto memory = SharedMemory::allocate(0);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().kind, ErrorKind::bad_input);
}

TEST(SharedMemory, ASpanIsFoundWhereAllOfItLies) {
  auto first = SharedMemory::allocate(8192);
  auto second = SharedMemory::allocate(4096);
  ASSERT_TRUE(first && second);
  const auto place = find_shared(first->bytes().subspan(100, 50));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->offset, 100U);
  EXPECT_EQ(place->bytes, first->size());
  const auto other = find_shared(second->bytes());
  ASSERT_TRUE(other);
  EXPECT_EQ(other->offset, 0U);
  EXPECT_NE(other->inode, place->inode);
  const std::vector<std::byte> own(100);
  EXPECT_FALSE(find_shared(own));
  EXPECT_FALSE(find_shared({first->data() + 1, first->size()})) << "ends behind it";
  EXPECT_FALSE(find_shared({first->data() - 1, 10})) << "begins before it";
}

TEST(SharedMemory, ThroughItsDescriptorTheSameBytesAreSeen) {
  auto memory = SharedMemory::allocate(4096);
  ASSERT_TRUE(memory);
  const auto place = find_shared(memory->bytes());
  ASSERT_TRUE(place);
  void* const again = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, place->fd, 0);
  ASSERT_NE(again, MAP_FAILED);
  memory->data()[77] = std::byte{9};
  EXPECT_EQ(static_cast<const std::byte*>(again)[77], std::byte{9});
  ::munmap(again, 4096);
}

TEST(SharedMemory, IsForgottenWhenItIsGivenBackAndNotWhenItMoves) {
  auto made = SharedMemory::allocate(4096);
  ASSERT_TRUE(made);
  SharedMemory memory = std::move(*made);
  std::byte* const at = memory.data();
  EXPECT_TRUE(find_shared({at, 10}));
  {
    const SharedMemory last = std::move(memory);
    EXPECT_EQ(last.data(), at);
    EXPECT_TRUE(find_shared({at, 10}));
  }
  EXPECT_FALSE(find_shared({at, 10}));
}

}  // namespace
}  // namespace selmcast
