#include "cli/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace selmcast {
namespace {

using Json = nlohmann::json;

Json answer_of(const std::string& text) {
  const auto answer = plan_json(text);
  EXPECT_TRUE(answer.has_value()) << text << ": " << (answer ? "" : answer.error().message);
  return answer ? Json::parse(*answer) : Json();
}

TEST(Plan, WritesTheDocumentedFields) {
  // Seats 3*1 among 400, 300, 200 and their halves: the third quotient is 200 (twice).
  const auto answer =
      answer_of(R"({"p": 1, "tx_kbps": [900, 900, 900], "rx_kbps": [400, 300, 200]})");
  EXPECT_EQ(answer["schema"], 1);
  EXPECT_EQ(answer["algorithm"], "exact");
  EXPECT_EQ(answer["layout"], "edges");
  EXPECT_EQ(answer["rate_kbps"], Json::parse(R"({"num": 200, "den": 1, "value": 200.0})"));
  EXPECT_EQ(answer["total_receivers"], 4);
  EXPECT_EQ(answer["out_degree_min"], 1);
  EXPECT_EQ(answer["receivers"].size(), 3U);
  EXPECT_EQ(answer["bottleneck"]["kind"], "receiver");
  EXPECT_EQ(answer["bottleneck"]["rank"], 0);
  EXPECT_EQ(answer["bottleneck"]["slots"], 2);
  EXPECT_EQ(answer["k_bound"], 2);
  EXPECT_EQ(answer["senders_below_p"], 0);
  EXPECT_GE(answer["elapsed_us"].get<double>(), 0.0);
}

TEST(Plan, RowsSayWhatTheScheduleCosts) {
  // Five rows of two, ten slots at 100. k = 4 asks for ceil(5/4) = 2 slots of the receiver with
  // 100.
  const auto answer = answer_of(
      R"({"p": 2, "tx_kbps": [900,900,900,900,900], "rx_kbps": [300,200,200,200,100],
          "layout": "rows", "k": 4})");
  const auto& schedule = answer["schedule"];
  EXPECT_EQ(answer["rate_kbps"]["num"], 50);
  EXPECT_EQ(schedule["rate_without_k_kbps"]["num"], 100);
  EXPECT_LE(schedule["k"], 4);
  EXPECT_LE(schedule["pair_age"]["worst"], schedule["k"]);
  EXPECT_EQ(schedule["pairs_never_served"], 0);
  // Slots 4 (of at most n - 1), 4, 4, 4 and 2.
  EXPECT_EQ(schedule["group_entries_max"], 4);
  EXPECT_EQ(schedule["joins_per_epoch"], 18);
}

TEST(Plan, FractionsAreInLowestTerms) {
  const auto answer =
      answer_of(R"({"p": 3, "tx_kbps": [9000,9000,9000,9000], "rx_kbps": [2500,5000,5000,5000]})");
  EXPECT_EQ(answer["rate_kbps"]["num"], 2500);
  EXPECT_EQ(answer["rate_kbps"]["den"], 3);
  EXPECT_NEAR(answer["rate_kbps"]["value"].get<double>(), 833.333, 1e-3);
}

TEST(Plan, LoadsAreSubtractedAndNeverGoBelowZero) {
  const auto answer = answer_of(
      R"({"p": 1, "tx_kbps": [9,9,9], "rx_kbps": [8,8,8], "rx_load_kbps": [0, 2, 99],
          "tx_load_kbps": [0, 0, 8]})");
  EXPECT_EQ(answer["rate_kbps"]["num"], 1);
  for (const auto& receivers : answer["receivers"]) {
    for (const auto& receiver : receivers) EXPECT_NE(receiver, 2);
  }
  EXPECT_EQ(answer["bottleneck"]["kind"], "sender");
  EXPECT_EQ(answer["bottleneck"]["rank"], 2);
}

