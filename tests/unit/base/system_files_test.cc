#include "base/system_files.h"

#include <gtest/gtest.h>

namespace selmcast {
namespace {

TEST(ValueOfKey, TakesTheFirstLineWithThatKey) {
  const char* text = "model\t\t: 1\nmodel name\t: Some CPU @ 2: fast \nmodel name : other\n";
  EXPECT_EQ(value_of_key(text, "model name"), "Some CPU @ 2: fast");
  EXPECT_EQ(value_of_key(text, "model"), "1");
}

TEST(ValueOfKey, KnowsAbsentKeysEmptyValuesAndMissingLineEnds) {
  EXPECT_EQ(value_of_key("", "x"), std::nullopt);
  EXPECT_EQ(value_of_key("no colon here\n", "no colon here"), std::nullopt);
  EXPECT_EQ(value_of_key("x:\n", "x"), "");
  EXPECT_EQ(value_of_key("a: 1\nx: 2", "x"), "2");
}

TEST(LeadingNumber, StopsAtTheFirstOtherCharacter) {
  EXPECT_EQ(leading_number("24683656 kB"), 24683656U);
  EXPECT_EQ(leading_number("  42\n"), 42U);
  EXPECT_EQ(leading_number("18446744073709551615"), 18446744073709551615U);
}

TEST(LeadingNumber, RefusesWhatIsNone) {
  EXPECT_EQ(leading_number(""), std::nullopt);
  EXPECT_EQ(leading_number("max 100000"), std::nullopt);
  EXPECT_EQ(leading_number("-1\n"), std::nullopt);
  EXPECT_EQ(leading_number("18446744073709551616"), std::nullopt);
}

TEST(ReadSystemFile, NothingForWhatCannotBeRead) {
  EXPECT_EQ(read_system_file("/proc/self/no-such-file"), std::nullopt);
  EXPECT_EQ(read_system_file("/proc"), std::nullopt);
  EXPECT_EQ(read_system_number("/proc/self/cmdline"), std::nullopt);
  EXPECT_EQ(read_system_file("/proc/sys/kernel/ostype"), "Linux\n");
}

}  // namespace
}  // namespace selmcast
