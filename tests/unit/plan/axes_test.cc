// The tables of the policy axes: every row by itself, and every combination of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/axes/policy.h"
#include "plan/axes/rules.h"

namespace selmcast {
namespace {

/// A word of each kind that an axis has, as `axis=value`, from its rows' examples.
std::vector<std::vector<std::string>> example_words() {
  std::vector<std::vector<std::string>> out;
  for_each_axis([&](auto member) {
    const auto axis = axis_of(member);
    auto& words = out.emplace_back();
    for (const auto& row : axis.rows) {
      for (const auto word : split_words(row.examples)) {
        words.push_back(std::string(axis.name) + "=" + std::string(word));
      }
    }
  });
  return out;
}

/// Calls body(words) for every combination of example words, one of each axis.
template <class Body>
void for_each_combination(const Body& body) {
  const auto words = example_words();
  std::vector<std::size_t> at(words.size(), 0);
  for (bool more = true; more;) {
    std::map<std::string, std::string> chosen;
    for (std::size_t a = 0; a < words.size(); ++a) {
      const auto& word = words[a][at[a]];
      const auto equals = word.find('=');
      chosen[word.substr(0, equals)] = word.substr(equals + 1);
    }
    body(chosen);
    more = false;
    for (std::size_t a = 0; a < words.size() && !more; ++a) {
      at[a] = (at[a] + 1) % words[a].size();
      more = at[a] != 0;
    }
  }
}

std::string text_of(const std::map<std::string, std::string>& words) {
  std::string out;
  for (const auto& [axis, value] : words) out += axis + "=" + value + " ";
  return out;
}

/// What goes together, from the words alone and written from the meaning of the values.
bool coherent(const std::map<std::string, std::string>& words) {
  const auto value = [&](const char* axis) { return words.at(axis); };
  const auto name = [&](const char* axis) { return value(axis).substr(0, value(axis).find(':')); };
  const auto one_of = [](const std::string& text, std::initializer_list<const char*> list) {
    return std::find(list.begin(), list.end(), text) != list.end();
  };
  const auto pace = name("pace"), mix = name("mix"), codec = name("codec");
  const bool partial = value("select") != "all", servers = name("route") == "ps";
  const int staged = (pace == "stages" ? 1 : 0) + (mix == "lgp" ? 1 : 0) +
                     (codec == "split" ? 1 : 0) + (value("order") == "class" ? 1 : 0);
  if (staged != 0 && staged != 4) return false;
  if (partial && one_of(mix, {"sgd", "compensate", "lgp", "stale"})) return false;
  if (one_of(pace, {"ssp", "async"}) &&
      (mix != "average" || codec != "identity" || value("groups") != "sender" || servers)) {
    return false;
  }
  const bool selmcast = name("select") == "selmcast";
  if (pace == "ssp" && value("pace").find(',') != std::string::npos &&
      (!selmcast || value("route") != "star")) {
    return false;
  }
  if (mix == "stale" && pace != "periodic") return false;
  if (one_of(pace, {"overlap", "busy"}) && mix != "compensate") return false;
  if (pace == "periodic" && mix == "sgd") return false;
  if (codec == "cast" && mix == "compensate" && servers) return false;
  if (codec == "slim" && mix != "compensate") return false;
  if (value("order") == "priority" && (mix != "sgd" || pace != "bsp" || servers)) return false;
  if (servers && (partial || one_of(mix, {"age", "stale"}))) return false;
  return !(name("select") == "random" && value("groups") == "rows");
}

bool is_one_line(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

TEST(Axes, EveryRowIsAValueOfItsOwn) {
  for_each_axis([](auto member) {
    const auto axis = axis_of(member);
    using Value = std::remove_cvref_t<decltype(std::declval<Policy>().*member)>;
    std::set<std::string_view> names;
    std::set<decltype(Value::kind)> kinds;
    for (const auto& row : axis.rows) {
      SCOPED_TRACE(std::string(axis.name) + "=" + std::string(row.form));
      EXPECT_TRUE(names.insert(row.name()).second) << "the name is taken";
      EXPECT_EQ(row.later(), row.examples.empty());
      if (row.later()) continue;
      EXPECT_TRUE(kinds.insert(row.kind).second) << "the kind is taken";
      EXPECT_TRUE(is_one_line(std::string(row.meaning)));
      EXPECT_EQ(row.traits.is.has(Trait::needs_all), !row.because.empty());
      EXPECT_EQ(row.is_default, row.kind == Value{}.kind);
      for (const auto example : split_words(row.examples)) {
        const auto value = parse_word(axis, example);
        ASSERT_TRUE(value) << value.error().message;
        EXPECT_EQ(&row_of(axis, *value), &row);
        const auto again = parse_word(axis, print_word(axis, *value));
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(*again, *value) << example;
      }
      // A word is refused by one line that says what is allowed.
      const auto refused = parse_word(axis, std::string(row.name()) + ":?");
      ASSERT_FALSE(refused);
      EXPECT_TRUE(is_one_line(refused.error().message)) << refused.error().message;
      EXPECT_TRUE(refused.error().message.starts_with("policy: ")) << refused.error().message;
    }
    const auto usual = std::count_if(axis.rows.begin(), axis.rows.end(),
                                     [](const auto& row) { return row.is_default; });
    EXPECT_EQ(usual, 1) << axis.name;
  });
}

TEST(Axes, EveryCombinationIsCoherentOrSaysWhatToChange) {
  std::set<std::string> usable;
  std::size_t accepted = 0, refused = 0;
  for_each_combination([&](const std::map<std::string, std::string>& words) {
    const auto text = text_of(words);
    const auto policy = parse_policy(text);
    ASSERT_EQ(policy.has_value(), coherent(words))
        << text << (policy ? "" : policy.error().message);
    if (!policy) {
      ++refused;
      const auto& message = policy.error().message;
      ASSERT_EQ(policy.error().kind, ErrorKind::bad_input);
      ASSERT_TRUE(is_one_line(message) && message.starts_with("policy: ")) << message;
      ASSERT_EQ(message.find('{'), std::string::npos) << message;
      ASSERT_TRUE(message.find("; use ") != std::string::npos ||
                  message.find("; write ") != std::string::npos ||
                  message.find("; drop ") != std::string::npos)
          << message;
      return;
    }
    ++accepted;
    for (const auto& [axis, value] : words) usable.insert(axis + "=" + value);
    const auto printed = to_string(*policy);
    const auto again = parse_policy(printed);
    ASSERT_TRUE(again) << printed << ": " << again.error().message;
    ASSERT_TRUE(again->same_values(*policy)) << text << " prints as " << printed;
    ASSERT_EQ(to_string(*again), printed);
    ASSERT_EQ(again->notices, policy->notices);
    for (const auto& notice : policy->notices) ASSERT_TRUE(is_one_line(notice)) << notice;
  });
  EXPECT_GT(accepted, 500U);
  EXPECT_GT(refused, accepted);
  for (const auto& words : example_words()) {
    for (const auto& word : words) EXPECT_EQ(usable.count(word), 1U) << word << " is of no use";
  }
}

TEST(Axes, EveryRuleRefusesSomethingThatNoOtherDoes) {
  // Of a rule that never stands alone somebody would read a line about something else first, or
  // there would be no need for it.
  std::set<const Rule*> alone;
  for_each_combination([&](const std::map<std::string, std::string>& words) {
    Policy policy;
    for_each_axis([&](auto member) {
      const auto axis = axis_of(member);
      policy.*member = parse_word(axis, words.at(std::string(axis.name))).value();
    });
    const auto traits = policy.traits().is;
    const Rule* only = nullptr;
    std::size_t broken = 0;
    for (const Rule& rule : rules()) {
      if (!rule.broken_by(policy, traits)) continue;
      only = &rule;
      ++broken;
    }
    if (broken == 1) alone.insert(only);
    ASSERT_EQ(broken == 0, check_rules(policy).has_value()) << text_of(words);
  });
  for (const Rule& rule : rules()) EXPECT_EQ(alone.count(&rule), 1U) << rule.message;
}

TEST(Axes, LateStepsFitThePeriod) {
  for (std::uint32_t steps = 1; steps <= 5; ++steps) {
    for (std::uint32_t period = 1; period <= 5; ++period) {
      const auto text =
          "mix=stale:" + std::to_string(steps) + " pace=periodic:" + std::to_string(period);
      EXPECT_EQ(parse_policy(text).has_value(), steps <= period) << text;
    }
  }
}

TEST(Axes, GroupsFollowWhatWantsThem) {
  for (const char* text :
       {"select=random:2", "pace=async", "pace=ssp:1", "select=random:2 pace=async"}) {
    EXPECT_EQ(parse_policy(text).value().groups, (Groups{.kind = GroupKind::sender})) << text;
  }
  EXPECT_EQ(parse_policy("select=selmcast:2").value().groups, Groups{});
}

TEST(Axes, CopiesOfTheModel) {
  const struct {
    const char* text;
    std::uint32_t copies;
  } cases[] = {{"", 0},
               {"select=selmcast:2 mix=age", 0},
               {"pace=async", 1},
               {"selmcast-ssp", 1},
               {"pace=periodic:2 mix=stale", 1},
               {"losp", 3},
               {"slim", 3},
               {"osp2", 6}};
  for (const auto& entry : cases) {
    EXPECT_EQ(parse_policy(entry.text).value().model_copies(), entry.copies) << entry.text;
  }
}

TEST(Axes, NumbersPrintAsTheyRead) {
  for (const double value : {0.0, 0.1, 1.0, 0.3333333333333333, 1e-9, 5e-324, 100.0}) {
    EXPECT_EQ(decimal(shortest(value)), value);
  }
  const auto small = parse_policy("mix=compensate:0." + std::string(300, '0') + "1").value();
  EXPECT_EQ(parse_policy(to_string(small)).value().mix, small.mix);
  EXPECT_GT(small.mix.gamma, 0.0);
}

TEST(Axes, SetsOfTraits) {
  const TraitSet two{Trait::partial, Trait::online}, none;
  EXPECT_TRUE(two.has(Trait::partial) && two.has(Trait::online) && !two.has(Trait::servers));
  EXPECT_TRUE(two.has_all(none) && two.has_all({Trait::online}));
  EXPECT_FALSE(two.has_all({Trait::online, Trait::servers}));
  EXPECT_TRUE(two.has_any({Trait::online, Trait::servers}));
  EXPECT_FALSE(two.has_any(none) || none.has_any(two));
  EXPECT_TRUE(none.empty() && !two.empty());
  EXPECT_TRUE((none | two).has_all(two));
  EXPECT_EQ((Traits{.copies = 1} | Traits{.copies = 2}).copies, 3U);
}

}  // namespace
}  // namespace selmcast