TEST(Plan, AlgorithmsDiffer) {
  const std::string links = R"("p": 1, "tx_kbps": [9,9,9], "rx_kbps": [2,2,2])";
  EXPECT_EQ(answer_of("{" + links + R"(, "algorithm": "exact"})")["rate_kbps"]["num"], 2);
  const auto published = answer_of("{" + links + R"(, "algorithm": "published"})");
  EXPECT_EQ(published["rate_kbps"]["num"], 1);
  EXPECT_EQ(published["algorithm"], "published");
  const auto random = answer_of("{" + links + R"(, "algorithm": "random", "seed": 5})");
  EXPECT_EQ(random["total_receivers"], 3);
  auto again = answer_of("{" + links + R"(, "algorithm": "random", "seed": 5})");
  EXPECT_EQ(again["receivers"], random["receivers"]);
}

// Worked by hand: 0 may only reach 2 and 1 only 0, so 2 reaches 1; each has one slot at rate 10,
// and at that rate nothing is left.
TEST(Plan, ForbiddenPairsAreLeftOut) {
  const std::string problem =
      R"({"p": 1, "tx_kbps": [99,99,99], "rx_kbps": [10,10,10], "forbidden": [[0,1],[1,2]])";
  const auto receivers = Json::parse("[[2],[0],[1]]");
  for (const auto* algorithm : {"exact", "published"}) {
    const auto answer = answer_of(problem + R"(, "algorithm": ")" + algorithm + "\"}");
    EXPECT_EQ(answer["rate_kbps"]["num"], 10) << algorithm;
    EXPECT_EQ(answer["receivers"], receivers) << algorithm;
  }
  for (int seed = 0; seed < 20; ++seed) {
    const auto answer =
        answer_of(problem + R"(, "algorithm": "random", "seed": )" + std::to_string(seed) + "}");
    EXPECT_EQ(answer["receivers"][0], receivers[0]);
    EXPECT_EQ(answer["receivers"][1], receivers[1]);
  }
}

TEST(Plan, ForcedPairsAgesAndPerSenderP) {
  const auto answer = answer_of(
      R"({"p": [1, 2, 1, 1], "tx_kbps": [99,99,99,99], "rx_kbps": [10,10,10,10],
          "forced": [[0,3],[2,1]], "age": [[0,0,0,0],[0,0,7,7],[0,0,0,0],[0,0,0,0]],
          "fanout": "unicast", "k": 0})");
  EXPECT_EQ(answer["rate_kbps"]["num"], 5);  // Five deliveries to four equal receivers.
  const auto& receivers = answer["receivers"];
  EXPECT_NE(std::find(receivers[0].begin(), receivers[0].end(), 3), receivers[0].end());
  EXPECT_NE(std::find(receivers[2].begin(), receivers[2].end(), 1), receivers[2].end());
  EXPECT_EQ(answer["total_receivers"], 8);
}

TEST(Plan, RowsShowOneRoundOfTheRing) {
  const std::string links =
      R"("p": 1, "tx_kbps": [9,9,9,9], "rx_kbps": [5,5,5,5], "layout": "rows")";
  std::set<std::pair<std::size_t, int>> met;
  for (int round = 0; round < 3; ++round) {
    const auto answer = answer_of("{" + links + ", \"round\": " + std::to_string(round) + "}");
    EXPECT_EQ(answer["layout"], "rows");
    EXPECT_EQ(answer["rate_kbps"]["num"], 5);
    EXPECT_EQ(answer["k_bound"], 3);
    EXPECT_EQ(answer["total_receivers"], 4);
    for (std::size_t i = 0; i < 4; ++i) {
      for (const int j : answer["receivers"][i]) met.insert({i, j});
    }
  }
  EXPECT_EQ(met.size(), 12U);
  EXPECT_EQ(answer_of("{" + links + ", \"k\": 1}")["k_bound"], 1);
}

