#include "sync/steps/stale_steps.h"

#include <utility>

namespace selmcast {

void StaleSteps::prepare(bool) {
  merge_.depart();
}

void StaleSteps::merge(const RoundReport& report) {
  // All hear all, so those who heard this rank are those it heard; a rank that dies in the round
  // leaves the frames that came, and one rank more or less counts in a weight.
  merge_.arrive(static_cast<std::uint32_t>(report.receivers.size()) + 1, late_);
}

Result<std::vector<RoundReport>> StaleSteps::step() {
  ++steps_;
  std::vector<RoundReport> closed;
  if (under_way_ && steps_ == late_) {
    if (auto ok = close(closed); !ok) return std::move(ok).error();
  }
  if (steps_ == period_) depart(false);
  return closed;
}

Result<std::vector<RoundReport>> StaleSteps::finish() {
  std::vector<RoundReport> reports;
  if (under_way_) {
    if (auto ok = close(reports); !ok) return std::move(ok).error();
  }
  depart(true);
  auto report = rounds_.wait();
  if (!report) return std::move(report).error();
  under_way_ = false;
  merge_.replace();
  reports.push_back(std::move(report).value());
  return reports;
}

}  // namespace selmcast
