#include "sync/steps/stage_steps.h"

#include <utility>

#include "base/check.h"

namespace selmcast {

void StageSteps::prepare(bool) {
  SELMCAST_CHECK(!under_way_, "finish() ends the stages of a step");
  stages_.depart_all();
}

void StageSteps::merge(const RoundReport&) {
  stages_.arrive_all();
}

Result<std::vector<RoundReport>> StageSteps::end_rest() {
  std::vector<RoundReport> reports;
  if (!under_way_) return reports;
  const bool early = rounds_.settled();
  auto rest = rounds_.wait();
  if (!rest) return std::move(rest).error();
  under_way_ = false;
  stages_.arrive_rest(early);
  reports.push_back(std::move(rest).value());
  return reports;
}

Result<std::vector<RoundReport>> StageSteps::step() {
  ++steps_;
  auto reports = end_rest();
  if (!reports) return reports;
  stages_.depart_first();
  carried_ = std::exchange(steps_, 0);
  rounds_.push_part(0, stages_.first_count());
  auto first = rounds_.wait();
  if (!first) return std::move(first).error();
  reports->push_back(std::move(first).value());
  if (!stages_.arrive_first()) {
    const auto carried = carried_;
    depart(false);
    carried_ = carried;
    if (auto ok = close(*reports); !ok) return std::move(ok).error();
    return reports;
  }
  if (stages_.rest_count() == 0) return reports;
  stages_.depart_rest();
  rounds_.push_part(stages_.first_count(), stages_.rest_count());
  under_way_ = true;
  return reports;
}

Result<std::vector<RoundReport>> StageSteps::finish() {
  return end_rest();
}

}  // namespace selmcast
