#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/sim_output.h"
#include "cli/sim_own.h"

namespace selmcast {
namespace {

Experiment sample_experiment() {
  return {"bsp-x", "a < b", "n", "papers", 2, {}};
}

StudyTable sample_table() {
  StudyTable table{{"lambda=0.25", "lambda=0.5"}, {}};
  table.points.push_back({"L3", "exact", "time", 100, {{1.03, 1, 1.1}, {2.04, 2, 2.1}}, {}});
  table.points.back().published = PublishedNumber{1.00, 1.02};
  table.points.push_back({"L3", "exact", "time", 200, {{1.5, 1, 2}, {3, 3, 3}}, {}});
  return table;
}

TEST(SimOutput, TextPutsThePublishedNumberBesideOurs) {
  const auto text = study_text(sample_experiment(), sample_table());
  EXPECT_NE(text.find("bsp-x: a < b\n"), std::string::npos);
  // 1.03 / 1.02 and 2.04 / 1.02.
  EXPECT_NE(text.find("1-1.02       1.0300   +1.0 %       2.0400 +100.0 %\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("-       1.5000"), std::string::npos) << text;
}

TEST(SimOutput, CsvHasALinePerPointAndColumn) {
  const auto csv = study_csv(sample_experiment(), sample_table());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_NE(csv.find("bsp-x,\"L3\",\"exact\",\"time\",100,\"lambda=0.25\",1.03,1,1.1,1,1.02\n"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find(",200,\"lambda=0.5\",3,3,3,,\n"), std::string::npos) << csv;
}

TEST(SimOutput, SvgDrawsBothColumnsAndCrosses) {
  const auto svg = study_svg(sample_experiment(), sample_table());
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("exact, lambda=0.5"), std::string::npos);
  EXPECT_NE(svg.find("exact, papers"), std::string::npos);
  std::size_t lines = 0;
  for (auto at = svg.find("<polyline"); at != svg.npos; at = svg.find("<polyline", at + 1)) ++lines;
  EXPECT_EQ(lines, 2U);
}

TEST(SimOutput, JsonCarriesBoth) {
  const auto json = study_json(sample_experiment(), sample_table(), 7, 2);
  EXPECT_EQ(json["experiment"], "bsp-x");
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["points"][0]["published"][1], 1.02);
  EXPECT_NEAR(json["points"][0]["ours"][1]["off_percent"].get<double>(), 100.0, 1e-9);
  EXPECT_FALSE(json["points"][1].contains("published"));
}

TEST(SimExperiments, NamesAreUniqueAndDescribed) {
  const auto all = experiments();
  EXPECT_GE(all.size(), 14U);
  for (const auto& one : all) {
    EXPECT_FALSE(one.summary.empty());
    EXPECT_EQ(std::count_if(all.begin(), all.end(),
                            [&](const Experiment& other) { return other.name == one.name; }),
              1);
  }
}

class OwnLinks : public testing::Test {
 protected:
  OwnLinks() {
    options.transport = "sim";
    options.params_bytes = 1'000'000;  // 8e6 bits.
    options.rounds = 4;
    options.links_file = testing::TempDir() + "selmcast_sim_links_" +
                         testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
  }
  ~OwnLinks() override { std::filesystem::remove(options.links_file); }
  void write_links(const std::string& tx, const std::string& rx) {
    std::ofstream(options.links_file)
        << R"({"tx_kbps": [)" << tx << R"(], "rx_kbps": [)" << rx << "]}";
  }
  RunOptions options;
};

// Equal links of 8 Gbit/s, p = 2 of 5: every receiver hears two at 4 Gbit/s, 2 ms for 8e6 bits;
// every pair is served once in 2 rounds.
TEST_F(OwnLinks, FlowOfEqualLinksIsTheClosedForm) {
  write_links("8000000,8000000,8000000,8000000,8000000", "8000000,8000000,8000000,8000000,8000000");
  options.policy_text = "select=selmcast:2";
  auto got = simulate_flows(options);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ((*got)["rate_kbps"]["min"], 4'000'000.0);
  EXPECT_EQ((*got)["round_ms"]["mean"], 2.0);
  EXPECT_EQ((*got)["receivers_per_sender"], 2.0);
  EXPECT_EQ((*got)["k"], 2);
  EXPECT_EQ((*got)["pair_age"]["worst"], 2);
  EXPECT_EQ((*got)["senders_below_p"], 0);
  options.policy_text = "select=all";
  got = simulate_flows(options);
  EXPECT_EQ((*got)["rate_kbps"]["min"], 2'000'000.0);
  EXPECT_EQ((*got)["round_ms"]["max"], 4.0);
  EXPECT_EQ((*got)["receivers_per_round"], 20.0);
  EXPECT_EQ((*got)["k"], 1);
  options.policy_text = "select=random:1";
  got = simulate_flows(options);
  EXPECT_EQ((*got)["receivers_per_sender"], 1.0);
  EXPECT_EQ((*got)["k"], 0);
}

TEST_F(OwnLinks, EngineAddsTheFlowLevel) {
  write_links("800000,800000,800000", "800000,800000,800000");
  options.policy_text = "select=selmcast:1";
  options.params_bytes = 100'000;
  const auto got = simulate_engine(options);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ((*got)["level"], "engine");
  EXPECT_EQ((*got)["verified"], true);
  EXPECT_EQ((*got)["flow"]["round_ms"]["mean"], 1.0);  // 8e5 bits at 800 Mbit/s.
  // Frames have headers and the engine keeps 5 % back, so it cannot be faster.
  EXPECT_GT((*got)["summary"]["round_ms"]["median"].get<double>(), 1.0);
  EXPECT_NE(own_text(*got).find("engine"), std::string::npos);
}

TEST_F(OwnLinks, RefusesWhatItCannotDo) {
  const auto error_of = [this] {
    const auto got = simulate_flows(options);
    return got ? std::string() : got.error().message;
  };
  EXPECT_NE(error_of().find(options.links_file), std::string::npos);  // No such file.
  write_links("8,8,8", "8,8,8");
  options.policy_text = "select=selmcast:3";
  EXPECT_NE(error_of().find("p = 3"), std::string::npos);
  options.policy_text = "select=selmcast:2";
  write_links("8,8,8", "8,0,0");
  EXPECT_NE(error_of().find("no solution"), std::string::npos) << error_of();
  options.policy_text = "losp";
  EXPECT_NE(error_of().find("mix=compensate"), std::string::npos) << error_of();
  options.policy_text = "select=selmcast:2";
  write_links("8", "8");
  EXPECT_NE(error_of().find("allowed here: 2 to 10000"), std::string::npos);
  options.links_file.clear();
  EXPECT_NE(error_of().find("--links"), std::string::npos);
}

}  // namespace
}  // namespace selmcast
