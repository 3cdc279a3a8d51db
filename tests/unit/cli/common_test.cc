#include "cli/common.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "tests/unit/cli/temporary_folder.h"

namespace selmcast {
namespace {

using ::testing::HasSubstr;

/// What `work` writes to a stream that is no terminal.
template <class Work>
std::string written(Work work) {
  std::FILE* file = std::tmpfile();
  work(file);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    text.push_back(static_cast<char>(c));
  }
  std::fclose(file);
  return text;
}

TEST(ExitStatus, FollowsTheKindOfError) {
  EXPECT_EQ(exit_status_of(ErrorKind::bad_input), 2);
  EXPECT_EQ(exit_status_of(ErrorKind::unavailable), 3);
  EXPECT_EQ(exit_status_of(ErrorKind::failed), 1);
}

TEST(OneLine, KeepsTextAndFlattensControlCharacters) {
  EXPECT_EQ(one_line("plain text: ü"), "plain text: ü");
  EXPECT_EQ(one_line("a\n\n\tb\r\n"), "a b");
  EXPECT_EQ(one_line("a\x1b[31mred"), "a [31mred");
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("\n"), "");
}

TEST(PrintError, IsOneLineAndReturnsTheExitStatus) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(print_error(unavailable("no device\nrxe0")), 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "selmcast: no device rxe0\n");
}

TEST(JsonOutput, WithoutAPathWritesNothing) {
  auto output = JsonOutput::open("");
  ASSERT_TRUE(output);
  EXPECT_FALSE(output->wanted());
  EXPECT_EQ(output->human(), stdout);
  EXPECT_TRUE(output->write({{"a", 1}}));
}

TEST(JsonOutput, AddsTheSchemaFirst) {
  const TemporaryFolder folder;
  auto output = JsonOutput::open(folder.file("out.json"));
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_TRUE(output->wanted());
  EXPECT_EQ(output->human(), stdout);
  ASSERT_TRUE(output->write({{"a", 7}}));
  EXPECT_FALSE(output->wanted());
  EXPECT_EQ(text_of(folder.file("out.json")), "{\n \"schema\": 1,\n \"a\": 7\n}\n");
}

TEST(JsonOutput, ReplacesALongerFileOnlyWhenItWrites) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.json");
  const std::string old(1000, 'x');
  std::ofstream(path) << old;
  auto output = JsonOutput::open(path);
  ASSERT_TRUE(output);
  EXPECT_EQ(text_of(path), old);
  ASSERT_TRUE(output->write(nlohmann::ordered_json::object()));
  EXPECT_EQ(text_of(path), "{\n \"schema\": 1\n}\n");
}

TEST(JsonOutput, SurvivesBytesThatAreNoText) {
  const TemporaryFolder folder;
  auto output = JsonOutput::open(folder.file("out.json"));
  ASSERT_TRUE(output);
  ASSERT_TRUE(output->write(
      {{"name", "bad \xff byte"}, {"ratio", std::numeric_limits<double>::quiet_NaN()}}));
  const auto back = nlohmann::json::parse(text_of(folder.file("out.json")));
  EXPECT_EQ(back["name"], "bad \xef\xbf\xbd byte");
  EXPECT_TRUE(back["ratio"].is_null());
}

TEST(JsonOutput, RefusesAPathBeforeAnythingRuns) {
  const auto output = JsonOutput::open("/no/such/folder/out.json");
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(output.error().message, HasSubstr("--json /no/such/folder/out.json"));
  EXPECT_THAT(output.error().message, HasSubstr("No such file"));
}

TEST(JsonOutput, ReportsAFullDevice) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no writable /dev/full";
  auto output = JsonOutput::open("/dev/full");
  ASSERT_TRUE(output);
  const auto result = output->write({{"a", 1}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::failed);
  EXPECT_THAT(result.error().message, HasSubstr("No space left"));
}

TEST(JsonOutput, StandardOutputBelongsToTheDocument) {
  auto output = JsonOutput::open("-");
  ASSERT_TRUE(output);
  EXPECT_EQ(output->human(), nullptr);
  testing::internal::CaptureStdout();
  EXPECT_TRUE(output->write({{"a", 1}}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "{\n \"schema\": 1,\n \"a\": 1\n}\n");
}

TEST(Progress, SmallWorkShowsEveryStepOnce) {
  const std::string text = written([](std::FILE* file) {
    Progress progress(file, "rounds", 3);
    for (std::uint64_t done : {1U, 2U, 2U, 3U, 3U}) progress.update(done);
  });
  EXPECT_EQ(text, "rounds 1/3\nrounds 2/3\nrounds 3/3\n");
}

TEST(Progress, LongWorkShowsAboutTenLinesAndTheEnd) {
  const std::string text = written([](std::FILE* file) {
    Progress progress(file, "rounds", 10'000);
    for (std::uint64_t done = 1; done <= 10'000; ++done) progress.update(done, "fine");
  });
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 10);
  EXPECT_LE(lines, 12);
  EXPECT_THAT(text, testing::EndsWith("rounds 10000/10000  fine\n"));
}

TEST(Progress, WithoutAStreamIsSilent) {
  Progress progress(nullptr, "rounds", 2);
  progress.update(1);
  progress.update(7);
  progress.finish();
}

TEST(Progress, NeverShowsMoreThanTheTotal) {
  const std::string text = written([](std::FILE* file) {
    Progress progress(file, "rounds", 2);
    progress.update(9);
  });
  EXPECT_EQ(text, "rounds 2/2\n");
}

}  // namespace
}  // namespace selmcast
