// mix=stale: the mean of all ranks' parameters enters parameters that have moved on since.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace selmcast {

/// The merge of DASO (Coquelin, Debus, Goetz, von der Lehr, Kahn, Siggel, Streit: "Accelerating
/// neural network training with distributed asynchronous and selective optimization", J. Big Data
/// 9(14), 2022): P ranks send their parameters, take S more steps, and then
///
///   w = (2 S w + sum of what the P ranks sent) / (2 S + P),
///
/// here w += P / (2 S + P) (mean - w), so that ranks that agree stay as they are bit for bit.
/// Without steps in between it keeps the mean over the ranks and contracts their distances to
/// 2 S / (2 S + P).
///
/// One copy of the model: what a round sends, and where its mean arrives. One thread at a time;
/// never during a round. Allocates in its constructor only.
class StaleMerge {
 public:
  /// `parameters` must outlive the merge.
  explicit StaleMerge(std::span<float> parameters);

  /// Memory of the rounds.
  std::span<float> stream() noexcept { return stream_; }
  /// Before a round.
  void depart() noexcept;
  /// After it: `ranks` sent what the mean is made of, this one `steps` steps ago, at least 1.
  void arrive(std::uint32_t ranks, std::uint32_t steps) noexcept;
  /// The plain mean instead (S = 0), for a last round.
  void replace() noexcept;

 private:
  std::span<float> parameters_;
  std::vector<float> stream_;
};

}  // namespace selmcast
