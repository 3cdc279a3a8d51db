#include "sync/rounds/driver_mail.h"

namespace selmcast {

DriverMail::DriverMail(std::uint32_t world)
    : lost_(world), suspects_(world), suspects_told_(world, 0) {}

bool DriverMail::mark_lost(Rank rank) noexcept {
  if (lost_[rank].exchange(1, std::memory_order_relaxed) != 0) return false;
  lost_changes_.fetch_add(1, std::memory_order_release);
  return true;
}

std::optional<std::pair<Rank, const char*>> DriverMail::next_suspect() noexcept {
  for (Rank rank = 0; rank < suspects_.size(); ++rank) {
    if (suspects_told_[rank] != 0) continue;
    const char* why = suspects_[rank].load(std::memory_order_acquire);
    if (why == nullptr) continue;
    suspects_told_[rank] = 1;
    return std::pair{rank, why};
  }
  return std::nullopt;
}

bool DriverMail::losses_changed() noexcept {
  const std::uint32_t changes = lost_changes_.load(std::memory_order_acquire);
  return std::exchange(lost_seen_, changes) != changes;
}

bool DriverMail::fail(Error error) {
  if (failure_claimed_.exchange(true, std::memory_order_relaxed)) return false;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  return true;
}

}  // namespace selmcast
