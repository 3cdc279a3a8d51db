#include "train/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace selmcast {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

TEST(Ticks, AreRound) {
  EXPECT_THAT(ticks(0, 1, 5), Pointwise(DoubleNear(1e-9), {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}));
  EXPECT_THAT(ticks(0, 440, 6), Pointwise(DoubleNear(1e-9), {0.0, 100.0, 200.0, 300.0, 400.0}));
  EXPECT_THAT(ticks(-3, 7, 5), Pointwise(DoubleNear(1e-9), {-2.0, 0.0, 2.0, 4.0, 6.0}));
  EXPECT_LE(ticks(0, 1.37e-7, 6).size(), 8U);
}

PlotPanel panel_of(std::vector<PlotPoint> points, const std::string& label) {
  return {"t", "x", "y", 0.0, 1.0, {{label, std::move(points), "#123456", false}}};
}

TEST(SvgChart, PlacesPointsInTheFrame) {
  // The frame's corners: x from 62 to 442, y from 64 (value 1) to 332 (value 0).
  const std::string svg = svg_chart({panel_of({{0, 0}, {10, 1}, {20, 0.5}}, "s")}, "title");
  EXPECT_THAT(svg, HasSubstr("points=\"62,332 252,64 442,198\""));
  EXPECT_THAT(svg, HasSubstr(">title</text>"));
}

TEST(SvgChart, EscapesText) {
  const std::string svg = svg_chart({panel_of({{0, 0}, {1, 1}}, "a<b & \"c\"")}, "<script>");
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
}

TEST(SvgChart, LeavesOutWhatIsNotANumberAndClampsTheRest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = svg_chart({panel_of({{0, nan}, {1, 7}, {2, -7}}, "s")}, "");
  EXPECT_THAT(svg, HasSubstr("points=\"252,64 442,332\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg_chart({panel_of({}, "empty")}, ""), Not(HasSubstr("polyline")));
}

TEST(SvgChart, StartsTheAxisWhereAsked) {
  auto panel = panel_of({{10, 0}, {15, 1}, {20, 0.5}}, "s");
  panel.x_min = 10;
  EXPECT_THAT(svg_chart({panel}, ""), HasSubstr("points=\"62,332 252,64 442,198\""));
}

// A cross of two strokes of 9 pixels around the point, which lies at (252, 64).
TEST(SvgChart, DrawsMarksAsCrosses) {
  auto panel = panel_of({{10, 1}, {20, std::numeric_limits<double>::quiet_NaN()}}, "s");
  panel.series.front().marks = true;
  panel.series.push_back({"line", {{0, 0}, {20, 0}}, "#abcdef", false, false});
  const std::string svg = svg_chart({panel}, "");
  EXPECT_THAT(svg, HasSubstr("x1=\"247.5\" y1=\"59.5\" x2=\"256.5\" y2=\"68.5\""));
  EXPECT_THAT(svg, HasSubstr("x1=\"247.5\" y1=\"68.5\" x2=\"256.5\" y2=\"59.5\""));
}

// Panels are 460 wide, four in a row; the second row is one panel and a gap lower: 320 + 40.
TEST(SvgChart, BreaksRowsOfPanels) {
  const auto panel = panel_of({{0, 0}, {10, 1}, {20, 0.5}}, "s");
  const std::string svg = svg_chart({panel, panel, panel, panel, panel}, "");
  EXPECT_THAT(svg, HasSubstr("width=\"1840\""));
  EXPECT_THAT(svg, HasSubstr("points=\"1442,332 1632,64 1822,198\""));
  EXPECT_THAT(svg, HasSubstr("points=\"62,692 252,424 442,558\""));
}

// Four panels, two in a row. Every worker has seen 3 x 4 samples a step; the worst worker's curve
// by time ends at the frame's right edge at accuracy 0.5, that of the loss has its own scale.
TEST(TrainingChart, ShowsAccuracyAndLossByTimeAndBySamples) {
  TrainResult result;
  result.options.workers = 3;
  result.options.batch = 4;
  result.steps = 10;
  result.rank_steps = {10, 10, 10};
  result.data = "a<b";
  result.policy = "select=all";
  const CurvePoint start{0, 0, 0, 0.0, 0.1, 4.0, 0.1, 0.1};
  result.workers = {start, {1, 10, 10, 8.0, 1.0, 1.0, 0.5, 0.75}};
  result.by_time = {start, {1, 10, 10, 2.0, 1.0, 1.0, 0.5, 0.75}};
  const std::string svg = training_chart(result);
  for (const char* text :
       {"width=\"920\"", ">accuracy by time<", ">accuracy by samples<", ">loss by time<",
        ">loss by samples<", ">seconds of training<", ">samples seen by all workers together<",
        "mlp on a&lt;b, skew split, 3 workers<", "worst worker on its own", ">120<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, Not(HasSubstr(">8<"))) << "the time of the slowest at equal steps";
  // y of 0.5 lies in the middle of 64..332; of the loss, 1 of 4 a quarter above 424..692's bottom.
  EXPECT_THAT(svg, HasSubstr("442,198"));
  EXPECT_THAT(svg, HasSubstr("points=\"62,424 442,625"));
  EXPECT_THAT(svg, Not(HasSubstr("points=\"\"")));
}

TEST(SvgChart, NamesEachLabelOnce) {
  const auto panel = panel_of({{0, 0}, {1, 1}}, "only-once");
  const std::string svg = svg_chart({panel, panel}, "");
  EXPECT_EQ(svg.find("only-once"), svg.rfind("only-once"));
}

}  // namespace
}  // namespace selmcast
