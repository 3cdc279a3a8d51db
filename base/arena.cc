#include "base/arena.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/system_files.h"

namespace selmcast {
namespace {

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
constexpr int kPopulate = 23;  // Linux 5.14
#endif

constexpr int kProtection = PROT_READ | PROT_WRITE;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr std::size_t kNodesMost = 1024;

std::size_t rounded(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

/// Preferred, not bound: memory of another node is better than none.
bool prefer_node(void* at, std::size_t bytes, std::uint32_t node) noexcept {
  constexpr std::size_t kWord = 8 * sizeof(unsigned long);
  std::array<unsigned long, kNodesMost / kWord> nodes{};
  if (node >= kNodesMost) return false;
  nodes[node / kWord] = 1UL << node % kWord;
  // The kernel reads one bit less than it is told.
  return ::syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, nodes.data(), kNodesMost + 1, 0U) == 0;
}

/// Has every page there. A kernel that cannot do so gives them when they are first touched.
/// 0 or an errno.
int populate(void* at, std::size_t bytes) noexcept {
  if (::madvise(at, bytes, kPopulate) == 0 || errno == EINVAL) return 0;
  return errno;
}

/// `bytes` that begin at a multiple of `unit`, since huge pages lie nowhere else. MAP_FAILED with
/// errno set where there is no room.
void* map_aligned(std::size_t bytes, std::size_t unit) noexcept {
  void* const all = ::mmap(nullptr, bytes + unit, kProtection, kFlags, -1, 0);
  if (all == MAP_FAILED) return all;
  const auto begin = reinterpret_cast<std::uintptr_t>(all);
  const std::uintptr_t at = rounded(begin, unit);
  if (at > begin) ::munmap(all, at - begin);
  ::munmap(reinterpret_cast<void*>(at + bytes), begin + unit - at);
  return reinterpret_cast<void*>(at);
}

/// Where the administrator turned them off, madvise() succeeds all the same.
bool transparent_pages_are_on() {
  const auto mode = read_system_file("/sys/kernel/mm/transparent_hugepage/enabled");
  return mode && mode->find("[never]") == std::string::npos;
}

struct Mapped {
  void* at = MAP_FAILED;
  bool near = false;
};

/// MAP_FAILED with errno set where the kernel has no such pages.
Mapped try_map(std::size_t bytes, PageKind kind, std::optional<std::uint32_t> node) {
  Mapped out;
  if (kind == PageKind::hugetlb) {
    out.at = ::mmap(nullptr, bytes, kProtection, kFlags | MAP_HUGETLB, -1, 0);
  } else if (kind == PageKind::transparent) {
    if (transparent_pages_are_on()) out.at = map_aligned(bytes, Arena::kHugePage);
  } else {
    out.at = ::mmap(nullptr, bytes, kProtection, kFlags, -1, 0);
  }
  if (out.at == MAP_FAILED) return out;
  out.near = node && prefer_node(out.at, bytes, *node);
  int error = 0;
  if (kind == PageKind::transparent && ::madvise(out.at, bytes, MADV_HUGEPAGE) != 0) error = errno;
  // A limit of huge pages (hugetlb cgroup) shows here, or else as SIGBUS when they are touched.
  if (error == 0) error = populate(out.at, bytes);
  if (error == 0) return out;
  ::munmap(out.at, bytes);
  errno = error;
  return {};
}

}  // namespace

Result<Arena> Arena::map(std::size_t bytes, const ArenaWish& wish) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  bytes = std::max<std::size_t>(bytes, 1);
  // Beyond that, rounding up would overflow.
  const bool possible = bytes <= SIZE_MAX / 4;
  const PageKind best = bytes < kHugePage / 2 ? PageKind::plain : wish.best;
  errno = ENOMEM;
  for (const PageKind kind : {PageKind::hugetlb, PageKind::transparent, PageKind::plain}) {
    if (kind < best || !possible) continue;
    const std::size_t size = rounded(bytes, kind == PageKind::plain ? page : kHugePage);
    const Mapped mapped = try_map(size, kind, wish.numa_node);
    if (mapped.at == MAP_FAILED) continue;
    Arena out;
    out.data_ = static_cast<std::byte*>(mapped.at);
    out.size_ = size;
    out.pages_ = kind;
    if (mapped.near) out.numa_node_ = wish.numa_node;
    return out;
  }
  return unavailable("no " + std::to_string(bytes) +
                     " bytes of memory for buffers: " + std::strerror(errno) +
                     "; use smaller buffers, or raise the limit of memory (ulimit -v, or the "
                     "container's)");
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      pages_(other.pages_),
      numa_node_(other.numa_node_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(pages_, other.pages_);
  std::swap(numa_node_, other.numa_node_);
  return *this;
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

std::optional<std::size_t> Arena::huge_bytes() const {
  if (pages_ == PageKind::hugetlb) return size_;
  std::ifstream maps("/proc/self/smaps");
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  std::optional<std::size_t> out;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    // "BEGIN-END rw-p ..." heads the "Key:   n kB" lines of each mapping.
    std::uintptr_t from = 0, to = 0;
    const char* const last = line.data() + line.size();
    const auto [dash, error] = std::from_chars(line.data(), last, from, 16);
    if (error == std::errc{} && dash != last && *dash == '-') {
      std::from_chars(dash + 1, last, to, 16);
      // The kernel may have merged neighbours of the same kind with it.
      inside = from <= begin && begin + size_ <= to;
      continue;
    }
    if (!inside) continue;
    const auto kilobytes = value_of_key(line, "AnonHugePages");
    if (kilobytes)
      out = std::min<std::size_t>(leading_number(*kilobytes).value_or(0) * 1024, size_);
  }
  return out;
}

const char* name_of(PageKind kind) noexcept {
  constexpr std::array<const char*, 3> kNames{"hugetlb", "transparent", "plain"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace selmcast
