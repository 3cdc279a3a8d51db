// Policy strings: one word per axis, checked for sense before anything starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/wire_element.h"

namespace selmcast {

enum class SelectKind : std::uint8_t { all, selmcast, random };
enum class RouteKind : std::uint8_t { star, unicast, servers };
enum class PaceKind : std::uint8_t { bsp, periodic, overlap, stages, ssp, async };
enum class MixKind : std::uint8_t { average, sgd, compensate, lgp, age, stale };
enum class OrderKind : std::uint8_t { fifo, priority };
enum class GroupKind : std::uint8_t { rows, sender };

/// Shares of the parameters that travel under Slim-DP: `alpha` in a round, of which `beta` is the
/// core. 0 <= beta <= alpha <= 1.
struct SlimShares {
  double alpha = 0.3;
  double beta = 0.15;
  std::uint32_t every = 20;  ///< Rounds after which the core is chosen anew; at least 1.

  bool operator==(const SlimShares&) const = default;
};

/// A parsed policy string. Axes with a single implementation so far (share, order) are checked at
/// parse time and have no field.
struct Policy {
  SelectKind select = SelectKind::all;
  std::uint32_t p = 0;     ///< Least number of receivers; 0 for select=all.
  std::uint32_t k = 0;     ///< Every pair served once in k rounds; 0 = no bound.
  bool k_given = false;    ///< Otherwise see resolved_k().
  bool p_of_name = false;  ///< p comes from a name, so it may be lowered to what a job has.
  RouteKind route = RouteKind::star;
  std::uint32_t servers = 0;  ///< Of route=ps.
  PaceKind pace = PaceKind::bsp;
  /// Steps of a round; overlap: most steps beyond a departure; ssp: the bound s.
  std::uint32_t pace_steps = 1;
  /// pace=ssp:s,eta: receivers are selected as multicasts start, those with less than this share
  /// left are kept (SspSelection::eta). Absent: by a plan made in advance.
  std::optional<double> eta;
  MixKind mix = MixKind::average;
  /// pace=stages: share of the parameters exchanged behind the barrier; absent: it adapts.
  std::optional<double> stage_share;
  /// mix=compensate: in units of the learning rate. mix=age: credit per round, times n.
  double gamma = 0.0;
  std::uint32_t late_steps = 0;            ///< mix=stale: from a departure to its merge.
  std::optional<SlimShares> slim;          ///< Of codec=slim.
  WireElement element = WireElement::f32;  ///< Another one: codec=cast.
  OrderKind order = OrderKind::fifo;       ///< order=class goes with pace=stages.
  GroupKind groups = GroupKind::rows;
  std::vector<std::string> notices;  ///< One line each, to be shown once.

  /// The bound that holds for n members: 1 for select=all, 0 (none) for select=random, k where it
  /// was given, otherwise n: everyone who is heard hears somebody in every round, and no receiver
  /// is asked for more full copies than that, so the rate is the best that links allow.
  std::uint32_t resolved_k(std::uint32_t n) const noexcept;
  /// Whether every rank begins rounds in its own time (sync/free/).
  bool free() const noexcept { return pace == PaceKind::ssp || pace == PaceKind::async; }
  /// How a round mixes what it receives: the others are done around rounds that average.
  MixKind round_mix() const noexcept {
    const bool own = mix == MixKind::sgd || mix == MixKind::age;
    return own ? mix : MixKind::average;
  }
  /// Of the model, kept beside the application's parameters by one rank.
  std::uint32_t model_copies() const noexcept {
    if (free()) return 1;
    switch (mix) {
      case MixKind::compensate:
        return 3;
      case MixKind::lgp:
        return 6;
      case MixKind::stale:
        return 1;
      default:
        return 0;
    }
  }
};

/// The policy of a job that does not say: `auto` and the empty string are the same.
inline constexpr const char* kDefaultPolicy = "auto";

/// Errors (bad_input) name the word, what is allowed, and for a word of a later version say so.
/// Words may be separated by any white space; each axis at most once; at most one bare name (`bsp`,
/// `selmcast`, `orpheus`, `gossip`), which expands first, wherever it stands; explicit words
/// override it. select=random and the
/// paces ssp and async without a groups word get groups=sender.
Result<Policy> parse_policy(std::string_view text);
/// The same for a job of so many workers: fit_policy() follows.
Result<Policy> parse_policy(std::string_view text, std::uint32_t workers);
/// Workers that pace=ssp:s,eta can select among: one control frame names all.
inline constexpr std::uint32_t kOnlineWorkersMax = 512;
/// Checks that need the number of workers: 1 <= p <= n-1, n <= 65 535.
Result<void> check_policy(const Policy& policy, std::uint32_t workers);
/// Lowers a name's p to n - 1, the others there are, with a notice (one worker: select=all), so
/// that names are valid for every number of workers; then check_policy(). A p that a user wrote is
/// not touched.
Result<void> fit_policy(Policy& policy, std::uint32_t workers);
/// The policy with every axis written out in one fixed order, e.g. for JSON and for comparing
/// ranks; parse_policy() of it gives the same policy.
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
