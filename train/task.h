// What is to be learned and by whom: the same value on every rank and in the process that judges.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "base/units.h"
#include "train/dataset.h"
#include "train/model.h"

namespace selmcast {

struct TrainOptions {
  std::uint32_t workers = 8;
  std::uint32_t epochs = 20;
  std::uint32_t batch = 8;  ///< Samples of one step of one worker.
  double learning_rate = 0.3;
  double decay = 0.2;  ///< Share of the rounds, the last ones, over which the rate falls to 0.
  ModelKind model = ModelKind::mlp;
  std::uint32_t hidden = kDefaultHidden;  ///< Of mlp.
  std::uint32_t curve_steps = 0;          ///< See TrainTask::is_point(); 0 = whole epochs.
  ShardKind split = ShardKind::skew;
  std::uint64_t seed = 1;
};

/// Data, division and schedule that follow from the options. Immutable; threads may share it.
class TrainTask {
 public:
  /// Errors (bad_input) name the option, e.g. a batch larger than a worker's shard.
  static Result<TrainTask> make(const TrainOptions& options, Dataset data);

  const TrainOptions& options() const noexcept { return options_; }
  const Dataset& data() const noexcept { return data_; }
  const ModelShape& shape() const noexcept { return shape_; }
  std::span<const std::uint32_t> shard(Rank rank) const { return shards_.at(rank); }
  std::span<const std::uint32_t> train_samples() const noexcept { return split_.train; }
  std::span<const std::uint32_t> test_samples() const noexcept { return split_.test; }

  /// Rounds every rank does in an epoch: the whole batches of the smallest shard. A rank draws them
  /// without repetition from its freshly shuffled shard and leaves the remainder out.
  std::uint32_t rounds_per_epoch() const noexcept { return rounds_per_epoch_; }
  /// Learning rate of a round, counted from 0 over the whole run: the options' rate, and in the
  /// last `decay` of all rounds a straight line from it that would reach 0 one round after the end.
  /// Workers that hear only some of their peers settle there, near their common mean.
  float learning_rate(std::uint32_t round) const noexcept;
  /// Steps of each worker in the whole run.
  std::uint32_t steps() const noexcept { return options_.epochs * rounds_per_epoch_; }
  /// Whether the curves have a point after so many steps: before the first and after the last, and
  /// every curve_steps; without those after every epoch, or about a hundred of them.
  bool is_point(std::uint32_t steps) const noexcept;
  /// Parameters that every rank starts from.
  std::vector<float> initial_parameters() const;

 private:
  TrainTask() = default;
  TrainOptions options_;
  Dataset data_;
  ModelShape shape_;
  TrainTestSplit split_;
  std::vector<std::vector<std::uint32_t>> shards_;
  std::uint32_t rounds_per_epoch_ = 0;
};

/// Scores parameters on the test set. One thread per object; the task must outlive it.
class Judge {
 public:
  explicit Judge(const TrainTask& task);
  Score score(std::span<const float> parameters);

 private:
  std::vector<float> inputs_;
  std::vector<std::uint8_t> labels_;
  Network<float> network_;
};

/// Draws batches from one shard and computes gradients on them: the work of one rank that is not
/// communication. One thread per object; the task must outlive it.
class Learner {
 public:
  /// A worker of the task.
  Learner(const TrainTask& task, Rank rank);
  /// The single process that all workers are compared with: every training sample, and batches as
  /// large as those of all workers together, so that it takes as many steps on as many samples.
  static Learner baseline(const TrainTask& task);

  /// Shuffles the shard again; to be called before the rounds of every epoch.
  void start_epoch();
  /// Gradient on the next batch of the epoch. At most rounds_per_epoch() calls an epoch.
  void gradient(std::span<const float> parameters, std::span<float> gradient);

 private:
  Learner(const TrainTask& task, std::span<const std::uint32_t> samples, std::uint32_t batch,
          std::uint64_t stream);

  const TrainTask* task_;
  std::vector<std::uint32_t> order_;
  std::size_t next_ = 0;
  std::uint32_t batch_;
  SplitMix64 random_;
  std::vector<float> inputs_;
  std::vector<std::uint8_t> labels_;
  Network<float> network_;
};

}  // namespace selmcast
