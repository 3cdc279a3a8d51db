// Policy strings: one word per axis, checked for sense before anything starts.
//
// A policy is parsed once, where it enters the process, and passed on as parsed. What the library
// asks of it are traits; the kind of a value is for the one place that makes the value's class.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/axes/codec.h"
#include "plan/axes/groups.h"
#include "plan/axes/mix.h"
#include "plan/axes/order.h"
#include "plan/axes/pace.h"
#include "plan/axes/route.h"
#include "plan/axes/select.h"
#include "plan/axes/share.h"

namespace selmcast {

/// A parsed policy string: a value of each axis. Plain data.
struct Policy {
  Share share;
  Select select;
  Route route;
  Pace pace;
  Mix mix;
  Codec codec;
  Order order;
  Groups groups;
  bool p_of_name = false;            ///< select.p comes from a name, so fit_policy() may lower it.
  std::vector<std::string> notices;  ///< One line each, to be shown once.

  /// What the values of all axes are like and take together.
  Traits traits() const;
  bool has(Trait trait) const { return traits().is.has(trait); }

  /// The bound that holds for n members: 1 for select=all, 0 (none) for select=random, k where it
  /// was given, otherwise n, so that everyone who receives at all has at least one slot, and
  /// nobody is asked for more full copies than that: the rate is the best that links allow.
  std::uint32_t resolved_k(std::uint32_t n) const;
  /// Whether every rank begins rounds in its own time (sync/free/).
  bool free() const { return has(Trait::free_running); }
  /// Whether receivers come from a ring plan whose rows are the groups.
  bool follows_rows() const {
    return traits().is.has_all({Trait::ring_plan, Trait::row_groups, Trait::multicast});
  }
  /// How a round mixes what it receives: mixes without a way of their own are done around rounds
  /// that average.
  MixKind round_mix() const { return has(Trait::own_merge) ? mix.kind : MixKind::average; }
  /// Of the model, kept by a rank beside the application's parameters.
  std::uint32_t model_copies() const { return traits().copies; }
  /// Lowers p to the `others` that there are. Without any there is nobody to select from, online or
  /// in advance.
  void lower_receivers(std::uint32_t others);
  /// The same values; where they came from does not count.
  bool same_values(const Policy& other) const;
};

/// Calls body(member) with a pointer to each axis's member of Policy, in the order of policy
/// strings.
template <class Body>
void for_each_axis(const Body& body) {
  body(&Policy::share);
  body(&Policy::select);
  body(&Policy::route);
  body(&Policy::pace);
  body(&Policy::mix);
  body(&Policy::codec);
  body(&Policy::order);
  body(&Policy::groups);
}
/// The table of the axis that `member` points to.
template <class V>
AxisTable<V> axis_of(V Policy::*) noexcept {
  return V::axis();
}

/// The policy of a job that does not say: `auto` and the empty string are the same.
inline constexpr const char* kDefaultPolicy = "auto";
/// Workers that pace=ssp:s,eta can select among: one control frame names all.
inline constexpr std::uint32_t kOnlineWorkersMax = 512;

/// Errors (bad_input) name the word, what is allowed, and for a word of a later version say so.
/// Words may be separated by any white space; each axis at most once; at most one bare name (see
/// policy_names()), which expands first, wherever it stands; explicit words override it. Without a
/// groups word, values that want groups of one sender each get groups=sender.
Result<Policy> parse_policy(std::string_view text);
/// The same for a job of so many workers: fit_policy() follows.
Result<Policy> parse_policy(std::string_view text, std::uint32_t workers);
/// Checks that need the number of workers: 1 <= p <= n-1, n <= 65 535.
Result<void> check_policy(const Policy& policy, std::uint32_t workers);
/// Lowers a name's p to n - 1, the others there are, with a notice (one worker: select=all), so
/// that names are valid for every number of workers; then check_policy(). A p that a user wrote is
/// not touched.
Result<void> fit_policy(Policy& policy, std::uint32_t workers);
/// The policy with every axis written out in one fixed order, e.g. for JSON and for comparing
/// ranks; parse_policy() of it gives the same values.
std::string to_string(const Policy& policy);

/// One row of `selmcast policies`.
struct PolicyWord {
  std::string axis, value, meaning;
  bool is_default = false;
};
std::vector<PolicyWord> policy_words();
/// Names and the strings they stand for.
std::vector<std::pair<std::string, std::string>> policy_names();

}  // namespace selmcast
