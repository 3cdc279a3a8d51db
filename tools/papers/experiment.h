// The evaluation of the SELMCAST papers (ICC 2022, IEEE TSC 2024) as named experiments.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace selmcast {

/// The seed of one trial: no two pairs of small numbers share one.
std::uint64_t trial_seed(std::uint64_t seed, std::uint32_t trial);

/// A number that a paper states; `low` < `high` where the two papers differ or it is read off a
/// figure. Never computed here.
struct PublishedNumber {
  double low = 0.0, high = 0.0;
};

/// Over the trials.
struct Sample {
  double mean = 0.0, min = 0.0, max = 0.0;
};
Sample sample_of(const std::vector<double>& values);

/// How far `ours` is from the nearer end of a published number, as a share of it; 0 within.
double deviation_from(const PublishedNumber& published, double ours);

/// One line of the table of an experiment.
struct StudyPoint {
  std::string setting;  ///< Which curve besides the method, e.g. "L3" or "LSTM".
  std::string method;   ///< exact, published, orpheus, ...
  std::string metric;   ///< time, receivers, utilisation: see Experiment::metrics.
  double x = 0.0;
  std::vector<Sample> ours;  ///< One per column.
  std::optional<PublishedNumber> published;
};

struct StudyTable {
  std::vector<std::string> columns;  ///< What distinguishes the values, e.g. "lambda=0.25".
  std::vector<StudyPoint> points;
};

struct StudyOptions {
  std::uint32_t trials = 0;  ///< 0 = the experiment's own number.
  std::uint64_t seed = 1;
  double minutes = 10.0;  ///< Simulated time of the SSP experiments.
  /// Called after each trial of each point, by one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

struct Experiment {
  std::string name;
  std::string summary;    ///< One line: what is varied and shown.
  std::string x_label;    ///< With unit.
  std::string reference;  ///< Whose numbers `published` are.
  std::uint32_t trials = 10;
  std::function<Result<StudyTable>(const StudyOptions&)> run;
};

/// All of them, in the order of the papers. Equal options give equal tables.
std::vector<Experiment> experiments();

/// Time is in units of p v / mean rate, the ideal of equal links; receivers are per sender and as a
/// share of n.
std::vector<Experiment> bsp_experiments();
/// Receivers as above, utilisation is the share of the time in which workers compute.
std::vector<Experiment> ssp_experiments();

}  // namespace selmcast
