#include "plan/axes/word.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace selmcast {

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 48;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kShown ? "...'" : "'");
}

std::optional<std::string_view> Word::argument() const noexcept {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  return text.substr(colon + 1);
}

std::vector<std::string_view> Word::parts() const {
  std::vector<std::string_view> out;
  const auto all = argument();
  for (std::size_t from = 0; all && from <= all->size();) {
    const auto comma = std::min(all->find(',', from), all->size());
    out.push_back(all->substr(from, comma - from));
    from = comma + 1;
  }
  return out;
}

std::vector<std::string_view> split_words(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  std::vector<std::string_view> out;
  for (auto from = text.find_first_not_of(kSpace); from != std::string_view::npos;
       from = text.find_first_not_of(kSpace, from)) {
    const auto to = std::min(text.find_first_of(kSpace, from), text.size());
    out.push_back(text.substr(from, to - from));
    from = to;
  }
  return out;
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint32_t> number_within(std::string_view text, std::uint32_t least,
                                           std::uint32_t most) {
  const auto value = number(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

std::optional<double> decimal(std::string_view text) {
  double value = 0.0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> decimal_within(std::string_view text, double least, double most) {
  const auto value = decimal(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

std::string shortest(double value) {
  // A double in [0, 1e9] without exponent: its digits may begin 300 places after the point.
  std::array<char, 400> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return {text.data(), end.ptr};
}

}  // namespace selmcast
