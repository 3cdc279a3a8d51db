// Words of the axes mix and codec beyond those of policy_test.cc.
#include <gtest/gtest.h>

#include "plan/axes/policy.h"

namespace selmcast {
namespace {

TEST(PolicyMix, AgeHasItsGamma) {
  const auto usual = parse_policy("select=selmcast:2 mix=age");
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->mix.kind, MixKind::age);
  EXPECT_EQ(usual->round_mix(), MixKind::age);
  EXPECT_EQ(usual->mix.gamma, 0.9);
  EXPECT_TRUE(usual->notices.empty());  // What a bias is told about elsewhere.
  EXPECT_EQ(parse_policy("mix=age:0.25 pace=periodic:3").value().mix.gamma, 0.25);
  for (const char* text : {"select=all", "select=selmcast:2", "select=random:2"}) {
    for (const char* rest :
         {" mix=age", " mix=age:1 codec=cast:bf16", " mix=age pace=periodic:4"}) {
      const auto policy = parse_policy(std::string(text) + rest);
      ASSERT_TRUE(policy) << policy.error().message;
      EXPECT_EQ(to_string(*parse_policy(to_string(*policy))), to_string(*policy));
    }
  }
}

TEST(PolicyMix, StaleHasItsSteps) {
  const auto usual = parse_policy("mix=stale pace=periodic:4 codec=cast:bf16");
  ASSERT_TRUE(usual) << usual.error().message;
  EXPECT_EQ(usual->mix.late_steps, 1U);
  EXPECT_EQ(usual->round_mix(), MixKind::average);
  const auto late = parse_policy("pace=periodic:4 mix=stale:4");
  ASSERT_TRUE(late);
  EXPECT_EQ(late->mix.late_steps, 4U);
  EXPECT_EQ(to_string(*late),
            "share=even select=all route=star pace=periodic:4 mix=stale:4 codec=identity "
            "order=fifo groups=rows");
}

TEST(PolicyMix, SlimMayHaveNoExplorer) {
  EXPECT_EQ(parse_policy("slim codec=slim:0.3,0.15,5").value().codec.slim->every, 5U);
  EXPECT_EQ(parse_policy("slim codec=slim:0.3,0.15").value().codec.slim->every, 20U);
  EXPECT_TRUE(parse_policy("slim").value().notices.empty());
  const auto core_only = parse_policy("slim codec=slim:0.3,0.3");
  ASSERT_TRUE(core_only);
  ASSERT_EQ(core_only->notices.size(), 1U);
  EXPECT_NE(core_only->notices[0].find("may never travel"), std::string::npos);
}

TEST(PolicyMix, SaysWhatToChange) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"mix=age:0", "gamma in mix=age:gamma must be a number from 0.001 to 1, found 'age:0'"},
      {"mix=age:1.01", "gamma in mix=age:gamma"},
      {"mix=age:x", "gamma in mix=age:gamma"},
      {"mix=age pace=overlap", "which only mix=compensate takes into account"},
      {"mix=age codec=slim:0.3,0.1", "codec=slim needs mix=compensate"},
      {"mix=stale", "use pace=periodic:H with H of 1 or more"},
      {"mix=stale:3 pace=periodic:2", "use pace=periodic:H with H of 3 or more"},
      {"mix=stale pace=overlap", "use pace=periodic:H"},
      {"mix=stale:0 pace=periodic:2", "mix=stale:S needs a number of steps, 1 to 1000000"},
      {"mix=stale: pace=periodic:2", "mix=stale:S needs a number of steps"},
      {"mix=stale pace=periodic:2 select=selmcast:2", "mix=stale needs select=all"},
      {"mix=stale pace=periodic:2 codec=slim:0.3,0.1", "codec=slim needs mix=compensate"},
      {"slim codec=slim:0,0", "alpha above 0"},
      {"slim codec=slim:0.3,0.1,5,6", "codec=slim:alpha,beta[,q] needs"},
      {"slim codec=slim:0.3,0.1,indexed", "codec=slim:alpha,beta[,q] needs"},
      {"slim codec=slim:0.3,0.1,5,drop", "codec=slim:alpha,beta[,q] needs"},
  };
  for (const auto& entry : cases) {
    const auto policy = parse_policy(entry.text);
    ASSERT_FALSE(policy.has_value()) << entry.text;
    EXPECT_NE(policy.error().message.find(entry.expected), std::string::npos)
        << policy.error().message;
  }
}

}  // namespace
}  // namespace selmcast
