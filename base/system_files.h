// Reads the small text files of /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace selmcast {

/// The file's content up to 1 MiB; nothing if it cannot be read. Some of these files exist and
/// refuse to be read (an interface's speed while it is down).
std::optional<std::string> read_system_file(const std::string& path);

/// The decimal number that the file starts with; nothing if there is none, it is negative, or it
/// leaves 64 bits.
std::optional<std::uint64_t> read_system_number(const std::string& path);

/// The value of a "KEY: value" or "KEY\t: value" line, without surrounding blanks.
std::optional<std::string> value_of_key(std::string_view text, std::string_view key);

/// Leading decimal digits (blanks before them are skipped) as a number.
std::optional<std::uint64_t> leading_number(std::string_view text);

}  // namespace selmcast
