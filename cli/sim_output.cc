#include "cli/sim_output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "train/plot.h"

namespace selmcast {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string shown(const std::optional<PublishedNumber>& number) {
  if (!number) return "-";
  if (number->low == number->high) return formatted("%.4g", number->low);
  return formatted("%.4g-%.4g", number->low, number->high);
}

/// Okabe and Ito's colours, one per method in order of appearance.
const char* colour_of(std::size_t index) {
  constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73",
                                      "#cc79a7", "#e69f00", "#56b4e9"};
  return kColours[index % std::size(kColours)];
}

PlotSeries& series_of(PlotPanel& panel, const std::string& label, const char* colour) {
  for (auto& series : panel.series) {
    if (series.label == label) return series;
  }
  return panel.series.emplace_back(PlotSeries{label, {}, colour, false, false});
}

void set_ranges(PlotPanel& panel) {
  double x_low = INFINITY, x_high = -INFINITY, y_high = 0.0;
  for (const auto& series : panel.series) {
    for (const auto& point : series.points) {
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      y_high = std::max(y_high, point.y);
    }
  }
  panel.y_max = y_high > 0.0 ? 1.1 * y_high : 1.0;
  panel.x_min = x_low < x_high && x_low > 0.4 * x_high ? x_low : 0.0;
}

}  // namespace

std::string study_text(const Experiment& experiment, const StudyTable& table) {
  std::size_t setting = 7, method = 6, metric = 6;
  for (const auto& point : table.points) {
    setting = std::max(setting, point.setting.size());
    method = std::max(method, point.method.size());
    metric = std::max(metric, point.metric.size());
  }
  const auto left = [](std::string text, std::size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text + "  ";
  };
  std::string out = experiment.name + ": " + experiment.summary + "\n";
  out += left("setting", setting) + left("method", method) + left("metric", metric);
  out +=
      formatted("%8s %12s", experiment.x_label.substr(0, 8).c_str(), experiment.reference.c_str());
  for (const auto& column : table.columns) out += formatted(" %12s %8s", column.c_str(), "off");
  out += "\n";
  for (const auto& point : table.points) {
    out += left(point.setting, setting) + left(point.method, method) + left(point.metric, metric);
    out += formatted("%8.4g %12s", point.x, shown(point.published).c_str());
    for (const auto& sample : point.ours) {
      out += formatted(" %12.4f", sample.mean);
      if (!point.published) {
        out += formatted(" %8s", "");
        continue;
      }
      // Adding 0.0 turns a rounded -0 into 0.
      const double off = std::round(1000.0 * deviation_from(*point.published, sample.mean)) / 10.0;
      out += formatted(" %+6.1f %%", off + 0.0);
    }
    while (out.back() == ' ') out.pop_back();
    out += "\n";
  }
  return out;
}

std::string study_csv(const Experiment& experiment, const StudyTable& table) {
  std::string out =
      "experiment,setting,method,metric,x,column,mean,min,max,published_low,"
      "published_high\n";
  for (const auto& point : table.points) {
    for (std::size_t c = 0; c < point.ours.size(); ++c) {
      const auto& sample = point.ours[c];
      out += experiment.name + ",\"" + point.setting + "\",\"" + point.method + "\",\"" +
             point.metric + "\"," + formatted("%.9g", point.x) + ",\"" + table.columns[c] + "\"," +
             formatted("%.9g,%.9g,%.9g,", sample.mean, sample.min, sample.max);
      out += point.published ? formatted("%.9g,%.9g\n", point.published->low, point.published->high)
                             : ",\n";
    }
  }
  return out;
}

std::string study_svg(const Experiment& experiment, const StudyTable& table) {
  std::vector<PlotPanel> panels;
  std::map<std::string, std::size_t> place, colour;
  for (const auto& point : table.points) {
    const auto title = point.setting + (point.setting.empty() ? "" : ", ") + point.metric;
    const auto [found, added] = place.try_emplace(title, panels.size());
    if (added) {
      auto& panel = panels.emplace_back();
      panel.title = title;
      panel.x_label = experiment.x_label;
      panel.y_label = point.metric;
    }
    auto& panel = panels[found->second];
    const auto* ink = colour_of(colour.try_emplace(point.method, colour.size()).first->second);
    for (std::size_t c = 0; c < point.ours.size(); ++c) {
      auto label = point.method;
      if (table.columns.size() > 1) label += ", " + table.columns[c];
      auto& series = series_of(panel, label, ink);
      series.dashed = c > 0;
      series.points.push_back({point.x, point.ours[c].mean});
    }
    if (!point.published) continue;
    auto& crosses = series_of(panel, point.method + ", " + experiment.reference, ink);
    crosses.marks = true;
    crosses.points.push_back({point.x, (point.published->low + point.published->high) / 2});
  }
  for (auto& panel : panels) set_ranges(panel);
  return svg_chart(panels, experiment.name + ": " + experiment.summary);
}

nlohmann::ordered_json study_json(const Experiment& experiment, const StudyTable& table,
                                  std::uint64_t seed, std::uint32_t trials) {
  auto points = nlohmann::ordered_json::array();
  for (const auto& point : table.points) {
    nlohmann::ordered_json entry = {{"setting", point.setting},
                                    {"method", point.method},
                                    {"metric", point.metric},
                                    {"x", point.x}};
    if (point.published) entry["published"] = {point.published->low, point.published->high};
    auto& ours = entry["ours"] = nlohmann::ordered_json::array();
    for (std::size_t c = 0; c < point.ours.size(); ++c) {
      const auto& sample = point.ours[c];
      ours.push_back({{"column", table.columns[c]},
                      {"mean", sample.mean},
                      {"min", sample.min},
                      {"max", sample.max}});
      if (!point.published) continue;
      ours.back()["off_percent"] = 100.0 * deviation_from(*point.published, sample.mean);
    }
    points.push_back(std::move(entry));
  }
  return {{"experiment", experiment.name},
          {"summary", experiment.summary},
          {"x", experiment.x_label},
          {"reference", experiment.reference},
          {"seed", seed},
          {"trials", trials},
          {"columns", table.columns},
          {"points", std::move(points)}};
}

}  // namespace selmcast
