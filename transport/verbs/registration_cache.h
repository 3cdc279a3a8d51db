// Memory regions of a transport: shared by those who register the same memory, and kept for a while
// after the last of them, since registering pins every page and takes longer than sending them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "transport/verbs/memory_monitor.h"
#include "transport/verbs/verbs_address.h"

namespace selmcast::verbs {

/// How memory is registered, so that the cache is tested without devices.
struct RegistrationCalls {
  /// ibv_reg_mr() on a rail: null with errno set where refused.
  std::function<ibv_mr*(std::size_t rail, std::span<const std::byte> memory, int access)> add;
  std::function<void(ibv_mr*)> remove;  ///< ibv_dereg_mr().
};

/// What may be kept that nobody uses. Either of them 0 keeps nothing.
struct IdleBounds {
  std::uint64_t bytes = 0;  ///< Of whole pages, which is what is pinned.
  std::uint32_t entries = 0;
};

/// One thread, the transport's. Ranges that the monitor cannot watch, memory that peers may read
/// or write, and memory that the device writes are neither shared nor kept: a key given to peers,
/// and the device's leave to write, end with the Region they were given for. Takes time linear in
/// the number of registrations.
class RegistrationCache {
  struct Entry;

 public:
  using Keys = std::array<ibv_mr*, kRailsMax>;  ///< By rail.

  /// A reference to a registration. Must not outlive the cache.
  class Lease {
   public:
    Lease() = default;
    Lease(RegistrationCache* cache, std::list<Entry>::iterator entry) noexcept
        : cache_(cache), entry_(entry) {}
    Lease(Lease&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), entry_(other.entry_) {}
    Lease& operator=(Lease&& other) noexcept {
      if (this != &other) {
        reset();
        cache_ = std::exchange(other.cache_, nullptr);
        entry_ = other.entry_;
      }
      return *this;
    }
    ~Lease() { reset(); }
    void reset() noexcept {
      if (cache_ != nullptr) std::exchange(cache_, nullptr)->release(entry_);
    }
    const Keys& keys() const noexcept;

   private:
    RegistrationCache* cache_ = nullptr;
    std::list<Entry>::iterator entry_;
  };

  /// Why a rail refused: an errno.
  struct Refusal {
    int error = 0;
    std::size_t rail = 0;
  };
  struct Counters {
    std::uint64_t hits = 0;         ///< take() that registered nothing.
    std::uint64_t misses = 0;       ///< take() that registered.
    std::uint64_t evicted = 0;      ///< Idle registrations dropped for a bound or for want of room.
    std::uint64_t invalidated = 0;  ///< Dropped because their memory changed.
    std::uint64_t idle_bytes = 0;   ///< Now.
    std::uint32_t idle_entries = 0;  ///< Now.
  };

  /// `monitor` null: every take() registers and every last release deregisters.
  RegistrationCache(RegistrationCalls calls, std::size_t rails, IdleBounds bounds,
                    std::shared_ptr<MemoryMonitor> monitor);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  /// Registers `memory` (mapped for as long as the lease) with the IBV_ACCESS_* flags `access` on
  /// all rails, or finds a registration that contains it and allows as much. Where a device is out
  /// of memory or of regions, idle ones are dropped and it is tried once more. Nothing on refusal.
  std::optional<Lease> take(std::span<const std::byte> memory, int access, Refusal& refusal);
  /// Drops idle registrations whose memory changed; for moments when nobody waits. Costs one load
  /// when none did.
  void drop_changed() noexcept;
  /// Drops all idle registrations.
  void drop_idle() noexcept;

  const Counters& counters() const noexcept { return counters_; }

 private:
  struct Entry {
    std::uintptr_t begin = 0, end = 0;
    int access = 0;
    std::uint32_t uses = 0;
    std::optional<MemoryMonitor::Watch> watch{};  ///< None: neither shared nor kept.
    std::uint64_t changes = 0;                    ///< The monitor's when last known to be intact.
    Keys keys{};
    std::uint64_t pages_bytes() const noexcept;
    bool serves(std::uintptr_t from, std::uintptr_t to, int wanted) const noexcept {
      return watch && begin <= from && to <= end && (wanted & ~access) == 0;
    }
  };
  using Entries = std::list<Entry>;

  void release(Entries::iterator entry) noexcept;
  bool intact(Entry& entry) noexcept;
  std::optional<Entries::iterator> find(std::uintptr_t begin, std::uintptr_t end, int access);
  bool may_keep(Entry& entry) noexcept;
  bool add_keys(Entry& entry, Refusal& refusal) noexcept;
  void drop(Entries& from, Entries::iterator entry) noexcept;
  void evict(Entries::iterator entry) noexcept;

  RegistrationCalls calls_;
  std::size_t rails_;
  IdleBounds bounds_;
  std::shared_ptr<MemoryMonitor> monitor_;
  std::uint64_t changes_seen_ = 0;
  Entries used_, idle_;  ///< idle_: the latest used first.
  Counters counters_;
};

inline const RegistrationCache::Keys& RegistrationCache::Lease::keys() const noexcept {
  return entry_->keys;
}

}  // namespace selmcast::verbs
