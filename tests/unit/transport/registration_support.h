// A device that registers memory in name only, and memory that it can tell apart.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/verbs/registration_cache.h"

namespace selmcast::verbs {

inline constexpr std::size_t kPageBytes = 4096;

/// A registration remembers what the first word of its memory was, as a device remembers the pages.
class FakeDevice {
 public:
  RegistrationCalls calls() {
    return {.add = [this](std::size_t rail, std::span<const std::byte> memory,
                          int access) { return add(rail, memory, access); },
            .remove = [this](ibv_mr* region) { remove(region); }};
  }
  static std::uint64_t word(const std::byte* at) {
    std::uint64_t out = 0;
    std::memcpy(&out, at, sizeof out);
    return out;
  }
  /// What the word at `at` was when `region` was made.
  std::uint64_t remembered(const ibv_mr* region, const std::byte* at) const {
    return regions_.at(region).words.at(reinterpret_cast<std::uintptr_t>(at) / kPageBytes -
                                        reinterpret_cast<std::uintptr_t>(region->addr) /
                                            kPageBytes);
  }
  int access(const ibv_mr* region) const { return regions_.at(region).access; }

  std::uint32_t added = 0;
  std::uint32_t live() const { return static_cast<std::uint32_t>(regions_.size()); }
  std::uint32_t capacity = ~0U;    ///< Regions that fit.
  int refuses_with = ENOMEM;       ///< What the next one meets.
  std::size_t broken_rail = ~0UL;  ///< Refuses always.

 private:
  struct Made {
    std::unique_ptr<ibv_mr> region;
    int access = 0;
    std::vector<std::uint64_t> words;
  };
  ibv_mr* add(std::size_t rail, std::span<const std::byte> memory, int access) {
    if (live() >= capacity || rail == broken_rail) {
      errno = refuses_with;
      return nullptr;
    }
    ++added;
    Made made{std::make_unique<ibv_mr>(), access, {}};
    ibv_mr* const region = made.region.get();
    region->addr = const_cast<std::byte*>(memory.data());
    region->length = memory.size();
    for (std::size_t at = 0; at < memory.size(); at += kPageBytes) {
      const bool whole = memory.size() - at >= sizeof(std::uint64_t);
      made.words.push_back(whole ? word(memory.data() + at) : 0);
    }
    regions_.emplace(region, std::move(made));
    return region;
  }
  void remove(ibv_mr* region) { ASSERT_EQ(regions_.erase(region), 1U); }

  std::map<const ibv_mr*, Made> regions_;
};

/// Pages of their own, unmapped at the end.
class Pages {
 public:
  explicit Pages(std::size_t pages, int flags = MAP_PRIVATE | MAP_ANONYMOUS)
      : bytes_(pages * kPageBytes),
        at_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0))) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(at_, bytes_); }
  std::byte* data() const { return at_; }
  std::span<const std::byte> span(std::size_t from = 0, std::size_t pages = ~0UL) const {
    const std::size_t rest = bytes_ - from * kPageBytes;
    return {at_ + from * kPageBytes, pages > rest / kPageBytes ? rest : pages * kPageBytes};
  }
  /// Makes fresh pages of some: as munmap() and mmap() of the same addresses.
  void renew(std::size_t from, std::size_t pages, std::uint64_t word) {
    std::byte* const at = at_ + from * kPageBytes;
    ASSERT_EQ(::munmap(at, pages * kPageBytes), 0);
    ASSERT_EQ(::mmap(at, pages * kPageBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              at);
    std::memcpy(at, &word, sizeof word);
  }

 private:
  std::size_t bytes_;
  std::byte* at_;
};

}  // namespace selmcast::verbs
