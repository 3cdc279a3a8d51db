// Which rounds of others this rank is a receiver of: by the program, or by invitation.
#include <algorithm>
#include <new>

#include "sync/free/free_rounds.h"

namespace selmcast {

namespace {

/// The first of the sender's rounds from `from` on in which this rank is a receiver.
std::optional<std::uint32_t> next_heard(const EpochState& epoch, Rank sender, std::uint32_t from) {
  const auto size = static_cast<std::uint32_t>(epoch.program.cycle.size());
  for (std::uint32_t round = from; round - from < size; ++round) {
    const auto& senders = epoch.plan_of(round).senders;
    if (std::binary_search(senders.begin(), senders.end(), sender)) return round;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> FreeRounds::next_of(const EpochState& epoch, Rank sender,
                                                 std::uint32_t from) const noexcept {
  if (!epoch.program.online) return next_heard(epoch, sender, from);
  const Invitation& last = invitations_[sender];
  if (last.epoch != epoch.program.epoch || last.round < std::max(from, last.not_below)) {
    return std::nullopt;
  }
  return last.round;
}

void FreeRounds::on_invitation(const EpochState& epoch, const FrameHeader& header) noexcept {
  if (!epoch.program.online) return;
  Invitation& last = invitations_[header.sender];
  if (header.epoch < last.epoch || header.round < last.round) return;
  if (header.epoch != last.epoch || header.round != last.round) look_ = true;
  last.epoch = header.epoch;
  last.round = header.round;
}

void FreeRounds::on_evict(const FrameHeader& header) noexcept {
  if (online_ == nullptr) return;
  Invitation& last = invitations_[header.sender];
  last.not_below = std::max(last.not_below, header.round + 1);
  look_ = true;
}

bool FreeRounds::join_group_of(EpochState& epoch, Rank sender) noexcept {
  if (!epoch.program.online) return true;
  const auto& members = epoch.program.members;
  const auto at = std::lower_bound(members.begin(), members.end(), sender);
  const auto group =
      epoch.program.online->first_group + static_cast<std::uint32_t>(at - members.begin());
  // One system call per round heard, before its first credit.
  try {
    auto joined = port_.transport().join({group}, JoinAs::receiver);
    if (!joined) {
      join_error_ = std::move(joined).error();
      return false;
    }
    epoch.memberships.push_back(  // set-up: once per round heard
        {group, JoinAs::receiver, std::move(joined).value()});
  } catch (const std::bad_alloc&) {
    join_error_ = unavailable("no memory to join a group");
    return false;
  }
  ++membership_changes_;
  return true;
}

void FreeRounds::leave_group_of(EpochState& epoch, Rank sender) noexcept {
  if (!epoch.program.online) return;
  const auto& members = epoch.program.members;
  const auto at = std::lower_bound(members.begin(), members.end(), sender);
  const auto group =
      epoch.program.online->first_group + static_cast<std::uint32_t>(at - members.begin());
  auto& held = epoch.memberships;
  const auto in = std::find_if(held.begin(), held.end(), [group](const auto& one) {
    return one.group == group && one.as == JoinAs::receiver;
  });
  if (in == held.end()) return;
  std::swap(*in, held.back());
  held.pop_back();
  ++membership_changes_;
}

}  // namespace selmcast
