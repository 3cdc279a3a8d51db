// The table of an experiment as text, CSV, SVG and JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/papers/experiment.h"

namespace selmcast {

/// Columns: setting, method, metric, x, the published number where there is one, and for each
/// column of ours the mean and how far it is from the published number, in percent.
std::string study_text(const Experiment& experiment, const StudyTable& table);

/// One line per point and column: setting,method,metric,x,column,mean,min,max,published_low,
/// published_high (empty where nothing was published).
std::string study_csv(const Experiment& experiment, const StudyTable& table);

/// One panel per setting and metric for the first column; the published numbers as crosses.
std::string study_svg(const Experiment& experiment, const StudyTable& table);

nlohmann::ordered_json study_json(const Experiment& experiment, const StudyTable& table,
                                  std::uint64_t seed, std::uint32_t trials);

}  // namespace selmcast
