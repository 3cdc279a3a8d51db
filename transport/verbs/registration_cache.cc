#include "transport/verbs/registration_cache.h"

#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace selmcast::verbs {
namespace {

// What lets others than its owner get at memory: peers, or what a device still has to write.
constexpr int kByOthers = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;

}  // namespace

std::uint64_t RegistrationCache::Entry::pages_bytes() const noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return (end + page - 1) / page * page - begin / page * page;
}

RegistrationCache::RegistrationCache(RegistrationCalls calls, std::size_t rails, IdleBounds bounds,
                                     std::shared_ptr<MemoryMonitor> monitor)
    : calls_(std::move(calls)), rails_(rails), bounds_(bounds), monitor_(std::move(monitor)) {
  SELMCAST_CHECK(rails_ <= kRailsMax, "more rails than a registration has keys");
  if (bounds_.bytes == 0 || bounds_.entries == 0) monitor_.reset();
  if (monitor_ != nullptr) changes_seen_ = monitor_->changes();
}

RegistrationCache::~RegistrationCache() {
  drop_idle();
}

std::optional<RegistrationCache::Lease> RegistrationCache::take(std::span<const std::byte> memory,
                                                                int access, Refusal& refusal) {
  drop_changed();
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t end = begin + memory.size();
  const bool shared = monitor_ != nullptr && (access & kByOthers) == 0;
  if (shared) {
    if (const auto known = find(begin, end, access)) {
      ++counters_.hits;
      ++(*known)->uses;
      return Lease(this, *known);
    }
  }
  Entries made(1);
  Entry& entry = made.front();
  entry = {.begin = begin, .end = end, .access = access, .uses = 1};
  // Watched first: what happens to the memory between the two is then seen.
  if (shared) {
    entry.changes = monitor_->changes();
    entry.watch = monitor_->watch(memory);
  }
  if (!add_keys(entry, refusal)) {
    if (entry.watch) monitor_->unwatch(*entry.watch);
    return std::nullopt;
  }
  ++counters_.misses;
  // What the new one serves as well is of no use any more.
  for (auto next = idle_.begin(); next != idle_.end() && entry.watch;) {
    const auto old = next++;
    if (entry.serves(old->begin, old->end, old->access)) evict(old);
  }
  used_.splice(used_.begin(), made);
  return Lease(this, used_.begin());
}

std::optional<RegistrationCache::Entries::iterator> RegistrationCache::find(std::uintptr_t begin,
                                                                            std::uintptr_t end,
                                                                            int access) {
  for (auto at = used_.begin(); at != used_.end(); ++at) {
    if (at->serves(begin, end, access) && intact(*at)) return at;
  }
  for (auto next = idle_.begin(); next != idle_.end();) {
    const auto at = next++;
    if (!at->serves(begin, end, access)) continue;
    if (!intact(*at)) {
      ++counters_.invalidated;
      drop(idle_, at);
      continue;
    }
    counters_.idle_bytes -= at->pages_bytes();
    --counters_.idle_entries;
    used_.splice(used_.begin(), idle_, at);
    return at;
  }
  return std::nullopt;
}

bool RegistrationCache::intact(Entry& entry) noexcept {
  const std::uint64_t changes = monitor_->changes();
  if (monitor_->intact(*entry.watch)) {
    entry.changes = changes;
    return true;
  }
  entry.watch.reset();
  return false;
}

bool RegistrationCache::add_keys(Entry& entry, Refusal& refusal) noexcept {
  const std::span<const std::byte> memory(reinterpret_cast<const std::byte*>(entry.begin),
                                          entry.end - entry.begin);
  for (std::size_t rail = 0; rail < rails_; ++rail) {
    ibv_mr*& key = entry.keys[rail];
    key = calls_.add(rail, memory, entry.access);
    if (key == nullptr && (errno == ENOMEM || errno == ENOSPC) && !idle_.empty()) {
      drop_idle();
      key = calls_.add(rail, memory, entry.access);
    }
    if (key != nullptr) continue;
    refusal = {errno, rail};
    while (rail-- > 0) calls_.remove(entry.keys[rail]);
    return false;
  }
  return true;
}

bool RegistrationCache::may_keep(Entry& entry) noexcept {
  if (!entry.watch || entry.pages_bytes() > bounds_.bytes) return false;
  for (const Entry& other : used_) {
    if (&other != &entry && other.serves(entry.begin, entry.end, entry.access)) return false;
  }
  // Looked at again before it is handed out; here a hint will do.
  return monitor_->changes() == entry.changes || intact(entry);
}

void RegistrationCache::release(Entries::iterator entry) noexcept {
  if (--entry->uses > 0) return;
  if (!may_keep(*entry)) {
    drop(used_, entry);
    return;
  }
  const std::uint64_t bytes = entry->pages_bytes();
  while (counters_.idle_entries == bounds_.entries ||
         counters_.idle_bytes + bytes > bounds_.bytes) {
    evict(std::prev(idle_.end()));
  }
  counters_.idle_bytes += bytes;
  ++counters_.idle_entries;
  idle_.splice(idle_.begin(), used_, entry);
}

void RegistrationCache::drop(Entries& from, Entries::iterator entry) noexcept {
  if (&from == &idle_) {
    counters_.idle_bytes -= entry->pages_bytes();
    --counters_.idle_entries;
  }
  for (std::size_t rail = 0; rail < rails_; ++rail) calls_.remove(entry->keys[rail]);
  if (entry->watch) monitor_->unwatch(*entry->watch);
  from.erase(entry);
}

void RegistrationCache::evict(Entries::iterator entry) noexcept {
  ++counters_.evicted;
  drop(idle_, entry);
}

void RegistrationCache::drop_idle() noexcept {
  while (!idle_.empty()) evict(idle_.begin());
}

void RegistrationCache::drop_changed() noexcept {
  if (monitor_ == nullptr || idle_.empty()) return;
  // Taken before the look, so that changes during it are looked at the next time.
  const std::uint64_t changes = monitor_->changes();
  if (changes == changes_seen_) return;
  changes_seen_ = changes;
  for (auto next = idle_.begin(); next != idle_.end();) {
    const auto at = next++;
    if (intact(*at)) continue;
    ++counters_.invalidated;
    drop(idle_, at);
  }
}

}  // namespace selmcast::verbs
