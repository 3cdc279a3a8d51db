// Ports that the network knows by another name than at set-up.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "transport/group_address.h"
#include "transport/verbs/verbs_backend.h"

namespace selmcast::verbs {
namespace {

// So long an address that went may come back (a lease renewed, an interface set up anew) before a
// rank without another port says that it cannot send. As long as a job waits for silent peers
// unless told otherwise.
constexpr Duration kAddressAway = std::chrono::seconds(10);
// After a device that did not answer; longer while that lasts.
constexpr Duration kLookAgain = std::chrono::milliseconds(100);
constexpr Duration kLookAgainMost = std::chrono::seconds(5);
// The kernel tells of a membership's end within moments of the event that ended it.
constexpr Duration kGroupLooks = std::chrono::seconds(2);
constexpr Duration kGroupLookEvery = std::chrono::milliseconds(5);
// While a group awaits its renewal, or could not be followed.
constexpr Duration kGroupLookLater = std::chrono::milliseconds(100);

}  // namespace

void VerbsTransport::look_again(std::uint32_t index, TimePoint now) noexcept {
  Rail& rail = *rails_[index];
  IdentityLook& look = identity_looks_[index];
  if (now < look.next) return;
  // Cleared first: what changes during the look is looked at the next time.
  rail.renamed.store(false, std::memory_order_release);
  const bool before = rail.identity().reachable();
  if (rail.look_at_identity()) {
    look.pause = {};
  } else {
    rail.renamed.store(true, std::memory_order_release);
    look.pause = std::clamp(2 * look.pause, kLookAgain, kLookAgainMost);
    look.next = now + look.pause;
  }
  if (before && !rail.identity().reachable()) renamed_at_ = now;
}

void VerbsTransport::look_at_groups(std::uint32_t rail, TimePoint now) noexcept {
  Rail& on = *rails_[rail];
  GroupLook& look = group_looks_[rail];
  if (on.regroup.exchange(false, std::memory_order_acq_rel)) look = {now, now + kGroupLooks};
  if (now < look.next) return;
  on.groups().progress(now);
  if (failure_.during == Failure::During::regroup && failure_.rail == rail) failure_ = {};
  bool behind = false;
  std::uint32_t after = 0;
  while (const auto moved = on.groups().next_moved(after)) {
    after = moved->ipv4;
    const int error = follow(rail, *moved);
    if (error == 0) {
      on.groups().followed(moved->ipv4);
      continue;
    }
    behind = true;
    failure_ = {Failure::During::regroup, error, rail, on.address().frames_qpn};
  }
  const bool over = now >= look.until;
  look.next = now + (over || behind ? kGroupLookLater : kGroupLookEvery);
  if (over && !behind && !on.groups().ended()) look = {};
}

int VerbsTransport::follow(std::uint32_t rail, const GroupJoin::Moved& moved) noexcept {
  int error = rails_[rail]->move_group(moved);
  members_.for_each([&](MembershipId, GroupMember& member) {
    if (error != 0 || *group_ipv4(rail_job(rail), member.index) != moved.ipv4) return;
    auto handle = rails_[rail]->reach(moved.route);
    if (!handle) {
      error = errno != 0 ? errno : EIO;
      return;
    }
    Target old;
    old.handles[rail] = std::exchange(member.target.handles[rail], std::move(handle).value());
    retire(std::move(old));
  });
  return error;
}

bool VerbsTransport::may_work(const Rail& rail) const noexcept {
  return rail.identity().reachable() || SteadyClock().now() < renamed_at_ + kAddressAway;
}

}  // namespace selmcast::verbs
