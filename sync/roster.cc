#include "sync/roster.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "base/checksum.h"
#include "multicast/frame.h"
#include "store/keys.h"

namespace selmcast {

namespace {
std::optional<std::uint64_t> number_in(const Bytes& bytes) {
  WireReader in(bytes);
  const auto value = in.get<std::uint64_t>();
  return in.finished() ? value : std::nullopt;
}

constexpr std::size_t kVerdictMax = 1024;
constexpr Duration kVerdictWait = std::chrono::seconds(2);
constexpr Duration kTurn = std::chrono::milliseconds(20);
constexpr std::uint32_t kFrameLeast = kFrameHeaderBytes + 64;

Result<void> must_equal(Rank other, const char* what, const std::string& theirs,
                        const std::string& ours, Rank self) {
  if (theirs == ours) return {};
  return bad_input(rank_name(other) + " uses " + what + " `" + theirs + "` but " + rank_name(self) +
                   " uses `" + ours + "`; start all ranks with the same " + what);
}
}  // namespace

Bytes serialize(const RosterEntry& entry) {
  return WireWriter()
      .put_text(entry.transport)
      .put_text(entry.policy)
      .put(entry.host)
      .put(entry.max_frame_bytes)
      .put_bytes(entry.address.view())
      .take();
}

Result<RosterEntry> parse_roster_entry(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  const auto transport = in.get_bytes();
  const auto policy = in.get_bytes();
  const auto host = in.get<std::uint64_t>();
  const auto frame = in.get<std::uint32_t>();
  const auto address = in.get_bytes();
  RosterEntry entry;
  if (!address || !in.finished() || address->size() > entry.address.bytes.size()) {
    return bad_input("malformed roster entry");
  }
  entry.transport = text_in(*transport);
  entry.policy = text_in(*policy);
  entry.host = *host;
  entry.max_frame_bytes = *frame;
  entry.address.size = static_cast<std::uint32_t>(address->size());
  std::copy(address->begin(), address->end(), entry.address.bytes.begin());
  return entry;
}

Result<std::vector<RosterEntry>> exchange_roster(Rendezvous& store, const RosterEntry& own,
                                                 Duration timeout) {
  if (auto ok = put_own(store, keys::kRoster, serialize(own)); !ok) {
    return std::move(ok).error();
  }
  std::vector<RosterEntry> roster;
  const auto take = [&](Rank rank, const Bytes& bytes) -> Result<void> {
    auto entry = parse_roster_entry(bytes);
    if (!entry) return bad_input(rank_name(rank) + ": " + entry.error().message);
    if (entry->max_frame_bytes < kFrameLeast) {
      return bad_input(rank_name(rank) + " takes frames of " +
                       std::to_string(entry->max_frame_bytes) + " bytes at most; " +
                       std::to_string(kFrameLeast) + " are the least");
    }
    for (const auto& [what, theirs, ours] :
         {std::tuple{"transport", &entry->transport, &own.transport},
          std::tuple{"policy", &entry->policy, &own.policy}}) {
      if (auto ok = must_equal(rank, what, *theirs, *ours, store.rank()); !ok) return ok;
    }
    roster.push_back(std::move(entry).value());
    return {};
  };
  if (auto all = each_value(store, keys::kRoster, timeout, "to join", take); !all) {
    return std::move(all).error();
  }
  return roster;
}

Result<void> check_one_host(const std::vector<RosterEntry>& roster) {
  for (Rank rank = 0; rank < roster.size(); ++rank) {
    if (roster[rank].host == roster.front().host) continue;
    return bad_input(rank_name(rank) +
                     " is on another host than rank 0, or in another network namespace, where "
                     "loopback does not lead");
  }
  return {};
}

Result<std::uint64_t> agree_on_job(Rendezvous& store, Duration timeout) {
  if (store.rank() == 0) {
    std::random_device entropy;
    const std::uint64_t job = (std::uint64_t{entropy()} << 32U | entropy()) | 1U;
    if (auto ok = store.put(keys::kJob, WireWriter().put(job).take()); !ok)
      return std::move(ok).error();
  }
  auto bytes = wait_for_key(store, keys::kJob, timeout, "rank 0 to name the job", Rank{0});
  if (!bytes) return std::move(bytes).error();
  const auto job = number_in(*bytes);
  if (!job || *job == 0) return bad_input("rank 0 published a malformed job id");
  return *job;
}

Result<void> agree_on_size(Rendezvous& store, std::uint64_t bytes, Duration timeout) {
  if (auto ok = put_own(store, keys::kBytes, WireWriter().put(bytes).take()); !ok) {
    return ok;
  }
  const auto check = [&](Rank rank, const Bytes& theirs) -> Result<void> {
    const auto size = number_in(theirs);
    if (size == bytes) return {};
    return bad_input(rank_name(rank) + " registers " + (size ? std::to_string(*size) : "?") +
                     " bytes of parameters but " + rank_name(store.rank()) + " registers " +
                     std::to_string(bytes) + "; all ranks must use the same model");
  };
  return each_value(store, keys::kBytes, timeout, "to register its parameters", check);
}

Result<void> agree_on_layers(Rendezvous& store, std::span<const std::size_t> sizes,
                             Duration timeout) {
  const std::uint64_t own = content_hash(sizes.size(), std::as_bytes(sizes));
  if (auto ok = put_own(store, keys::kLayers, WireWriter().put(own).take()); !ok) {
    return ok;
  }
  const auto check = [&](Rank rank, const Bytes& theirs) -> Result<void> {
    if (number_in(theirs) == own) return {};
    return bad_input(rank_name(rank) + " registers other layers than " + rank_name(store.rank()) +
                     ", which has " + std::to_string(sizes.size()) +
                     "; all ranks must use the same model");
  };
  return each_value(store, keys::kLayers, timeout, "to register its layers", check);
}

Result<void> agree_on_start(Rendezvous& store, const Result<void>& own, Duration timeout) {
  const auto decide = [&](const std::string& why) {
    return store.create(keys::kStart, std::as_bytes(std::span(why)));
  };
  if (!own) {
    const std::string why = (rank_name(store.rank()) + " could not start: " + own.error().message)
                                .substr(0, kVerdictMax);
    // Its own reason counts more here than what becomes of the store. A connection that ends with
    // bytes unread takes with it what was sent last, so the verdict must have come back.
    const SteadyClock clock;
    const TimePoint deadline = clock.now() + std::min<Duration>(timeout, kVerdictWait);
    bool there = decide(why).has_value();
    while (there && !store.try_get(keys::kStart) && clock.now() < deadline) {
      there = store.update(kTurn).has_value();
    }
    const auto first = store.try_get(keys::kStart);
    if (!first || first->empty() || text_in(*first) == why) return own;
    // Where another rank failed first, this failure may be no more than what follows from it.
    return Error{own.error().kind, own.error().message + "; before that " + text_in(*first)};
  }
  if (auto ok = put_own(store, keys::kSetUp, {}); !ok) return ok;
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + timeout;
  // One more timeout for the store to give back what was decided at the deadline.
  bool decided = false;
  while (true) {
    if (const auto word = store.try_get(keys::kStart)) {
      if (word->empty()) return {};
      return failed(rank_name(store.rank()) + " does not start: " + text_in(*word));
    }
    std::string why;
    bool all = true;
    for (Rank rank = 0; rank < store.world() && why.empty(); ++rank) {
      if (store.try_get(keys::of_rank(keys::kSetUp, rank))) continue;
      all = false;
      if (store.lost(rank)) {
        why = rank_name(rank) + " was lost while the job started";
      } else if (clock.now() >= deadline) {
        why = rank_name(rank) + " did not finish its set-up in time";
      }
    }
    if (!decided && (all || !why.empty())) {
      if (auto ok = decide(why); !ok) return ok;
      decided = true;
    }
    if (clock.now() - deadline >= timeout) {
      return failed(rank_name(store.rank()) + " waiting for all ranks to start: the job's store " +
                    "does not answer; the process that hosts it (rank 0, or the launcher) hangs");
    }
    if (auto changed = store.update(kTurn); !changed) {
      return failed(rank_name(store.rank()) +
                    " waiting for all ranks to start: " + changed.error().message);
    }
  }
}

std::uint64_t host_identity() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  const std::string boot{std::istreambuf_iterator<char>(in), {}};
  struct stat net {};
  const std::uint64_t name_space = ::stat("/proc/self/ns/net", &net) == 0 ? net.st_ino : 0;
  return content_hash(name_space, std::as_bytes(std::span(boot)));
}

}  // namespace selmcast
