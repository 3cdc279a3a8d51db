// Worker: one rank of a job. Join, register parameters, synchronise round by round, leave.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace selmcast {

/// Available rates of every rank, as in a links.json file.
struct LinkTable {
  std::vector<Kbps> tx_kbps;
  std::vector<Kbps> rx_kbps;
};

struct WorkerConfig {
  /// `tcp://HOST:PORT` or `file:PATH`: where the ranks find each other, the same for all. HOST is
  /// an address of rank 0's host, or of the one where `selmcast store` runs.
  std::string rendezvous;
  /// Rank 0's Worker serves the rendezvous itself, until the other ranks have left. False: another
  /// process does (`selmcast store`, a launcher). The other ranks ignore it.
  bool host_store = true;
  Rank rank = 0;
  std::uint32_t world = 1;
  /// shm, uring, verbs, or auto: what another rank names; else shm, if all ranks are on one host,
  /// can map each other's memory and name neither interface nor mtu; else verbs, if every rank has
  /// a usable RDMA device; else uring. notices() say which and why.
  std::string transport = "auto";
  /// Network interface or RDMA device; empty takes the one by which the kernel reaches the store's
  /// host (lo only if the store is on this one).
  std::string interface;
  std::uint32_t mtu = 0;           ///< Upper bound on the packet size; 0 takes the interface's.
  std::string policy;              ///< Policy string; empty = the default, the name `auto`.
  std::optional<LinkTable> links;  ///< Absent: the links are probed while joining.
  Duration timeout{std::chrono::seconds(10)};  ///< Longest wait for a peer that makes no progress.
  double loss = 0.0;           ///< Share of received data frames to drop (a test aid).
  bool deterministic = false;  ///< Sums in fixed point: equal inputs give equal bits.
  std::uint64_t seed = 1;
};

/// What happened in one round, as this rank saw it.
struct RoundReport {
  std::uint32_t round = 0;
  std::uint32_t epoch = 0;  ///< The view it ran under; equal on all ranks.
  double ms = 0.0;
  Kbps rate_kbps = 0;           ///< Planned payload rate of each transfer.
  std::vector<Rank> receivers;  ///< Whom this rank's update reached (acknowledged in full).
  std::uint64_t tx_first_bytes = 0;
  std::uint64_t tx_repair_bytes = 0;
  std::uint64_t tx_patch_bytes = 0;
  std::uint64_t tx_bytes = 0;  ///< All, control frames included.
  std::uint64_t rx_payload_bytes = 0;
  std::uint64_t foreign_frames = 0;  ///< From ranks whose receiver this rank was not.
  /// The same while views change; not counted above. New groups are joined before old ones are
  /// left.
  std::uint64_t transition_frames = 0;
  std::uint64_t repaired_frames = 0;     ///< That this rank sent again.
  std::uint64_t read_frames = 0;         ///< Missing ones that it read from their senders' memory.
  std::uint32_t membership_changes = 0;  ///< Groups joined and left since the last report.
  bool verified = false;                 ///< Every sender's digest matched what was merged.
  std::vector<Rank> given_up;            ///< Peers given up in this round (dead or silent).
  /// All that this rank was to hear in the round has arrived; false: somebody whom it hears was
  /// given up, and what it holds is the mean over the others where that one's part is missing.
  bool complete = true;
};

/// What the epoch in force says about the whole job.
struct PlanReport {
  std::uint32_t epoch = 0;
  std::uint32_t members = 0;
  std::uint32_t k = 0;
  std::uint32_t pair_age_worst = 0;
  double pair_age_mean = 0.0;
  std::uint32_t senders_below_p = 0;
  std::uint32_t group_entries_max = 0;
  double k_rate_share = 1.0;           ///< Planned rate over the rate that would hold without k.
  std::uint32_t joins = 0;             ///< Groups that all members together joined for this epoch.
  std::uint32_t member_joins_max = 0;  ///< Most of one member.
  /// Most that one member joins from one round to the next (pace=ssp:s,eta; otherwise 0).
  std::uint32_t joins_per_round_max = 0;
};

/// One thread uses a Worker (layers: see push_layer()); a progress thread of its own moves the
/// bytes. A call that comes at the wrong time is an error (bad_input) at once and changes nothing;
/// after the job failed, every call that needs it returns that failure; and after leave() nothing
/// but the calls that only tell something is left.
class Worker {
 public:
  /// Blocks until all ranks joined, at most `timeout`, in whatever order they start. Errors name
  /// the rank, address or field.
  static Result<std::unique_ptr<Worker>> join(const WorkerConfig& config);
  virtual ~Worker() = default;

