#include "cli/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <thread>

#include "tests/unit/cli/temporary_folder.h"

namespace selmcast {
namespace {

using ::testing::HasSubstr;

void fill(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

auto files_in(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.file("")), {});
}

OutputFile opened(const std::string& path) {
  auto file = OutputFile::open("--out", path);
  EXPECT_TRUE(file) << file.error().message;
  return std::move(file).value();
}

TEST(OutputFile, OldContentStaysUntilTheWorkBegins) {
  const TemporaryFolder folder;
  fill(folder.file("out"), "old");
  auto file = opened(folder.file("out"));
  EXPECT_EQ(text_of(folder.file("out")), "old");
  EXPECT_EQ(files_in(folder), 1);
  ASSERT_TRUE(file.drop_old());
  EXPECT_EQ(files_in(folder), 0);
  ASSERT_TRUE(file.write("new"));
  EXPECT_EQ(text_of(folder.file("out")), "new");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(OutputFile, WorkThatFailsLeavesNoFile) {
  const TemporaryFolder folder;
  fill(folder.file("out"), "old");
  {
    auto file = opened(folder.file("out"));
    ASSERT_TRUE(file.drop_old());
  }
  EXPECT_EQ(files_in(folder), 0);
}

TEST(OutputFile, LinksStayAndTheirTargetIsReplaced) {
  const TemporaryFolder folder;
  fill(folder.file("target"), "old");
  std::filesystem::create_symlink("target", folder.file("link"));
  auto file = opened(folder.file("link"));
  ASSERT_TRUE(file.drop_old());
  ASSERT_TRUE(file.write("new"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(text_of(folder.file("target")), "new");
}

TEST(OutputFile, AFileWhoseFolderTakesNoOtherIsEmptiedInPlace) {
  const TemporaryFolder folder;
  // The name of the file beside it would be longer than the 255 bytes that a name may have.
  const std::string path = folder.file(std::string(250, 'n'));
  fill(path, "old");
  auto file = opened(path);
  EXPECT_EQ(text_of(path), "old");
  ASSERT_TRUE(file.drop_old());
  EXPECT_EQ(text_of(path), "");
  ASSERT_TRUE(file.write("new"));
  EXPECT_EQ(text_of(path), "new");
}

TEST(OutputFile, APipeIsWrittenToAndStays) {
  const TemporaryFolder folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = text_of(path); });
  auto file = opened(path);
  EXPECT_TRUE(file.drop_old());
  EXPECT_TRUE(file.write("through"));
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(folder.file("pipe")));
}

TEST(OutputFile, ANameOfADescriptorIsWrittenThroughIt) {
  const TemporaryFolder folder;
  const int fd = ::open(folder.file("out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  struct stat before {
  }, after{};
  ASSERT_EQ(::fstat(fd, &before), 0);
  auto file = opened("/dev/fd/" + std::to_string(fd));
  ASSERT_TRUE(file.drop_old());
  ASSERT_TRUE(file.write("text"));
  ::close(fd);
  ASSERT_EQ(::stat(folder.file("out").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(text_of(folder.file("out")), "text");
}

TEST(OutputFile, ErrorsNameTheFlagAndThePath) {
  const TemporaryFolder folder;
  for (const std::string& path : {std::string("/no/such/folder/x"), folder.file("")}) {
    const auto file = OutputFile::open("--out", path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(file.error().message, HasSubstr("--out " + path));
  }
}

TEST(OutputFile, AFolderThatGoesAwayMeanwhileIsAFailure) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("sub"));
  auto file = opened(folder.file("sub/out"));
  std::filesystem::remove_all(folder.file("sub"));
  const auto written = file.write("text");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, ErrorKind::failed);
  EXPECT_THAT(written.error().message, HasSubstr("No such file"));
}

}  // namespace
}  // namespace selmcast
