#include "train/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string_view>

#include "base/check.h"

namespace selmcast {
namespace {

constexpr double kPanelWidth = 460;
constexpr double kPanelHeight = 320;
constexpr double kMarginLeft = 62;
constexpr double kMarginRight = 18;
constexpr double kMarginTop = 64;
constexpr double kMarginBottom = 52;
constexpr double kRowGap = 40;
constexpr double kLegendRow = 22;
constexpr double kLegendColumn = 300;
constexpr const char* kInk = "#333333";

/// A number as short as possible, independent of the locale's decimal point.
std::string number(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.6g", std::abs(value) < 1e-12 ? 0.0 : value);
  std::replace(text.begin(), text.end(), ',', '.');
  return text.data();
}

/// A coordinate to a hundredth of a pixel.
std::string at(double value) {
  return number(std::round(value * 100.0) / 100.0);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string text_at(double x, double y, const char* anchor, int size, std::string_view text,
                    const char* extra = "") {
  return "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" text-anchor=\"" + anchor +
         "\" font-size=\"" + std::to_string(size) + "\" fill=\"" + kInk + "\"" + extra + ">" +
         escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* colour, double width,
                 bool dashed = false) {
  return "<line x1=\"" + at(x1) + "\" y1=\"" + at(y1) + "\" x2=\"" + at(x2) + "\" y2=\"" + at(y2) +
         "\" stroke=\"" + colour + "\" stroke-width=\"" + number(width) + "\"" +
         (dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
}

std::string cross_at(double x, double y, const std::string& colour) {
  constexpr double kArm = 4.5;
  return line(x - kArm, y - kArm, x + kArm, y + kArm, colour.c_str(), 2) +
         line(x - kArm, y + kArm, x + kArm, y - kArm, colour.c_str(), 2);
}

bool finite(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

/// Draws one panel whose upper left corner is at `left`, and `above` under that of the first row.
class PanelDrawing {
 public:
  PanelDrawing(const PlotPanel& panel, double left, double above)
      : panel_(panel),
        left_(left + kMarginLeft),
        top_(above + kMarginTop),
        bottom_(above + kMarginTop + kPanelHeight - kMarginBottom),
        x_max_(panel.x_min) {
    for (const PlotSeries& series : panel.series) {
      for (const PlotPoint& point : series.points) {
        if (finite(point)) x_max_ = std::max(x_max_, point.x);
      }
    }
    if (x_max_ <= panel.x_min) x_max_ = panel.x_min + 1.0;
  }

  std::string draw() const {
    std::string out = grid();
    for (const PlotSeries& series : panel_.series) out += curve(series);
    return out;
  }

 private:
  static constexpr double kWidth = kPanelWidth - kMarginLeft - kMarginRight;

  double x_of(double x) const {
    return left_ + kWidth * (x - panel_.x_min) / (x_max_ - panel_.x_min);
  }
  double y_of(double y) const {
    const double inside = std::clamp(y, panel_.y_min, panel_.y_max);
    return bottom_ - (bottom_ - top_) * (inside - panel_.y_min) / (panel_.y_max - panel_.y_min);
  }

  std::string grid() const {
    std::string out = text_at(left_ + kWidth / 2, top_ - 12, "middle", 14, panel_.title);
    for (const double y : ticks(panel_.y_min, panel_.y_max, 6)) {
      out += line(left_, y_of(y), left_ + kWidth, y_of(y), "#dddddd", 1);
      out += text_at(left_ - 7, y_of(y) + 4, "end", 12, number(y));
    }
    for (const double x : ticks(panel_.x_min, x_max_, 6)) {
      out += line(x_of(x), bottom_, x_of(x), bottom_ + 5, kInk, 1);
      out += text_at(x_of(x), bottom_ + 19, "middle", 12, number(x));
    }
    out += line(left_, top_, left_, bottom_, kInk, 1.2);
    out += line(left_, bottom_, left_ + kWidth, bottom_, kInk, 1.2);
    out += text_at(left_ + kWidth / 2, bottom_ + 40, "middle", 13, panel_.x_label);
    const double label_x = left_ - 44;
    const double label_y = (top_ + bottom_) / 2;
    const std::string turn = " transform=\"rotate(-90 " + at(label_x) + " " + at(label_y) + ")\"";
    return out + text_at(label_x, label_y, "middle", 13, panel_.y_label, turn.c_str());
  }

  std::string crosses(const PlotSeries& series) const {
    std::string out;
    for (const PlotPoint& point : series.points) {
      if (finite(point)) out += cross_at(x_of(point.x), y_of(point.y), escaped(series.colour));
    }
    return out;
  }

  std::string curve(const PlotSeries& series) const {
    if (series.marks) return crosses(series);
    std::string points;
    for (const PlotPoint& point : series.points) {
      if (!finite(point)) continue;
      if (!points.empty()) points += ' ';
      points += at(x_of(point.x)) + "," + at(y_of(point.y));
    }
    if (points.empty()) return {};
    return "<polyline fill=\"none\" stroke=\"" + escaped(series.colour) +
           "\" stroke-width=\"2\" stroke-linejoin=\"round\"" +
           (series.dashed ? " stroke-dasharray=\"6 4\"" : "") + " points=\"" + points + "\"/>\n";
  }

  const PlotPanel& panel_;
  double left_, top_, bottom_;
  double x_max_;
};

/// Every label once. What is drawn last lies on top and is the most important: it comes first.
std::vector<const PlotSeries*> legend_entries(const std::vector<PlotPanel>& panels) {
  std::vector<const PlotSeries*> entries;
  for (const PlotPanel& panel : panels) {
    for (auto at = panel.series.rbegin(); at != panel.series.rend(); ++at) {
      const PlotSeries& series = *at;
      const bool known = std::ranges::any_of(
          entries, [&](const PlotSeries* entry) { return entry->label == series.label; });
      if (!known) entries.push_back(&series);
    }
  }
  return entries;
}

enum class Axis { samples, seconds };

/// One curve against time, or against the samples that all workers together have seen, of which
/// every step of each worker adds `samples_per_step`.
PlotSeries series_of(const std::vector<CurvePoint>& curve, Axis axis, double samples_per_step,
                     double CurvePoint::*value, const char* label, const char* colour,
                     bool dashed) {
  PlotSeries series{label, {}, colour, dashed};
  for (const CurvePoint& point : curve) {
    const double x = axis == Axis::samples ? point.steps * samples_per_step : point.seconds;
    series.points.push_back({x, point.*value});
  }
  return series;
}

/// Training that ended earlier keeps its model: a level line up to the end of the longest.
void hold_to_the_end(std::vector<PlotSeries>& all) {
  double end = 0.0;
  for (const PlotSeries& series : all) {
    if (!series.points.empty()) end = std::max(end, series.points.back().x);
  }
  for (PlotSeries& series : all) {
    if (!series.points.empty()) series.points.push_back({end, series.points.back().y});
  }
}

// Colours of Okabe and Ito, which most colour-blind readers can tell apart.
constexpr const char* kNeverTalk = "workers that never talk, mean";
constexpr const char* kSingle = "single process";
constexpr const char* kAverage = "average of the workers' models";

PlotPanel training_panel(const TrainResult& result, Axis axis, bool loss) {
  PlotPanel panel;
  panel.title = std::string(loss ? "loss" : "accuracy") +
                (axis == Axis::samples ? " by samples" : " by time");
  panel.x_label =
      axis == Axis::samples ? "samples seen by all workers together" : "seconds of training";
  panel.y_label = loss ? "cross-entropy on the test set" : "accuracy on the test set";
  const double own = std::accumulate(result.rank_steps.begin(), result.rank_steps.end(), 0.0);
  const double per_step = result.options.batch * own / std::max(result.steps, 1U);
  const auto& workers = axis == Axis::samples ? result.workers : result.by_time;
  const auto add = [&](const std::vector<CurvePoint>& curve, double CurvePoint::*value,
                       const char* label, const char* colour, bool dashed) {
    panel.series.push_back(series_of(curve, axis, per_step, value, label, colour, dashed));
  };
  if (loss) {
    add(result.baseline, &CurvePoint::loss, kSingle, "#000000", true);
    add(workers, &CurvePoint::loss, kAverage, "#0072b2", false);
    for (const PlotSeries& series : panel.series) {
      for (const PlotPoint& point : series.points) {
        if (std::isfinite(point.y)) panel.y_max = std::max(panel.y_max, point.y);
      }
    }
  } else {
    add(result.local_only, &CurvePoint::worker_mean, kNeverTalk, "#999999", true);
    add(result.baseline, &CurvePoint::accuracy, kSingle, "#000000", true);
    add(workers, &CurvePoint::worker_min, "worst worker on its own", "#d55e00", false);
    add(workers, &CurvePoint::worker_mean, "workers on their own, mean", "#e69f00", false);
    add(workers, &CurvePoint::accuracy, kAverage, "#0072b2", false);
  }
  hold_to_the_end(panel.series);
  return panel;
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  SELMCAST_CHECK(low < high && count >= 1, "an axis has a length");
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (step >= rough * (1.0 - 1e-9)) break;
  }
  std::vector<double> out;
  // Multiples, not sums, so that rounding errors do not add up; a hair of slack keeps the last one.
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1.0) {
    out.push_back(i * step);
  }
  return out;
}

std::string svg_chart(const std::vector<PlotPanel>& panels, const std::string& title,
                      std::size_t per_row) {
  SELMCAST_CHECK(per_row >= 1, "a row has a panel");
  const auto entries = legend_entries(panels);
  const std::size_t across = std::clamp<std::size_t>(panels.size(), 1, per_row);
  const std::size_t down = std::max<std::size_t>((panels.size() + across - 1) / across, 1);
  const double width = kPanelWidth * static_cast<double>(across);
  const auto columns =
      static_cast<std::size_t>(std::max(1.0, std::floor((width - kMarginLeft) / kLegendColumn)));
  const std::size_t rows = (entries.size() + columns - 1) / columns;
  const double row_height = kPanelHeight + kRowGap;
  const double legend_top = kMarginTop + row_height * static_cast<double>(down) - kRowGap + 14;
  const double height = legend_top + kLegendRow * static_cast<double>(rows);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + at(width) +
                    "\" height=\"" + at(height) + "\" viewBox=\"0 0 " + at(width) + " " +
                    at(height) + "\" font-family=\"sans-serif\">\n";
  out += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  out += text_at(width / 2, 26, "middle", 15, title);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    SELMCAST_CHECK(panels[i].y_min < panels[i].y_max, "an axis has a length");
    out += PanelDrawing(panels[i], kPanelWidth * static_cast<double>(i % across),
                        row_height * static_cast<double>(i / across))
               .draw();
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const double x = kMarginLeft + kLegendColumn * static_cast<double>(i % columns);
    const double y = legend_top + kLegendRow * static_cast<double>(i / columns);
    const std::string colour = escaped(entries[i]->colour);
    if (entries[i]->marks) {
      out += cross_at(x + 15, y - 4, colour);
    } else {
      out += line(x, y - 4, x + 30, y - 4, colour.c_str(), 2, entries[i]->dashed);
    }
    out += text_at(x + 38, y, "start", 13, entries[i]->label);
  }
  return out + "</svg>\n";
}

std::string training_chart(const TrainResult& result) {
  const std::string title = std::string(to_string(result.options.model)) + " on " + result.data +
                            ", " + std::string(to_string(result.options.split)) + " split, " +
                            std::to_string(result.options.workers) + " workers";
  return svg_chart(
      {training_panel(result, Axis::seconds, false), training_panel(result, Axis::samples, false),
       training_panel(result, Axis::seconds, true), training_panel(result, Axis::samples, true)},
      title, 2);
}

}  // namespace selmcast
