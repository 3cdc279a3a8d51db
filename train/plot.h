// Line charts as SVG: what `selmcast train --plot` and `selmcast sim --svg` write.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "train/train_result.h"

namespace selmcast {

struct PlotPoint {
  double x = 0.0;
  double y = 0.0;
};

struct PlotSeries {
  std::string label;
  std::vector<PlotPoint> points;  ///< Ascending x; points that are not finite are left out.
  std::string colour;             ///< Any SVG colour, e.g. "#0072b2".
  bool dashed = false;
  bool marks = false;  ///< A cross at each point instead of a line.
};

/// One set of axes.
struct PlotPanel {
  std::string title, x_label, y_label;
  double y_min = 0.0, y_max = 1.0;  ///< y_min < y_max.
  std::vector<PlotSeries> series;
  double x_min = 0.0;  ///< Where the x axis starts; it ends at the largest x of the series.
};

/// Round tick positions (1, 2 or 5 times a power of ten apart) from `low` to `high`, about `count`
/// of them. Needs finite low < high and count >= 1.
std::vector<double> ticks(double low, double high, int count);

/// The panels side by side, `per_row` (at least 1) in a row, with one legend below for the labels
/// of all. Labels may hold any text.
std::string svg_chart(const std::vector<PlotPanel>& panels, const std::string& title,
                      std::size_t per_row = 4);

/// Accuracy and loss against time and against samples: the average of the workers' models, the
/// workers on their own (mean and worst), and where the result has them the single process and
/// workers that never talk.
std::string training_chart(const TrainResult& result);

}  // namespace selmcast
