#include "probes/links_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace selmcast {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::string& text, std::uint32_t world = 2) {
  const auto links = parse_links(text, "links.json", world);
  if (links) return "accepted";
  EXPECT_EQ(links.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(links.error().message, AllOf(HasSubstr("links.json: "), Not(HasSubstr("\n"))));
  EXPECT_LT(links.error().message.size(), 200U);
  return links.error().message;
}

TEST(LinksJson, ReadsRates) {
  const auto links =
      parse_links(R"({"tx_kbps": [100, 0], "rx_kbps": [7, 1000000000000]})", "links.json", 2);
  ASSERT_TRUE(links) << links.error().message;
  ASSERT_EQ(links->size(), 2U);
  EXPECT_EQ((*links)[0].transmit.available_kbps, 100U);
  EXPECT_EQ((*links)[0].receive.available_kbps, 7U);
  EXPECT_EQ((*links)[1].transmit.available_kbps, 0U);
  EXPECT_EQ((*links)[1].receive.available_kbps, 1'000'000'000'000U);
  EXPECT_EQ((*links)[1].rank, 1U);
}

TEST(LinksJson, AnyWorldMeansEqualLengths) {
  EXPECT_TRUE(
      parse_links(R"({"schema":1,"tx_kbps":[1,2,3],"rx_kbps":[1,2,3],"detail":[]})", "l", 0));
  EXPECT_THAT(error_of(R"({"tx_kbps":[1,2,3],"rx_kbps":[1,2]})", 0),
              HasSubstr("rx_kbps has 2 entries, it must have one per rank: 3"));
}

TEST(LinksJson, RefusesBadRates) {
  const auto with = [](const std::string& rate) {
    return error_of(R"({"tx_kbps":[1,2],"rx_kbps":[1,)" + rate + "]}");
  };
  EXPECT_THAT(with("-5"), HasSubstr("rx_kbps[1] is -5"));
  EXPECT_THAT(with("1.5"), HasSubstr("rx_kbps[1] is 1.5"));
  EXPECT_THAT(with("1e3"), HasSubstr("rx_kbps[1] is 1000.0"));
  EXPECT_THAT(with("1000000000001"), HasSubstr("rx_kbps[1] is 1000000000001"));
  EXPECT_THAT(with("99999999999999999999999"), HasSubstr("rx_kbps[1] is 9.99"));
  EXPECT_THAT(with("\"7\""), HasSubstr("rx_kbps[1] is \"7\""));
  EXPECT_THAT(with("null"), HasSubstr("rx_kbps[1] is null"));
  EXPECT_THAT(with("true"), HasSubstr("rx_kbps[1] is true"));
  EXPECT_THAT(with("[1]"), HasSubstr("rx_kbps[1] is [1]"));
  EXPECT_THAT(with("NaN"), HasSubstr("not valid JSON (NaN"));
  EXPECT_THAT(with("1e999"), Not(HasSubstr("accepted")));
  EXPECT_THAT(with("\"" + std::string(1000, 'x') + "\\n\""), HasSubstr("..."));
}

TEST(LinksJson, RefusesOtherShapes) {
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("\xff\xfe"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[1,2]"), HasSubstr("must be an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("field tx_kbps is missing"));
  EXPECT_THAT(error_of(R"({"tx_kbps":[1,2]})"), HasSubstr("field rx_kbps is missing"));
  EXPECT_THAT(error_of(R"({"tx_kbps":5,"rx_kbps":[1,2]})"), HasSubstr("tx_kbps is 5"));
  EXPECT_THAT(error_of(R"({"tx_kbps":[],"rx_kbps":[]})"), HasSubstr("tx_kbps has 0 entries"));
  EXPECT_THAT(error_of(R"({"tx_kbps":[1],"rx_kbps":[1,2]})"),
              HasSubstr("tx_kbps has 1 entries, it must have one per rank: 2"));
  EXPECT_THAT(error_of(R"({"schema":2,"tx_kbps":[1,2],"rx_kbps":[1,2]})"),
              HasSubstr("schema is 2"));
  EXPECT_THAT(error_of(R"({"tx_kpbs":[1,2],"rx_kbps":[1,2]})"),
              HasSubstr("unknown field \"tx_kpbs\""));
  EXPECT_THAT(error_of(R"({"tx_kbps":[1,2],"rx_kbps":[1,2],"tx_kbps":[3,4]})"),
              HasSubstr("\"tx_kbps\" appears twice"));
  EXPECT_THAT(error_of(std::string(100'000, '[')), Not(HasSubstr("accepted")));
}

class LinksFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "links-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_;
};

TEST_F(LinksFile, WrittenLinksReadBack) {
  std::vector<LinkEstimate> links(2);
  links[0].transmit = {.available_kbps = 100, .low_kbps = 90, .high_kbps = 110, .loss = 0.25};
  links[0].receive.available_kbps = 200;
  links[0].latency = std::chrono::microseconds(50);
  links[1].rank = 1;
  links[1].transmit.available_kbps = 300;
  links[1].receive.available_kbps = 400;
  const std::string text = links_json(links);
  const std::string path = directory_ / "links.json";
  std::ofstream(path) << text;
  const auto read = read_links(path, 2);
  ASSERT_TRUE(read) << read.error().message;
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ((*read)[r].transmit.available_kbps, links[r].transmit.available_kbps);
    EXPECT_EQ((*read)[r].receive.available_kbps, links[r].receive.available_kbps);
  }
  EXPECT_THAT(text, AllOf(HasSubstr("\"schema\": 1"), HasSubstr("\"tx_low_kbps\": 90"),
                          HasSubstr("\"tx_loss\": 0.25"), HasSubstr("\"latency_us\": 50.0")));
}

TEST_F(LinksFile, AMissingFileIsNamed) {
  const std::string path = directory_ / "none.json";
  const auto links = read_links(path, 2);
  ASSERT_FALSE(links);
  EXPECT_THAT(links.error().message, AllOf(HasSubstr(path), HasSubstr("No such file")));
}

TEST_F(LinksFile, ADirectoryIsRefused) {
  EXPECT_FALSE(read_links(directory_, 2));
}

}  // namespace
}  // namespace selmcast
