// Memory for buffers that devices read and write: pages of its own, as large as the machine gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace selmcast {

/// Larger pages cost devices and processor fewer translations. In order of preference.
enum class PageKind : std::uint8_t {
  hugetlb,      ///< Set aside by the administrator (vm.nr_hugepages).
  transparent,  ///< Asked of the kernel by madvise(); it gives what it has together.
  plain,
};

struct ArenaWish {
  /// Where the memory should lie, e.g. near the device that uses it; nothing: no matter. One that
  /// is not there: no matter either.
  std::optional<std::uint32_t> numa_node = {};
  PageKind best = PageKind::hugetlb;  ///< Larger ones are not tried.
};

/// Zeroed pages that nothing else lies in, all of them there from the start. Move-only; given back
/// by the destructor. The memory may be inherited by children: no MADV_DONTFORK is set, since
/// rdma-core sees to registered pages where the kernel does not.
///
/// Below half a huge page nothing but plain pages is tried: a huge one would mostly lie idle.
class Arena {
 public:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20U;

  /// At least `bytes`, rounded up to whole pages. Set-up cost. Error unavailable with the remedy
  /// where the machine has no such memory.
  static Result<Arena> map(std::size_t bytes, const ArenaWish& wish = {});

  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::byte* data() const noexcept { return data_; }
  /// Usable bytes, which may be more than were asked for.
  std::size_t size() const noexcept { return size_; }
  std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  PageKind pages() const noexcept { return pages_; }
  /// The node that the kernel was told to prefer; nothing where none was asked for, or the kernel
  /// refused, which costs speed only.
  std::optional<std::uint32_t> numa_node() const noexcept { return numa_node_; }

  /// Bytes of it that lie in huge pages now, of either kind; nothing where the kernel does not
  /// say. Reads /proc/self/smaps, which walks the page tables of the whole process.
  std::optional<std::size_t> huge_bytes() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  PageKind pages_ = PageKind::plain;
  std::optional<std::uint32_t> numa_node_{};
};

const char* name_of(PageKind kind) noexcept;

}  // namespace selmcast
