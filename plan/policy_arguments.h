// What stands after the colon of a policy word, one function per axis that has arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/policy.h"

namespace selmcast {

inline constexpr std::uint32_t kMaxWorkers = 65'535;

/// User text as it may stand in a one-line message.
std::string quoted(std::string_view text);

// `text` is the word's value with its argument, e.g. "selmcast:3,5", and names a value of the axis.
// Errors (bad_input) say what is allowed and what was found; the policy is then not to be used.
Result<void> set_select(std::string_view text, Policy& policy);
Result<void> set_route(std::string_view text, Policy& policy);
Result<void> set_pace(std::string_view text, Policy& policy);
Result<void> set_mix(std::string_view text, Policy& policy);
Result<void> set_codec(std::string_view text, Policy& policy);

}  // namespace selmcast