  /// Registers the parameters: once, before the first round, the same size on every rank. The
  /// memory stays the caller's; between push() and wait() only this library may touch it, and
  /// between two step() calls only the caller. Sent from in place (over shared memory: see
  /// memory.h), but for mix=compensate, which keeps three copies, mix=lgp (six) and mix=stale
  /// (one).
  virtual Result<void> add_parameters(std::span<float> parameters) = 0;

  /// Instead, for gradients that come layer by layer (mix=sgd pace=bsp, order=fifo or priority):
  /// `sizes` are the elements of the layers, which lie one after the other; the same on every rank.
  virtual Result<void> add_layers(std::span<float> gradients,
                                  std::span<const std::size_t> sizes) = 0;
  /// With layers instead of push(): hands one over, each once in a round, as the backward pass
  /// makes them. The first one begins the round; not before wait() returned for the last round.
  /// Error (bad_input): no such layer, or handed over already in this round.
  /// Never blocks. Layers go out as handed over, or (order=priority) the lowest one first. Several
  /// threads (an autograd engine's) may hand over different layers at the same time, without a
  /// lock; so may wait_layer() be called. wait() comes after all push_layer() of the round
  /// returned.
  virtual Result<void> push_layer(std::size_t layer) = 0;
  /// Waits for the layer, which then holds the mean: before the forward pass needs it. At once for
  /// one that is not under way. wait() waits for all of them, and all must have been handed over.
  virtual Result<void> wait_layer(std::size_t layer) = 0;

  /// Starts a round with the parameters as they are now. Never blocks. (Under pace=ssp and async
  /// push() and wait() together are a step(), and the report is that of the round that ended last.)
  /// Error (bad_input): a round is under way, be it one that step() began.
  virtual Result<void> push() = 0;
  /// Waits for the round to close; the parameters then hold the mixed result. Error: this rank must
  /// leave the job (store lost, evicted, deadline), with rank and stage named; or (bad_input) there
  /// was no push().
  virtual Result<RoundReport> wait() = 0;
  Result<RoundReport> synchronize() {
    if (auto pushed = push(); !pushed) return std::move(pushed).error();
    return wait();
  }

  /// For training, instead of the three above: the application has changed the parameters by one
  /// step of its own, and the policy's pace says what follows. bsp: a round, as synchronize();
  /// periodic:H: a round every H-th time (mix=stale: merged S calls later); overlap: it starts or
  /// ends a round that runs while the application goes on, and waits only when K steps would be
  /// exceeded; stages: a round of what matters most, and it starts one of the rest, which the next
  /// step() ends; ssp:s and async: it hands the step over, merges what has arrived, and waits for
  /// slower ranks only as s demands. Returns the reports of the rounds that closed in this call;
  /// the parameters then hold the mixed result (ssp, async: in any case; a round may have been
  /// begun by an earlier call).
  virtual Result<std::vector<RoundReport>> step() = 0;
  /// After the last step(), by every rank: the rounds that merge what is left (see mix=compensate:
  /// all ranks that lived to the end then hold equal parameters, or differ by what a rank that died
  /// in the very last round had sent; mix=stale: the mean of all). Under overlap it waits for the
  /// ranks that still step; under bsp and periodic all ranks must have stepped equally often. Under
  /// ssp and async it sends the last steps, waits until all live ranks have come here, and merges.
  /// Under overlap, ssp and async no round may follow.
  virtual Result<std::vector<RoundReport>> finish() = 0;

  virtual Rank rank() const noexcept = 0;
  virtual std::uint32_t world() const noexcept = 0;
  /// Ranks that the job lost so far, ascending.
  virtual std::vector<Rank> failed_ranks() const = 0;
  virtual PlanReport plan() const = 0;
  virtual std::vector<std::string> notices() const = 0;
  /// The backend in use and the policy with every axis written out.
  virtual std::string transport_name() const = 0;
  virtual std::string policy_text() const = 0;

  /// Blocks until every live rank came here: an exact mean of the given values over the live ranks,
  /// through the store. For small values (metrics), not parameters.
  virtual Result<std::vector<double>> mean_of(std::span<const double> values, std::string tag) = 0;
  /// Publishes bytes under `result/<rank>/<tag>` for whoever hosts the store.
  virtual Result<void> publish(std::string tag, std::span<const std::byte> value) = 0;
  /// Leaves the job in good order; a round under way is abandoned, and the parameters may then hold
  /// its result or not. The destructor without it counts as a loss of this rank. Where this rank
  /// hosts the store, returns when all others have left or are lost, after at most one `timeout`
  /// more (the destructor alone: 2 s); those who are still there then lose the store. Called again
  /// it does nothing and returns what the first call did.
  virtual Result<void> leave() = 0;
};

}  // namespace selmcast
