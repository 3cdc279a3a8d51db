// Training without any transport: one thread plays all workers. What the driver does to parameters
// can be held against it, and it gives the two lines of comparison of every run.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/units.h"
#include "train/task.h"

namespace selmcast {

/// receivers[i] = the ranks that get rank i's parameters in a round; never i itself, none twice.
using ReceiverSets = std::vector<std::vector<Rank>>;
/// The receivers of a round, counted from 0 over the whole run.
using Schedule = std::function<ReceiverSets(std::uint32_t round)>;

/// Schedules of the two extremes: everyone hears everyone, and nobody hears anybody.
Schedule everyone(std::uint32_t workers);
Schedule nobody(std::uint32_t workers);

/// One round of gossip averaging in difference form, w_j += sum_i (w_i - w_j) / (1 + c_j) over the
/// c_j ranks that j hears, from the values all had before the round, summed in double and rank
/// order. (Consensus averaging: Xiao and Boyd, Systems & Control Letters 53, 2004.)
void gossip(const ReceiverSets& receivers, std::vector<std::vector<float>>& models);

/// Models of all workers after so many steps, at the points of the task (TrainTask::is_point())
/// but that before the first step.
using PointObserver =
    std::function<void(std::uint32_t steps, std::span<const std::vector<float>> models)>;

/// Every round each worker takes a local step, then they gossip. Returns the final models.
std::vector<std::vector<float>> train_with_gossip(const TrainTask& task, const Schedule& schedule,
                                                  const PointObserver& observer = {});
/// The same with gradients instead of parameters averaged over all workers (select=all mix=sgd).
std::vector<float> train_with_shared_gradients(const TrainTask& task);
/// The single process of Learner::baseline(); the observer gets one model.
std::vector<float> train_alone(const TrainTask& task, const PointObserver& observer = {});

/// Mean of models of equal size, in double and in the order given. Needs at least one.
std::vector<float> mean_model(std::span<const std::vector<float>> models);

}  // namespace selmcast
