#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"

namespace selmcast {
namespace {

constexpr int kProtection = PROT_READ | PROT_WRITE;

/// What this process has allocated and not given back, by address.
struct Registry {
  std::mutex lock;
  std::map<std::uintptr_t, SharedPlace> places;
};

/// Never destroyed: memory of static objects is given back later than other static objects are.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

std::uintptr_t address_of(const std::byte* at) noexcept {
  return reinterpret_cast<std::uintptr_t>(at);
}

/// A memfd of so many bytes whose pages are there; none where the kernel or a sandbox refuses.
UniqueFd make_file(std::size_t bytes) noexcept {
  UniqueFd fd(::memfd_create("selmcast-parameters", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Pages that are missing later would end a process that touches them by SIGBUS; so would a file
  // that shrinks under a peer's mapping.
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return {};
  }
  return fd;
}

}  // namespace

Result<SharedMemory> SharedMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return bad_input("allocate: at least one byte is needed");
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = (bytes + page - 1) / page * page;
  SharedMemory out;
  out.fd_ = make_file(size);
  const int kind = out.fd_ ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const at =
      ::mmap(nullptr, size, kProtection, kind | MAP_POPULATE, out.fd_ ? out.fd_.get() : -1, 0);
  if (at == MAP_FAILED) {
    return unavailable(
        "no memory for " + std::to_string(bytes) + " bytes of parameters: " + std::strerror(errno) +
        "; use fewer ranks on this host or a smaller set, " + "or raise the limit (ulimit -v)");
  }
  out.data_ = static_cast<std::byte*>(at);
  out.size_ = size;
  struct stat info {};
  if (out.fd_ && ::fstat(out.fd_.get(), &info) == 0) {
    const std::lock_guard guard(registry().lock);
    registry().places[address_of(out.data_)] = {out.fd_.get(), info.st_ino, size, 0};
  }
  return out;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::move(other.fd_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ == nullptr) return;
  {
    const std::lock_guard guard(registry().lock);
    registry().places.erase(address_of(data_));
  }
  ::munmap(data_, size_);
}

std::span<float> SharedMemory::floats(std::size_t count) const noexcept {
  SELMCAST_CHECK(count <= size_ / sizeof(float), "so many elements were allocated");
  return {reinterpret_cast<float*>(data_), count};
}

std::optional<SharedPlace> find_shared(std::span<const std::byte> memory) {
  const std::lock_guard guard(registry().lock);
  const auto& places = registry().places;
  auto after = places.upper_bound(address_of(memory.data()));
  if (after == places.begin()) return std::nullopt;
  const auto& [begin, place] = *std::prev(after);
  const std::uint64_t offset = address_of(memory.data()) - begin;
  if (offset > place.bytes || memory.size() > place.bytes - offset) return std::nullopt;
  SharedPlace out = place;
  out.offset = offset;
  return out;
}

}  // namespace selmcast
