#include "train/reference.h"

#include "base/check.h"

namespace selmcast {

Schedule everyone(std::uint32_t workers) {
  ReceiverSets all(workers);
  for (Rank i = 0; i < workers; ++i) {
    for (Rank j = 0; j < workers; ++j) {
      if (i != j) all[i].push_back(j);
    }
  }
  return [all](std::uint32_t) { return all; };
}

Schedule nobody(std::uint32_t workers) {
  return [workers](std::uint32_t) { return ReceiverSets(workers); };
}

void gossip(const ReceiverSets& receivers, std::vector<std::vector<float>>& models) {
  const std::size_t n = models.size();
  SELMCAST_CHECK(receivers.size() == n, "one set of receivers per model");
  std::vector<std::vector<Rank>> heard(n);
  for (Rank i = 0; i < n; ++i) {
    for (const Rank j : receivers[i]) {
      SELMCAST_CHECK(j < n && j != i, "a receiver is another rank");
      heard[j].push_back(i);
    }
  }
  const auto before = models;
  for (std::size_t j = 0; j < n; ++j) {
    if (heard[j].empty()) continue;
    const double share = 1.0 / static_cast<double>(heard[j].size() + 1);
    for (std::size_t x = 0; x < models[j].size(); ++x) {
      const double own = static_cast<double>(before[j][x]);
      double difference = 0.0;
      for (const Rank i : heard[j]) difference += static_cast<double>(before[i][x]) - own;
      models[j][x] = static_cast<float>(own + share * difference);
    }
  }
}

std::vector<std::vector<float>> train_with_gossip(const TrainTask& task, const Schedule& schedule,
                                                  const PointObserver& observer) {
  const std::uint32_t workers = task.options().workers;
  std::vector<std::vector<float>> models(workers, task.initial_parameters());
  std::vector<float> gradient(task.shape().parameters());
  std::vector<Learner> learners;
  for (Rank rank = 0; rank < workers; ++rank) learners.emplace_back(task, rank);
  std::uint32_t round = 0;
  for (std::uint32_t epoch = 1; epoch <= task.options().epochs; ++epoch) {
    for (Learner& learner : learners) learner.start_epoch();
    for (std::uint32_t r = 0; r < task.rounds_per_epoch(); ++r, ++round) {
      for (Rank rank = 0; rank < workers; ++rank) {
        learners[rank].gradient(models[rank], gradient);
        descend(models[rank], gradient, task.learning_rate(round));
      }
      gossip(schedule(round), models);
      if (observer && task.is_point(round + 1)) observer(round + 1, models);
    }
  }
  return models;
}

std::vector<float> train_with_shared_gradients(const TrainTask& task) {
  const std::uint32_t workers = task.options().workers;
  std::vector<float> model = task.initial_parameters();
  std::vector<std::vector<float>> gradients(workers, std::vector<float>(model.size()));
  std::vector<Learner> learners;
  for (Rank rank = 0; rank < workers; ++rank) learners.emplace_back(task, rank);
  std::uint32_t round = 0;
  for (std::uint32_t epoch = 0; epoch < task.options().epochs; ++epoch) {
    for (Learner& learner : learners) learner.start_epoch();
    for (std::uint32_t r = 0; r < task.rounds_per_epoch(); ++r, ++round) {
      for (Rank rank = 0; rank < workers; ++rank) learners[rank].gradient(model, gradients[rank]);
      descend(model, mean_model(gradients), task.learning_rate(round));
    }
  }
  return model;
}

std::vector<float> train_alone(const TrainTask& task, const PointObserver& observer) {
  std::vector<std::vector<float>> model{task.initial_parameters()};
  std::vector<float> gradient(model[0].size());
  Learner learner = Learner::baseline(task);
  std::uint32_t round = 0;
  for (std::uint32_t epoch = 1; epoch <= task.options().epochs; ++epoch) {
    learner.start_epoch();
    for (std::uint32_t r = 0; r < task.rounds_per_epoch(); ++r, ++round) {
      learner.gradient(model[0], gradient);
      descend(model[0], gradient, task.learning_rate(round));
      if (observer && task.is_point(round + 1)) observer(round + 1, model);
    }
  }
  return std::move(model[0]);
}

std::vector<float> mean_model(std::span<const std::vector<float>> models) {
  SELMCAST_CHECK(!models.empty(), "a mean needs a value");
  std::vector<double> sum(models[0].size());
  for (const auto& model : models) {
    SELMCAST_CHECK(model.size() == sum.size(), "models of equal size");
    for (std::size_t x = 0; x < sum.size(); ++x) sum[x] += static_cast<double>(model[x]);
  }
  std::vector<float> mean(sum.size());
  const double share = 1.0 / static_cast<double>(models.size());
  for (std::size_t x = 0; x < sum.size(); ++x) mean[x] = static_cast<float>(sum[x] * share);
  return mean;
}

}  // namespace selmcast