TEST(Plan, BadInputNamesFieldAndValue) {
  const std::string ok = R"("tx_kbps": [9,9,9], "rx_kbps": [5,5,5])";
  const struct {
    std::string text;
    const char* expected;
  } cases[] = {
      {"", "not a JSON document"},
      {"{", "not a JSON document"},
      {"{} {}", "not a JSON document"},
      {"[1]", "the document is [1]; allowed: an object"},
      {"3", "the document is 3"},
      {R"({"p": NaN, )" + ok + "}", "not a JSON document"},
      {R"({"p": 1e999, )" + ok + "}", "not a JSON document"},
      {"{\"p\": \"\xff\"}", "not a JSON document"},
      {R"({"p": 1, "tx_kbps": [9,9,9]})", "field rx_kbps is missing"},
      {R"({"p": 1, "rx_kbps": [9,9,9]})", "field tx_kbps is missing"},
      {"{" + ok + "}", "field p is missing"},
      {R"({"p": 1.5, )" + ok + "}", "p is 1.5; allowed: an integer"},
      {R"({"p": -1, )" + ok + "}", "p is -1"},
      {R"({"p": "1", )" + ok + "}", "p is \"1\""},
      {R"({"p": null, )" + ok + "}", "p is null"},
      {R"({"p": [1,1], )" + ok + "}", "p has 2 entries; allowed: 3"},
      {R"({"p": [1,1,true], )" + ok + "}", "p[2] is true"},
      {R"({"p": 0, )" + ok + "}", "p of sender 0 is 0"},
      {R"({"p": 3, )" + ok + "}", "p of sender 0 is 3; with 3 ranks it must be 1 to 2"},
      {R"({"p": 4294967296, )" + ok + "}", "p is 4294967296"},
      {R"({"p": 1, "tx_kbps": [9,-9,9], "rx_kbps": [5,5,5]})", "tx_kbps[1] is -9"},
      {R"({"p": 1, "tx_kbps": [9,9,9], "rx_kbps": [5,5,9007199254740992]})",
       "rx_kbps[2] is 9007199254740992; allowed: an integer from 0 to 9007199254740991"},
      {R"({"p": 1, "tx_kbps": [9,9,9], "rx_kbps": [5,5,99999999999999999999]})", "rx_kbps[2] is"},
      {R"({"p": 1, "tx_kbps": [9,9,9], "rx_kbps": [5,5,0.5]})", "rx_kbps[2] is 0.5"},
      {R"({"p": 1, "tx_kbps": [9,9,9], "rx_kbps": [5,5]})", "rx_kbps has 2 entries"},
      {R"({"p": 1, "tx_kbps": {}, "rx_kbps": [5,5]})", "tx_kbps is {}"},
      {R"({"p": 1, "tx_kbps": [9], "rx_kbps": [5]})", "tx_kbps has 1 entries; allowed: 2 to"},
      {R"({"p": 1, "tx_kbps": [], "rx_kbps": []})", "tx_kbps has 0 entries"},
      {R"({"p": 1, "tx_load_kbps": [1], )" + ok + "}", "tx_load_kbps has 1 entries"},
      {R"({"p": 1, "age": [[0,0,0]], )" + ok + "}", "age is [[0,0,0]]; allowed: 3 arrays"},
      {R"({"p": 1, "age": [[0,0,0],[0,0],[0,0,0]], )" + ok + "}", "age[1] has 2 entries"},
      {R"({"p": 1, "age": [[0,0,0],[0,0,-1],[0,0,0]], )" + ok + "}", "age[1][2] is -1"},
      {R"({"p": 1, "forced": [[0]], )" + ok + "}", "forced[0] is [0]; allowed: a pair"},
      {R"({"p": 1, "forced": [[0,1,2]], )" + ok + "}", "forced[0] is [0,1,2]"},
      {R"({"p": 1, "forced": [[0,1],[0,3]], )" + ok + "}", "forced[1] is [0,3]; ranks are 0 to 2"},
      {R"({"p": 1, "forced": [[1,1]], )" + ok + "}", "forced[0] is [1,1]"},
      {R"({"p": 1, "forced": 3, )" + ok + "}", "forced is 3"},
      {R"({"p": 1, "forbidden": [[0]], )" + ok + "}", "forbidden[0] is [0]; allowed: a pair"},
      {R"({"p": 1, "forbidden": [[2,0],[0,3]], )" + ok + "}",
       "forbidden[1] is [0,3]; ranks are 0 to 2"},
      {R"({"p": 1, "forbidden": [[1,1]], )" + ok + "}", "forbidden[0] is [1,1]"},
      {R"({"p": 1, "forbidden": "none", )" + ok + "}", "forbidden is \"none\""},
      {R"({"p": 1, "forced": [[0,1]], "forbidden": [[1,0],[0,1]], )" + ok + "}",
       "forbidden[1] is [0,1]; that pair is forced as well"},
      {R"({"p": 2, "forbidden": [[0,1]], )" + ok + "}",
       "sender 0 needs p = 2 receivers, but only 2 other ranks have available receive rate and 1 "
       "of "
       "them is forbidden"},
      {R"({"p": 1, "layout": "rows", "forbidden": [[0,1]], )" + ok + "}",
       "drop age, forced and forbidden"},
      {R"({"p": 1, "fanout": "broadcast", )" + ok + "}",
       "fanout is \"broadcast\"; allowed: multicast, unicast"},
      {R"({"p": 1, "algorithm": 1, )" + ok + "}",
       "algorithm is 1; allowed: exact, published, random"},
      {R"({"p": 1, "layout": "ring", )" + ok + "}", "layout is \"ring\"; allowed: edges, rows"},
      {R"({"p": 1, "k": -2, )" + ok + "}", "k is -2"},
      {R"({"p": 1, "seed": 0.1, )" + ok + "}", "seed is 0.1"},
      {R"({"p": 1, "speed": 3, )" + ok + "}", "unknown field \"speed\" is 3; allowed: p, fanout"},
      {R"({"p": 1, "p": 2, )" + ok + "}", "field \"p\" is given twice"},
      {R"({"p": 1, "round": 2, )" + ok + "}", "round needs layout \"rows\""},
      {R"({"p": 1, "layout": "sender", )" + ok + "}", "allowed: edges, rows"},
      {R"({"p": 1, "budget": 1, )" + ok + "}", "unknown field \"budget\""},
      {R"({"p": 1, "k": 2, "algorithm": "published", )" + ok + "}", "k needs algorithm \"exact\""},
      {R"({"p": 1, "layout": "rows", "algorithm": "random", )" + ok + "}", "needs algorithm"},
      {R"({"p": 1, "layout": "rows", "forced": [[0,1]], )" + ok + "}",
       "drop age, forced and forbidden"},
      {R"({"p": [1,2,1], "layout": "rows", )" + ok + "}", "needs the same p for all"},
      {R"({"p": 1, "tx_kbps": [9,0,9], "rx_kbps": [5,5,5]})", "sender 1 has no available transmit"},
      {R"({"p": 2, "tx_kbps": [9,9,9], "rx_kbps": [5,5,0]})", "sender 0 needs p = 2 receivers"},
      {R"({"p": 1, "forced": [[0,2]], "tx_kbps": [9,9,9], "rx_kbps": [5,5,0]})",
       "forced pair [0,2], but receiver 2 has no"},
  };
  for (const auto& entry : cases) {
    const auto answer = plan_json(entry.text);
    ASSERT_FALSE(answer.has_value()) << entry.text;
    EXPECT_EQ(answer.error().kind, ErrorKind::bad_input);
    EXPECT_NE(answer.error().message.find(entry.expected), std::string::npos)
        << answer.error().message;
    EXPECT_EQ(answer.error().message.rfind("plan: ", 0), 0U) << answer.error().message;
  }
}

TEST(Plan, DeepNestingAndLongValuesStayOneShortLine) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const auto nested = plan_json("{\"p\": " + deep + ", \"tx_kbps\": [9,9], \"rx_kbps\": [9,9]}");
  ASSERT_FALSE(nested.has_value());
  const auto text = plan_json("{\"p\": \"" + std::string(100'000, 'x') +
                              "\", \"tx_kbps\": [9,9], \"rx_kbps\": [9,9]}");
  ASSERT_FALSE(text.has_value());
  EXPECT_LT(text.error().message.size(), 200U);
}

}  // namespace
}  // namespace selmcast
