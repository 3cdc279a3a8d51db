#include "train/task.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/shuffle.h"

namespace selmcast {
namespace {

constexpr std::uint64_t kBatchStream = 0x6261746368000000U;
constexpr std::uint32_t kHiddenMax = 65'536;
constexpr std::uint32_t kPointsMax = 1000;

void gather(const Dataset& data, std::span<const std::uint32_t> samples, std::vector<float>& inputs,
            std::vector<std::uint8_t>& labels) {
  inputs.resize(samples.size() * Dataset::kFeatures);
  labels.resize(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::ranges::copy(data.image(samples[i]),
                      inputs.begin() + static_cast<std::ptrdiff_t>(i * Dataset::kFeatures));
    labels[i] = data.labels[samples[i]];
  }
}

Result<void> check_options(const TrainOptions& options, std::size_t training_samples) {
  if (options.workers < 1 || options.workers > training_samples / 2) {
    return bad_input("--workers " + std::to_string(options.workers) + ": 1 to " +
                     std::to_string(training_samples / 2) + " can share " +
                     std::to_string(training_samples) + " training samples");
  }
  if (options.epochs < 1) return bad_input("--epochs 0: at least 1");
  if (options.batch < 1) return bad_input("--batch 0: at least 1");
  if (!(options.learning_rate > 0.0) || !std::isfinite(options.learning_rate)) {
    return bad_input("--lr: a number above 0 is needed");
  }
  if (!(options.decay >= 0.0 && options.decay <= 1.0)) {
    return bad_input("--lr-decay: a share of the rounds is needed, 0 to 1");
  }
  if (options.hidden < 1 || options.hidden > kHiddenMax) {
    return bad_input("--hidden " + std::to_string(options.hidden) + ": 1 to " +
                     std::to_string(kHiddenMax));
  }
  return {};
}

}  // namespace

Result<TrainTask> TrainTask::make(const TrainOptions& options, Dataset data) {
  TrainTask task;
  task.options_ = options;
  task.data_ = std::move(data);
  task.shape_ = model_shape(options.model, options.hidden);
  task.split_ = split_train_test(task.data_, options.seed);
  if (auto checked = check_options(options, task.split_.train.size()); !checked) {
    return std::move(checked).error();
  }
  task.shards_ =
      make_shards(task.data_, task.split_.train, options.workers, options.split, options.seed);
  std::size_t smallest = task.split_.train.size();
  for (const auto& shard : task.shards_) smallest = std::min(smallest, shard.size());
  if (options.batch > smallest) {
    return bad_input("--batch " + std::to_string(options.batch) + ": at most " +
                     std::to_string(smallest) + ", the samples of the smallest of " +
                     std::to_string(options.workers) + " shards");
  }
  task.rounds_per_epoch_ = static_cast<std::uint32_t>(smallest / options.batch);
  if (options.epochs > std::numeric_limits<std::uint32_t>::max() / task.rounds_per_epoch_) {
    return bad_input("--epochs " + std::to_string(options.epochs) + ": more rounds than 2^32");
  }
  if (options.curve_steps > 0 && task.steps() / options.curve_steps > kPointsMax) {
    return bad_input("--curve-steps " + std::to_string(options.curve_steps) + ": at least " +
                     std::to_string(task.steps() / kPointsMax + 1) + " for " +
                     std::to_string(task.steps()) + " steps, or 0 for whole epochs");
  }
  return task;
}

float TrainTask::learning_rate(std::uint32_t round) const noexcept {
  const double rounds = static_cast<double>(options_.epochs) * rounds_per_epoch_;
  const double falling = std::max(1.0, std::round(options_.decay * rounds));
  return static_cast<float>(options_.learning_rate * std::min(1.0, (rounds - round) / falling));
}

bool TrainTask::is_point(std::uint32_t steps) const noexcept {
  constexpr std::uint32_t kEpochPoints = 100;
  const std::uint32_t epochs = (options_.epochs + kEpochPoints - 1) / kEpochPoints;
  const std::uint32_t stride =
      options_.curve_steps > 0 ? options_.curve_steps : epochs * rounds_per_epoch_;
  return steps == this->steps() || steps % stride == 0;
}

std::vector<float> TrainTask::initial_parameters() const {
  std::vector<float> parameters(shape_.parameters());
  initialise(shape_, options_.seed, parameters);
  return parameters;
}

Judge::Judge(const TrainTask& task)
    : network_(task.shape(), static_cast<std::uint32_t>(task.test_samples().size())) {
  gather(task.data(), task.test_samples(), inputs_, labels_);
}

Score Judge::score(std::span<const float> parameters) {
  return network_.score(parameters, inputs_, labels_);
}

Learner::Learner(const TrainTask& task, std::span<const std::uint32_t> samples, std::uint32_t batch,
                 std::uint64_t stream)
    : task_(&task),
      order_(samples.begin(), samples.end()),
      batch_(batch),
      random_(mix_seed(mix_seed(task.options().seed ^ kBatchStream) + stream)),
      network_(task.shape(), batch) {}

Learner::Learner(const TrainTask& task, Rank rank)
    : Learner(task, task.shard(rank), task.options().batch, std::uint64_t{rank} + 1) {}

Learner Learner::baseline(const TrainTask& task) {
  return Learner(task, task.train_samples(), task.options().workers * task.options().batch, 0);
}

void Learner::start_epoch() {
  shuffle(order_, random_);
  next_ = 0;
}

void Learner::gradient(std::span<const float> parameters, std::span<float> gradient) {
  SELMCAST_CHECK(next_ + batch_ <= order_.size(), "more rounds than an epoch has");
  gather(task_->data(), std::span(order_).subspan(next_, batch_), inputs_, labels_);
  next_ += batch_;
  network_.gradient(parameters, inputs_, labels_, gradient);
}

}  // namespace selmcast
