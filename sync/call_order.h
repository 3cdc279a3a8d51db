// The order of an application's calls to its Worker: what may come when, and what a call that came
// at the wrong time is told.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace selmcast {

/// Every question is answered at once and changes nothing when the answer is an error (bad_input).
/// hand_over() may be called by several threads at a time; everything else by the one that uses the
/// Worker, while none hands over layers.
class CallOrder {
 public:
  explicit CallOrder(Rank self) : self_(self) {}

  /// Before parameters or layers are added: that is done once.
  Result<void> add(const char* call) const;
  /// From here on a failure to start is final. What others know of this rank cannot be taken back.
  void starting() noexcept { stage_ = Stage::starting; }
  /// The job runs; with layers (0: none) they are handed over one by one.
  void started(std::size_t layers);
  /// The application has said that it will do no further step.
  void finished() noexcept { stage_ = Stage::finished; }
  void left() noexcept { stage_ = Stage::left; }

  bool running() const noexcept { return stage_ == Stage::running || stage_ == Stage::finished; }
  bool has_left() const noexcept { return stage_ == Stage::left; }

  /// For every call that needs the running job.
  Result<void> in_job(const char* call) const;
  /// Whether a round or a step may begin. `under_way`: rounds that step() has begun run on, which
  /// only another step() or finish() may end.
  Result<void> begin(const char* call, bool under_way) const;
  void pushed() noexcept { pushed_ = true; }
  /// Whether there is a round to wait for, and all of it is handed over.
  Result<void> wait() const;
  void waited() noexcept;
  /// Whether the layer exists. It need not be under way.
  Result<void> known(const char* call, std::size_t layer) const;
  /// Takes note that the layer is handed over, unless it was already in this round.
  Result<void> hand_over(std::size_t layer);

 private:
  enum class Stage { joined, starting, running, finished, left };

  Error misuse(const char* call, const std::string& why) const;

  Rank self_;
  Stage stage_ = Stage::joined;
  bool pushed_ = false;
  // Relaxed: of two threads with one layer an exchange tells which came first, and the application
  // orders its push_layer() calls before the wait() that reads the count and clears both.
  std::vector<std::atomic<std::uint8_t>> handed_over_;
  std::atomic<std::size_t> handed_over_count_{0};
};

}  // namespace selmcast
