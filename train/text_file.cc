#include "train/text_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace selmcast {

Result<std::string> read_text_file(const std::string& path) {
  constexpr std::size_t kFileLimit = 64U << 20U;
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    return bad_input(path + ": is a folder; the name of a CSV file is needed");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return bad_input(path + ": cannot be read: " + std::strerror(errno));
  std::string text;
  std::array<char, 65536> block{};
  while (file.read(block.data(), block.size()), file.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > kFileLimit) return bad_input(path + ": larger than 64 MiB");
  }
  if (file.bad()) return bad_input(path + ": reading failed: " + std::strerror(errno));
  return text;
}

std::string quoted_field(std::string_view field) {
  constexpr std::size_t kLongest = 24;
  std::string out = "\"";
  for (const char c : field.substr(0, kLongest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (field.size() > kLongest ? "...\"" : "\"");
}

}  // namespace selmcast
