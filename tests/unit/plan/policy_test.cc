#include "plan/axes/policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/axes/rules.h"

namespace selmcast {
namespace {

std::string canonical(const std::string& text) {
  const auto policy = parse_policy(text);
  EXPECT_TRUE(policy.has_value()) << text << ": " << policy.error().message;
  return policy ? to_string(*policy) : "";
}

TEST(Policy, DefaultsAndOrder) {
  const std::string all =
      "share=even select=all route=star pace=bsp mix=average codec=identity order=fifo groups=rows";
  EXPECT_EQ(canonical(""), all);
  EXPECT_EQ(canonical(" \t\n "), all);
  EXPECT_EQ(canonical("order=fifo   mix=average\tselect=all"), all);
  EXPECT_EQ(
      canonical("select=selmcast:3"),
      "share=even select=selmcast:3 route=star pace=bsp mix=average codec=identity order=fifo "
      "groups=rows");
  EXPECT_EQ(canonical("groups=sender route=unicast select=selmcast:3,0"),
            "share=even select=selmcast:3,0 route=unicast pace=bsp mix=average codec=identity "
            "order=fifo groups=sender");
  EXPECT_EQ(canonical("select=random:2"),
            "share=even select=random:2 route=star pace=bsp mix=average codec=identity order=fifo "
            "groups=sender");
  EXPECT_EQ(canonical("pace=async"),
            "share=even select=all route=star pace=async mix=average codec=identity order=fifo "
            "groups=sender");
  EXPECT_EQ(canonical("select=selmcast:2 pace=ssp:3"),
            "share=even select=selmcast:2 route=star pace=ssp:3 mix=average codec=identity "
            "order=fifo groups=sender");
  EXPECT_EQ(canonical("mix=sgd"),
            "share=even select=all route=star pace=bsp mix=sgd codec=identity order=fifo "
            "groups=rows");
}

TEST(Policy, CanonicalTextParsesToItself) {
  for (const auto* text : {"", "select=selmcast:3", "select=selmcast:3,9 groups=sender", "bsp",
                           "selmcast groups=sender", "select=random:2 route=unicast", "route=ps:3",
                           "osp2", "osp2 pace=stages:0.25", "gossip", "select=selmcast:1,0",
                           "pace=async", "select=selmcast:2 pace=ssp:0"}) {
    EXPECT_EQ(canonical(canonical(text)), canonical(text));
  }
}

TEST(Policy, NamesExpandFirstAndWordsOverride) {
  EXPECT_EQ(canonical("bsp"), canonical("mix=sgd"));
  EXPECT_EQ(canonical("selmcast"), canonical("select=selmcast:2"));
  EXPECT_EQ(canonical("orpheus"), canonical("select=random:2"));
  EXPECT_EQ(canonical("gossip"), canonical("select=random:1"));
  EXPECT_EQ(canonical("select=selmcast:5 selmcast"), canonical("select=selmcast:5"));
  EXPECT_EQ(canonical("bsp mix=average"), canonical(""));
  for (const auto& [name, expansion] : policy_names()) {
    EXPECT_EQ(canonical(name), canonical(expansion));
  }
}

TEST(Policy, BoundOnRounds) {
  const auto k = [](const char* text, std::uint32_t n) {
    return parse_policy(text).value().resolved_k(n);
  };
  for (const std::uint32_t n : {1U, 2U, 3U, 4U, 8U, 32U, 65'535U}) {
    EXPECT_EQ(k("select=selmcast:3", n), n);
    EXPECT_EQ(k("select=selmcast:1", n), n);
    EXPECT_EQ(k("select=selmcast:3 groups=sender", n), n);
    EXPECT_EQ(k("select=selmcast:3 pace=ssp:2", n), n);
    EXPECT_EQ(k("select=selmcast:3 mix=age", n), n);
  }
  EXPECT_EQ(k("select=selmcast:3,2", 32), 2U);
  EXPECT_EQ(k("select=selmcast:3,0", 32), 0U);
  EXPECT_EQ(k("select=random:3", 32), 0U);
  EXPECT_EQ(k("select=all", 32), 1U);
}

TEST(Policy, OneNoticeForABiasedMean) {
  EXPECT_TRUE(parse_policy("").value().notices.empty());
  EXPECT_TRUE(parse_policy("mix=sgd").value().notices.empty());
  for (const auto* text : {"select=selmcast:2", "select=random:2"}) {
    const auto policy = parse_policy(text);
    ASSERT_EQ(policy->notices.size(), 1U);
    EXPECT_NE(policy->notices[0].find("in-degrees"), std::string::npos);
    EXPECT_EQ(policy->notices[0].find('\n'), std::string::npos);
  }
}

TEST(Policy, NoBoundOnRoundsIsToldOnce) {
  EXPECT_TRUE(parse_policy("select=selmcast:2 mix=age").value().notices.empty());
  const auto unbound = parse_policy("select=selmcast:2,0 mix=age").value();
  ASSERT_EQ(unbound.notices.size(), 1U);
  EXPECT_NE(unbound.notices[0].find("k = 0 sets no bound"), std::string::npos);
  EXPECT_EQ(unbound.notices[0].find('\n'), std::string::npos);
}

TEST(Policy, TheDefaultSuitsEveryNumberOfWorkers) {
  EXPECT_EQ(canonical(kDefaultPolicy), canonical(""));
  for (const char* text : {kDefaultPolicy, ""}) {
    for (const std::uint32_t n : {1U, 2U, 3U, 4U, 5U, 8U, 1000U, 65'535U}) {
      const auto policy = parse_policy(text, n);
      ASSERT_TRUE(policy) << policy.error().message;
      EXPECT_TRUE(policy->notices.empty());
    }
  }
}

TEST(Policy, OnlyANamesReceiversAreLowered) {
  for (const auto& [name, words] : policy_names()) {
    for (std::uint32_t n = 1; n <= 5; ++n) {
      const auto policy = parse_policy(name, n);
      ASSERT_TRUE(policy) << name << ", " << n << ": " << policy.error().message;
      const auto wanted = parse_policy(name).value().select.p;
      EXPECT_EQ(policy->select.p, std::min(wanted, n - 1)) << name;
      EXPECT_EQ(policy->has(Trait::partial), policy->select.p > 0) << name;
      // What is left is a policy as a user may write it, and the same on every rank.
      EXPECT_EQ(canonical(to_string(*policy)), to_string(*policy)) << name;
      const bool lowered = wanted > n - 1;
      EXPECT_EQ(std::ranges::count_if(policy->notices,
                                      [](const auto& line) {
                                        return line.find("is lowered to") != std::string::npos;
                                      }),
                lowered ? 1 : 0)
          << name;
      // Everybody hears everybody.
      if (lowered) {
        EXPECT_EQ(policy->notices.size(), 1U) << name;
      }
    }
  }
  EXPECT_EQ(parse_policy("selmcast mix=age", 2).value().select.p, 1U);
  for (const char* text : {"select=selmcast:2", "select=random:2", "selmcast select=selmcast:2"}) {
    const auto refused = parse_policy(text, 2);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().message.find("2 workers has 1 others; lower p"), std::string::npos);
  }
}

TEST(Policy, CompensationNumbersItsElements) {
  constexpr std::uint64_t kMost = 0xFFFF'FFFE;
  for (const char* text : {"mix=compensate", "osp", "losp", "slim", "losp codec=cast:bf16"}) {
    const auto policy = parse_policy(text).value();
    EXPECT_TRUE(check_parameters(policy, 4 * kMost)) << text;
    const auto refused = check_parameters(policy, 4 * (kMost + 1));
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
    EXPECT_NE(refused.error().message.find("at most 4294967294 elements"), std::string::npos);
  }
  EXPECT_TRUE(check_parameters(parse_policy("").value(), 4 * (kMost + 1)));
  EXPECT_TRUE(check_parameters(parse_policy("osp2").value(), 4 * (kMost + 1)));
}

TEST(Policy, SaysWhatToChange) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"colour=red", "unknown axis in 'colour=red'; axes are share, select"},
      {"=all", "unknown axis in '=all'"},
      {"select=some", "unknown value 'some' of select; allowed are all, selmcast:p[,k], random:p"},
      {"select=", "unknown value '' of select"},
      {"mix=average:3", "mix=average takes no argument, but has ':3'"},
      {"select=all:2", "select=all takes no argument"},
      {"pace=bsp pace=bsp", "pace is given twice"},
      {"select=all select=random:1", "select is given twice ('all' and 'select=random:1')"},
      {"route=ps:1 pace=async", "pace=async has rounds of one sender each"},
      {"pace=ssp", "pace=ssp needs a number of steps s, 0 to 1000000, found 'ssp'; write for"},
      {"pace=ssp:", "pace=ssp needs a number of steps s, 0 to 1000000, found ''"},
      {"pace=ssp:-1", "found '-1'; write for example pace=ssp:2"},
      {"pace=ssp:1000001", "found '1000001'"},
      {"pace=async:2", "pace=async takes no argument, but has ':2'"},
      {"pace=async mix=sgd", "pace=async merges whatever has arrived, of different rounds"},
      {"pace=ssp:1 mix=compensate", "pace=ssp merges whatever has arrived"},
      {"pace=ssp:1 codec=cast:bf16", "pace=ssp merges float32 as it is; use codec=identity"},
      {"pace=async groups=rows", "pace=async needs groups of one sender each"},
      {"selmcast pace=ssp:2", "use groups=sender"},
      {"pace=overlap", "which only mix=compensate takes into account"},
      {"pace=overlap:0 mix=compensate", "pace=overlap needs a number of steps, 1 to 1000000"},
      {"pace=periodic", "found 'periodic'; write for example pace=periodic:8"},
      {"pace=periodic:x", "found 'periodic:x'"},
      {"pace=periodic:2 mix=sgd", "mix=sgd merges the updates of every single step"},
      {"pace=bsp:2", "pace=bsp takes no argument"},
      {"mix=compensate:-1", "gamma in mix=compensate:gamma must be a number from 0 to 100"},
      {"mix=compensate:nan", "gamma in mix=compensate:gamma"},
      {"mix=compensate:1e2", "gamma in mix=compensate:gamma"},
      {"mix=compensate:", "gamma in mix=compensate:gamma"},
      {"losp select=selmcast:2", "mix=compensate needs select=all"},
      {"codec=slim:0.3,0.15", "codec=slim needs mix=compensate"},
      {"mix=compensate codec=slim", "needs 0 <= beta <= alpha <= 1"},
      {"mix=compensate codec=slim:0.3", "needs 0 <= beta <= alpha <= 1"},
      {"mix=compensate codec=slim:0.3,0.4", "found 'slim:0.3,0.4'"},
      {"mix=compensate codec=slim:1.1,0.3", "found 'slim:1.1,0.3'"},
      {"mix=compensate codec=slim:0.3,0.1,0", "q of 1 or more"},
      {"mix=compensate codec=slim:nan,0.1", "needs 0 <= beta"},
      {"select=neighbours", "select=neighbours belongs to a later version"},
      {"share=rate", "later version; this one has share=even"},
      {"route=ring", "later version; this one has route=star, unicast, ps:servers"},
      {"route=ps", "route=ps needs a number of servers, 1 to 65535, found 'ps'"},
      {"route=ps:0", "found 'ps:0'; write for example route=ps:1"},
      {"route=ps:1 select=selmcast:2", "route=ps gathers from all ranks"},
      {"route=ps:1 mix=age", "route=ps mixes at the servers only"},
      {"mix=replace", "later version; this one has mix=average, sgd"},
      {"mix=cumulative", "unknown value 'cumulative' of mix"},
      {"mix=age route=ps:1", "count whom each rank hears"},
      {"codec=cast", "codec=cast needs a type, bf16 or fp16, found 'cast'"},
      {"codec=cast:int8", "codec=cast needs a type, bf16 or fp16"},
      {"losp codec=cast:bf16 route=ps:2", "servers (route=ps) round the mean that they hand out"},
      {"order=priority", "use mix=sgd pace=bsp and route=star or unicast with it (the name p3)"},
      {"p3 route=ps:1", "order=priority exchanges the gradients of single layers"},
      {"p3 mix=average", "order=priority exchanges the gradients"},
      {"codec=split", "only work together, and pace=stages is missing; write the name osp2"},
      {"pace=stages", "only work together"},
      {"osp2 mix=average", "only work together, and mix=lgp is missing"},
      {"osp2 codec=cast:bf16", "and codec=split is missing"},
      {"osp2 select=selmcast:2",
       "mix=lgp needs select=all (it replaces a guess by the mean of all ranks)"},
      {"osp2 pace=stages:1.5", "pace=stages:s needs a share s from 0 to 1, found 'stages:1.5'"},
      {"osp2 pace=stages:", "pace=stages:s needs a share s"},
      {"selmcast:3",
       "unknown name 'selmcast:3'; names are bsp, selmcast, selmcast-ssp, osp, losp, p3, osp2, "
       "slim"},
      {"average", "'average' is a value without its axis; write mix=average"},
      {"random", "'random' is a value without its axis; write select=random:p"},
      {"bsp gossip", "two names, 'bsp' and 'gossip'; keep one"},
      {"select=selmcast", "select=selmcast:p needs a number of receivers p of 1 or more"},
      {"select=selmcast:", "p of 1 or more"},
      {"select=selmcast:0", "p of 1 or more, found 'selmcast:0'"},
      {"select=selmcast:-1", "p of 1 or more"},
      {"select=selmcast:1.5", "p of 1 or more"},
      {"select=selmcast:3x", "p of 1 or more"},
      {"select=selmcast:70000", "p of 1 or more"},
      {"select=selmcast:99999999999999999999", "p of 1 or more"},
      {"select=selmcast:3,", "k in select=selmcast:p,k must be a number of rounds"},
      {"select=selmcast:3,x", "k in select=selmcast:p,k"},
      {"select=selmcast:3,4,5", "k in select=selmcast:p,k"},
      {"select=random:3,4", "select=random:p has no bound k"},
      {"select=random", "select=random:p needs a number of receivers"},
      {"select=selmcast:2 mix=sgd", "mix=sgd needs select=all"},
      {"select=random:2 mix=sgd", "use mix=average or select=all"},
      {"bsp select=selmcast:2", "mix=sgd needs select=all"},
      {"select=random:2 groups=rows", "groups=rows needs the ring plan"},
      {"select=selmcast:2 groups=sender:1", "groups=sender takes no argument, but has ':1'"},
      {"select=selmcast:2 groups=sender:", "groups=sender takes no argument"},
      {"select=selmcast:2 groups=rows:1", "groups=rows takes no argument"},
      {"sel\x1b[31mect=\xff", "unknown axis in 'sel?[31mect=?'"},
  };
  for (const auto& entry : cases) {
    const auto policy = parse_policy(entry.text);
    ASSERT_FALSE(policy.has_value()) << entry.text;
    const auto& error = policy.error();
    EXPECT_EQ(error.kind, ErrorKind::bad_input);
    EXPECT_NE(error.message.find(entry.expected), std::string::npos) << error.message;
    EXPECT_TRUE(std::all_of(error.message.begin(), error.message.end(), [](char c) {
      return c >= ' ' && c <= '~';
    })) << error.message;
  }
  EXPECT_LT(parse_policy(std::string(100'000, 'x')).error().message.size(), 300U);
}

TEST(Policy, NamesOfSystems) {
  const auto text = [](const char* policy) { return to_string(*parse_policy(policy)); };
  const std::string all = "share=even select=all route=star ", end = " order=fifo groups=rows";
  EXPECT_EQ(text("osp"), all + "pace=overlap:20 mix=compensate:0 codec=identity" + end);
  EXPECT_EQ(text("losp"), all + "pace=overlap:20 mix=compensate:1.5 codec=identity" + end);
  EXPECT_EQ(text("p3"), all + "pace=bsp mix=sgd codec=identity order=priority groups=rows");
  EXPECT_EQ(text("osp2"), all + "pace=stages mix=lgp codec=split order=class groups=rows");
  EXPECT_EQ(text("slim"), all + "pace=bsp mix=compensate:1 codec=slim:0.3,0.15,20" + end);
  EXPECT_EQ(text("losp pace=overlap:7 codec=slim:.25,0.0625,3"),
            all + "pace=overlap:7 mix=compensate:1.5 codec=slim:0.25,0.0625,3" + end);
  EXPECT_EQ(text("codec=cast:bf16"), all + "pace=bsp mix=average codec=cast:bf16" + end);
  EXPECT_EQ(text("losp codec=cast:bf16"),
            all + "pace=overlap:20 mix=compensate:1.5 codec=cast:bf16" + end);
  EXPECT_EQ(text("bsp codec=cast:fp16"), all + "pace=bsp mix=sgd codec=cast:fp16" + end);
  EXPECT_EQ(text("select=random:2 pace=periodic:4"),
            "share=even select=random:2 route=star pace=periodic:4 mix=average codec=identity "
            "order=fifo groups=sender");
  for (const auto& [name, words] : policy_names()) {
    EXPECT_EQ(to_string(*parse_policy(text(name.c_str()))), text(words.c_str())) << name;
  }
}

TEST(Policy, NumberOfWorkers) {
  const auto check = [](const char* text, std::uint32_t n) {
    return check_policy(*parse_policy(text), n);
  };
  EXPECT_TRUE(check("", 1).has_value());
  EXPECT_TRUE(check("select=selmcast:7", 8).has_value());
  EXPECT_TRUE(check("", 65'535).has_value());
  EXPECT_FALSE(check("", 0).has_value());
  EXPECT_FALSE(check("", 65'536).has_value());
  const auto many = check("select=selmcast:8", 8);
  ASSERT_FALSE(many.has_value());
  EXPECT_NE(many.error().message.find("8 workers has 7 others; lower p"), std::string::npos);
  const auto alone = check("select=random:1", 1);
  ASSERT_FALSE(alone.has_value());
  EXPECT_NE(alone.error().message.find("use select=all"), std::string::npos);
}

TEST(Policy, WordListHoldsOneDefaultPerAxis) {
  std::vector<std::string> axes;
  for (const auto& word : policy_words()) {
    EXPECT_FALSE(word.meaning.empty());
    if (word.is_default) axes.push_back(word.axis);
  }
  EXPECT_EQ(axes, (std::vector<std::string>{"share", "select", "route", "pace", "mix", "codec",
                                            "order", "groups"}));
}

}  // namespace
}  // namespace selmcast
