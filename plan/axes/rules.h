// What the axes of a policy ask of one another: rules over traits, one row each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/axes/policy.h"

namespace selmcast {

/// A rule concerns policies with `all` traits and, unless it is empty, `any` of those. They must
/// have what it `needs`, none of what it `forbids`, and `hold` where a trait is not enough.
struct Rule {
  TraitSet all{}, any{};
  TraitSet needs{}, forbids{};
  bool (*holds)(const Policy&) = nullptr;
  /// What does not go together, why, and what to change; one line. `{axis}` stands for the name of
  /// that axis's value, `{}` for what `detail` says.
  std::string_view message;
  std::string (*detail)(const Policy&) = nullptr;

  bool broken_by(const Policy& policy, TraitSet traits) const;
};
std::span<const Rule> rules() noexcept;

/// A notice that does not hold where everybody hears everybody.
inline constexpr std::string_view kBiasedMean =
    "mix=average with a partial selection is biased towards ranks that are heard more often when "
    "in-degrees differ; use mix=age, end with one exact average, or use select=all";

/// Error (bad_input): the message of the first rule that is broken.
Result<void> check_rules(const Policy& policy);
/// What is allowed but should be known, one line each.
std::vector<std::string> notices_of(const Policy& policy);

/// Whether the policy can mix parameters of so many bytes: what mix=compensate (osp, losp, slim)
/// numbers has at most 2^32 - 2 elements. Errors (bad_input) say so.
Result<void> check_parameters(const Policy& policy, std::uint64_t bytes);

/// Layers that are handed over one by one: whether the policy has such rounds, and whether `sizes`
/// divide the elements. Errors (bad_input) say what is asked.
Result<void> check_layers(const Policy& policy, std::size_t elements,
                          std::span<const std::size_t> sizes);

}  // namespace selmcast
