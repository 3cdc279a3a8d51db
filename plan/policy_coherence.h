// What the axes of a policy ask of one another.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "plan/policy.h"

namespace selmcast {

enum class Axis : std::uint8_t { share, select, route, pace, mix, codec, order, groups };
inline constexpr std::size_t kAxes = 8;
/// The value that was given for each axis, if one was.
using Words = std::array<std::optional<std::string_view>, kAxes>;

/// A notice that does not hold where everybody hears everybody.
inline constexpr std::string_view kBiasedMean =
    "mix=average with a partial selection is biased towards ranks that are heard more often when "
    "in-degrees differ; use mix=age, end with one exact average, or use select=all";

/// Errors (bad_input) say which words do not go together, why, and what to change. Fills in what
/// other words imply, and notices.
Result<void> check_coherence(const Words& words, Policy& policy);

/// Whether the policy can mix parameters of so many bytes: what mix=compensate (osp, losp, slim)
/// numbers has at most 2^32 - 2 elements. Errors (bad_input) say so.
Result<void> check_parameters(const Policy& policy, std::uint64_t bytes);

/// Layers that are handed over one by one: whether the policy has such rounds, and whether `sizes`
/// divide the elements. Errors (bad_input) say what is asked.
Result<void> check_layers(const Policy& policy, std::size_t elements,
                          std::span<const std::size_t> sizes);

}  // namespace selmcast
