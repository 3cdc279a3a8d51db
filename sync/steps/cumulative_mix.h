// mix=cumulative: every rank sends the sum of all it ever did, and keeps what it last heard of
// each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/units.h"
#include "sync/sender_table.h"

namespace selmcast {

/// Rank i sends C_i, the sum of its own changes since the start; with T_i the latest C_i heard,
///
///   w = start + (sum over i of T_i) / n,
///
/// recomputed from the table after each round, summed by rank in double. So with a partial
/// selection nothing is lost or counted twice however unequal the in-degrees are, a delivery that
/// comes twice does nothing, and once every rank has heard every other since the last steps (k
/// rounds) all hold the same bits: start + sum C_i / n. (Rule D of the study of merge rules,
/// docs/decisions.md. It is the incremental aggregated gradient method of Blatt, Hero and Gauchman,
/// SIAM J. Optimization 18(1), 2007, without a server.)
///
/// The ranks must start from equal parameters. What a rank that died did stays as each survivor
/// last heard it. C_i grows for as long as local gradients do not vanish, and travels as float32:
/// what is mixed is off by at most max|C_i| / 2^24, which does not add up.
///
/// Memory: n + 4 copies of the model beside the application's, and up to n - 1 more that the rounds
/// take where frames are put in place (sync/landing_rows.h). One thread at a time; never during a
/// round. Allocates in its constructor only.
class CumulativeMix {
 public:
  /// `parameters` must outlive the mix.
  CumulativeMix(std::span<float> parameters, std::uint32_t world, Rank self);

  /// Memory of the rounds: what is sent, this rank's row of the table.
  std::span<float> stream() noexcept { return table_->row(self_); }
  /// Where they put what others send.
  const std::shared_ptr<SenderTable>& table() const noexcept { return table_; }
  /// Before a round: takes over what the application did to the parameters.
  void depart() noexcept;
  /// After it.
  void arrive() noexcept;

 private:
  std::span<float> parameters_;
  std::uint32_t world_;
  Rank self_;
  std::vector<float> start_, base_;
  std::shared_ptr<SenderTable> table_;
  std::vector<double> done_;  ///< C of this rank. In double, or its float32 would lose small steps.
};

}  // namespace selmcast
