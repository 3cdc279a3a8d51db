#include "train/dataset.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "train/text_file.h"

namespace selmcast {
namespace {

constexpr unsigned kPixelMaximum = 16;
constexpr const char* kDigitsFile = "digits.csv";

Error line_error(std::string_view name, std::size_t line, const std::string& what) {
  return bad_input(std::string(name) + ": line " + std::to_string(line) + ": " + what);
}

std::optional<unsigned> parse_small(std::string_view field, unsigned maximum) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || value > maximum) return {};
  return value;
}

Result<void> parse_line(std::string_view text, std::string_view name, std::size_t line,
                        Dataset& data) {
  constexpr std::uint32_t kColumns = Dataset::kFeatures + 1;
  for (std::uint32_t column = 1; column <= kColumns; ++column) {
    const std::size_t comma = text.find(',');
    const bool last = column == kColumns;
    if ((comma == std::string_view::npos) != last) {
      return line_error(name, line,
                        (last ? "more than " : "only " + std::to_string(column) + " columns; ") +
                            std::string(last ? "65 columns" : "65 are needed") +
                            " (64 pixels and the digit)");
    }
    const std::string_view field = text.substr(0, comma);
    const unsigned maximum = last ? Dataset::kClasses - 1 : kPixelMaximum;
    const auto value = parse_small(field, maximum);
    if (!value) {
      return line_error(name, line,
                        "column " + std::to_string(column) + ": " + quoted_field(field) +
                            " is not " +
                            (last ? "a digit, an integer 0..9" : "a pixel, an integer 0..16"));
    }
    if (last) {
      data.labels.push_back(static_cast<std::uint8_t>(*value));
    } else {
      data.pixels.push_back(static_cast<float>(*value) / static_cast<float>(kPixelMaximum));
      text.remove_prefix(comma + 1);
    }
  }
  return {};
}

}  // namespace

Result<Dataset> parse_digits(std::string_view text, std::string_view name) {
  Dataset data;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view content = text.substr(0, end);
    if (content.ends_with('\r')) content.remove_suffix(1);
    if (auto parsed = parse_line(content, name, line, data); !parsed) return parsed.error();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (data.size() == 0) {
    return bad_input(std::string(name) + ": empty; lines of 64 pixels and a digit are needed");
  }
  return data;
}

Result<Dataset> load_digits(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_digits(*text, path);
}

Result<std::string> find_digits() {
  std::vector<std::filesystem::path> places;
  std::error_code status;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", status);
  if (!status) {
    places.push_back(program.parent_path().parent_path() / SELMCAST_INSTALLED_DATA_DIR /
                     kDigitsFile);
  }
  places.push_back(std::filesystem::path(SELMCAST_SOURCE_DATA_DIR) / kDigitsFile);
  std::string looked;
  for (const auto& place : places) {
    if (std::filesystem::is_regular_file(place, status)) return place.string();
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  return unavailable("the digits data set is missing (looked for " + looked +
                     "); install the program again or name a file with --data");
}

}  // namespace selmcast
