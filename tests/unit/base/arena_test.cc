// Memory for devices: which pages it lies in, that it is there, zeroed, given back, near a node.
#include "base/arena.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/system_files.h"

namespace selmcast {
namespace {

constexpr std::size_t kBig = Arena::kHugePage * 3 + 5;

std::uintptr_t address(const Arena& arena) {
  return reinterpret_cast<std::uintptr_t>(arena.data());
}

std::uint64_t free_huge_pages() {
  const auto text = read_system_file("/proc/meminfo");
  const auto free = text ? value_of_key(*text, "HugePages_Free") : std::nullopt;
  const auto size = text ? value_of_key(*text, "Hugepagesize") : std::nullopt;
  if (!free || !size || leading_number(*size) != Arena::kHugePage / 1024) return 0;
  const auto reserved = value_of_key(*text, "HugePages_Rsvd");
  return *leading_number(*free) - leading_number(reserved.value_or("0")).value_or(0);
}

bool is_mapped(std::uintptr_t at, std::size_t bytes) {
  std::vector<unsigned char> there(bytes / 4096 + 1);
  return ::mincore(reinterpret_cast<void*>(at), bytes, there.data()) == 0;
}

bool all_resident(const Arena& arena) {
  std::vector<unsigned char> there(arena.size() / 4096);
  if (::mincore(arena.data(), arena.size(), there.data()) != 0) return false;
  return std::all_of(there.begin(), there.end(), [](unsigned char page) { return page & 1U; });
}

void expect_usable(const Arena& arena, std::size_t wanted) {
  EXPECT_GE(arena.size(), wanted);
  EXPECT_TRUE(all_resident(arena));
  EXPECT_TRUE(std::all_of(arena.bytes().begin(), arena.bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  std::fill(arena.bytes().begin(), arena.bytes().end(), std::byte{0xA5});
}

TEST(ArenaPages, HugePagesWhereTheAdministratorSetThemAside) {
  if (free_huge_pages() < 8) GTEST_SKIP() << "fewer than 8 huge pages of 2 MiB are free";
  auto arena = Arena::map(kBig);
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->pages(), PageKind::hugetlb);
  EXPECT_EQ(arena->size(), 4 * Arena::kHugePage);
  EXPECT_EQ(address(*arena) % Arena::kHugePage, 0U);
  EXPECT_EQ(arena->huge_bytes(), arena->size());
  expect_usable(*arena, kBig);
}

TEST(ArenaPages, TransparentOnesAreAlignedAndReallyHuge) {
  const auto mode = read_system_file("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!mode || mode->find("[never]") != std::string::npos) GTEST_SKIP() << "turned off here";
  auto arena = Arena::map(kBig, {.best = PageKind::transparent});
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->pages(), PageKind::transparent);
  EXPECT_EQ(arena->size(), 4 * Arena::kHugePage);
  EXPECT_EQ(address(*arena) % Arena::kHugePage, 0U);
  expect_usable(*arena, kBig);
  // The kernel gives them where it has them together; on a fresh machine all.
  ASSERT_TRUE(arena->huge_bytes());
  EXPECT_LE(*arena->huge_bytes(), arena->size());
  EXPECT_EQ(*arena->huge_bytes() % Arena::kHugePage, 0U);
}

TEST(ArenaPages, PlainOnesWhereAskedForAndForWhatIsSmall) {
  auto plain = Arena::map(kBig, {.best = PageKind::plain});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->pages(), PageKind::plain);
  EXPECT_EQ(plain->size(), 3 * Arena::kHugePage + 4096);
  expect_usable(*plain, kBig);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}}) {
    auto small = Arena::map(bytes);
    ASSERT_TRUE(small);
    EXPECT_EQ(small->pages(), PageKind::plain);
    EXPECT_EQ(small->size(), bytes == 4097 ? 8192U : 4096U);
    EXPECT_EQ(address(*small) % 4096, 0U);
  }
}

TEST(ArenaPages, GivenBackOnceAlsoWhenMoved) {
  std::uintptr_t at = 0;
  std::size_t bytes = 0;
  {
    auto made = Arena::map(kBig, {.best = PageKind::transparent});
    ASSERT_TRUE(made);
    at = address(*made);
    bytes = made->size();
    Arena first(std::move(*made));
    Arena second;
    second = std::move(first);
    EXPECT_EQ(address(second), at);
    EXPECT_EQ(first.data(), nullptr);
    EXPECT_TRUE(is_mapped(at, bytes));
  }
  EXPECT_FALSE(is_mapped(at, bytes));
}

TEST(ArenaPages, ManyLeaveNothingMapped) {
  const auto mapped = [] { return leading_number(*read_system_file("/proc/self/statm")); };
  { auto warm = Arena::map(kBig, {.best = PageKind::transparent}); }
  const auto before = mapped();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Arena::map(kBig, {.best = PageKind::transparent}));
    ASSERT_TRUE(Arena::map(kBig));
  }
  EXPECT_LT(*mapped(), *before + Arena::kHugePage / 4096);
}

TEST(ArenaPages, ChildrenInheritTheMemory) {
  auto arena = Arena::map(kBig);
  ASSERT_TRUE(arena);
  arena->data()[kBig - 1] = std::byte{7};
  const pid_t child = fork();
  if (child == 0) _exit(arena->data()[kBig - 1] == std::byte{7} ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(ArenaPages, ARefusalSaysHowMuchAndWhatToDo) {
  for (const std::size_t bytes : {std::size_t{1} << 46U, SIZE_MAX - 5}) {
    const auto refused = Arena::map(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::unavailable);
    EXPECT_NE(refused.error().message.find("no " + std::to_string(bytes) + " bytes"),
              std::string::npos);
    EXPECT_NE(refused.error().message.find("ulimit -v"), std::string::npos);
  }
}

TEST(ArenaPages, TheNodeIsToldToTheKernel) {
  auto arena = Arena::map(kBig, {.numa_node = 0});
  ASSERT_TRUE(arena);
  int mode = -1;
  std::array<unsigned long, 16> nodes{};
  // MPOL_F_ADDR: the policy of the memory at an address.
  if (::syscall(SYS_get_mempolicy, &mode, nodes.data(), 1025UL, arena->data(), 2UL) != 0 ||
      !arena->numa_node()) {
    GTEST_SKIP() << "this kernel has no NUMA policies";
  }
  EXPECT_EQ(arena->numa_node(), 0U);
  EXPECT_EQ(mode, MPOL_PREFERRED);
  EXPECT_EQ(nodes[0], 1UL);
  // A node that is not there: the memory all the same, and no claim about where it lies.
  for (const std::uint32_t absent : {1023U, 5000U}) {
    auto far = Arena::map(kBig, {.numa_node = absent});
    ASSERT_TRUE(far);
    EXPECT_FALSE(far->numa_node());
    expect_usable(*far, kBig);
  }
}

}  // namespace
}  // namespace selmcast
