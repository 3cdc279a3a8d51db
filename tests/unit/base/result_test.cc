#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace selmcast {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return bad_input("not even");
  return value / 2;
}

TEST(Result, HoldsValueOrError) {
  const auto good = half(8);
  ASSERT_TRUE(good.has_value());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(good.value(), 4);
  EXPECT_EQ(*good, 4);

  const auto bad = half(7);
  ASSERT_FALSE(bad.has_value());
  EXPECT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(bad.error().message, "not even");
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> held(std::make_unique<int>(5));
  ASSERT_TRUE(held);
  EXPECT_EQ(**held, 5);
  const std::unique_ptr<int> taken = std::move(held).value();
  EXPECT_EQ(*taken, 5);
  EXPECT_EQ(held.value(), nullptr);  // Moved from, still the value side.
}

TEST(Result, ArrowReachesTheValue) {
  Result<std::string> text(std::string("four"));
  EXPECT_EQ(text->size(), 4U);
  text->push_back('!');
  EXPECT_EQ(*text, "four!");
}

template <class T>
constexpr bool kHasArrow = requires(T&& result) {
  std::forward<T>(result).operator->();
};

TEST(Result, NothingPointsIntoATemporary) {
  static_assert(kHasArrow<Result<std::string>&> && kHasArrow<const Result<std::string>&>);
  static_assert(!kHasArrow<Result<std::string>> && !kHasArrow<const Result<std::string>>);
  static_assert(std::is_same_v<decltype(*std::declval<Result<std::string>>()), std::string>);
  const auto& kept = *Result<std::string>(std::string("a text that no small buffer holds"));
  EXPECT_EQ(kept, "a text that no small buffer holds");
}

TEST(Result, ErrorCanBeMovedOut) {
  Result<int> bad(unavailable("no device"));
  const Error error = std::move(bad).error();
  EXPECT_EQ(error.kind, ErrorKind::unavailable);
  EXPECT_EQ(error.message, "no device");
}

TEST(Result, VoidIsSuccessByDefault) {
  const Result<void> good;
  EXPECT_TRUE(good.has_value());
  const Result<void> bad(failed("gone"));
  ASSERT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.error().kind, ErrorKind::failed);
  EXPECT_EQ(bad.error().message, "gone");
}

TEST(ResultDeathTest, ReadingTheAbsentSideAborts) {
  const auto good = half(2);
  const auto bad = half(1);
  EXPECT_DEATH(static_cast<void>(good.error()), "holds a value");
  EXPECT_DEATH(static_cast<void>(bad.value()), "not even");
  EXPECT_DEATH(static_cast<void>(Result<void>().error()), "holds a value");
}

TEST(CheckDeathTest, PrintsPlaceExpressionAndMessage) {
  const int three = 3;
  SELMCAST_CHECK(three == 3, "never printed");
  EXPECT_DEATH(SELMCAST_CHECK(three == 4, "arithmetic"),
               "result_test\\.cc:[0-9]+: check failed: three == 4: arithmetic");
}

}  // namespace
}  // namespace selmcast
