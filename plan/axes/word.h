// The words of a policy string, and what their arguments are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace selmcast {

inline constexpr std::uint32_t kMaxWorkers = 65'535;
inline constexpr std::uint32_t kMaxSteps = 1'000'000;

/// User text as it may stand in a one-line message.
std::string quoted(std::string_view text);

/// What stands after `axis=`, e.g. "ssp:4,0.75".
struct Word {
  std::string_view text;

  std::string_view name() const noexcept { return text.substr(0, text.find(':')); }
  /// What follows the colon, if one does.
  std::optional<std::string_view> argument() const noexcept;
  /// The argument's parts between commas; none without a colon.
  std::vector<std::string_view> parts() const;
};

/// The parts of `text` between white space.
std::vector<std::string_view> split_words(std::string_view text);

/// The whole text as a decimal number, or nothing.
std::optional<std::uint32_t> number(std::string_view text);
/// As number(); also nothing outside of [least, most].
std::optional<std::uint32_t> number_within(std::string_view text, std::uint32_t least,
                                           std::uint32_t most);
/// The whole text as a finite number without exponent, or nothing.
std::optional<double> decimal(std::string_view text);
std::optional<double> decimal_within(std::string_view text, double least, double most);
/// The shortest text that reads back as the same number.
std::string shortest(double value);

}  // namespace selmcast
