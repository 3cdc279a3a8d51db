#include "cli/job_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "tests/unit/cli/temporary_folder.h"

namespace selmcast {
namespace {

using ::testing::HasSubstr;

class JobFolders : public testing::Test {
 protected:
  void SetUp() override { ::setenv("TMPDIR", folder_.file("").c_str(), 1); }
  void TearDown() override { ::unsetenv("TMPDIR"); }

  static JobFolder make() {
    auto made = JobFolder::make();
    EXPECT_TRUE(made) << made.error().message;
    return std::move(made).value();
  }
  /// Makes a folder in a process that is killed, with a socket's stand-in in it; returns its path.
  std::string abandoned() {
    const auto before = entries();
    const pid_t pid = ::fork();
    if (pid == 0) {
      const auto made = JobFolder::make();
      if (made) std::ofstream(made->socket()) << "x";
      ::raise(SIGKILL);
    }
    ::waitpid(pid, nullptr, 0);
    for (const auto& path : entries()) {
      if (before.count(path) == 0) return path;
    }
    ADD_FAILURE() << "the killed process left nothing";
    return "";
  }
  std::set<std::string> entries() const {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file(""))) {
      out.insert(entry.path());
    }
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(JobFolders, AreGoneAtTheEnd) {
  {
    const JobFolder made = make();
    std::ofstream(made.socket()) << "x";
    EXPECT_EQ(entries().size(), 1U);
  }
  EXPECT_TRUE(entries().empty());
}

TEST_F(JobFolders, OfTheDeadAreRemovedThoseOfTheLivingStay) {
  const JobFolder living = make();
  const std::string dead = abandoned();
  ASSERT_EQ(entries().size(), 2U);
  const JobFolder next = make();
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(living.socket()).parent_path()));
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(JobFolders, OnlyWhatAJobMadeIsRemoved) {
  const std::string dead = abandoned();
  std::ofstream(dead + "/notes") << "mine";
  std::filesystem::create_directory(folder_.file("selmcast-job-mine"));
  std::filesystem::create_directory(folder_.file("target"));
  std::ofstream(folder_.file("target/lock")) << "";
  std::filesystem::create_directory_symlink("target", folder_.file("selmcast-job-link"));
  const JobFolder next = make();
  EXPECT_TRUE(std::filesystem::exists(dead + "/notes"));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("selmcast-job-mine")));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("target/lock")));
}

TEST_F(JobFolders, ABadTmpdirIsNamed) {
  ::setenv("TMPDIR", "/no/such/folder", 1);
  const auto made = JobFolder::make();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::unavailable);
  EXPECT_THAT(made.error().message, HasSubstr("/no/such/folder"));
  EXPECT_THAT(made.error().message, HasSubstr("TMPDIR"));
}

}  // namespace
}  // namespace selmcast
