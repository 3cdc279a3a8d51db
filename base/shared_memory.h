// Memory that other processes of this host can map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace selmcast {

/// Zeroed pages that nothing else lies in, all of them there from the start: parameters that lie in
/// them are read by the ranks of this host where they are (transport shm), not copied to them.
/// Where the kernel makes no such memory it is this process's alone, and shared() says so.
///
/// Not copied by fork(): what a child writes its parent sees. What others have mapped stays there
/// after this process ended. Move-only; given back by the destructor.
class SharedMemory {
 public:
  /// At least `bytes`, rounded up to whole pages; bad_input for none. Set-up cost. Error
  /// unavailable with the remedy where the machine has no memory.
  static Result<SharedMemory> allocate(std::size_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const noexcept { return data_; }
  /// Usable bytes, which may be more than were asked for.
  std::size_t size() const noexcept { return size_; }
  std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  /// The first `count` elements; all of them must fit.
  std::span<float> floats(std::size_t count) const noexcept;
  bool shared() const noexcept { return static_cast<bool>(fd_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  UniqueFd fd_;  ///< A memfd that can neither shrink nor grow; none where it is not shared.
};

/// Where memory lies in a SharedMemory of this process.
struct SharedPlace {
  int fd = -1;              ///< Of the whole, open as long as that lives.
  std::uint64_t inode = 0;  ///< Tells it from what gets the same descriptor later.
  std::uint64_t bytes = 0;  ///< Of the whole.
  std::uint64_t offset = 0;
};

/// Nothing when it lies in none. Thread-safe; takes a lock.
std::optional<SharedPlace> find_shared(std::span<const std::byte> memory);

}  // namespace selmcast
