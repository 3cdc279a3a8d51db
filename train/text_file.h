// Text files that a user names: reading them whole, and quoting pieces of them in messages.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace selmcast {

/// The bytes of a file of at most 64 MiB. Errors: bad_input, naming the file.
Result<std::string> read_text_file(const std::string& path);

/// A piece of the input as a message may show it: in quotes, short and printable.
std::string quoted_field(std::string_view field);

}  // namespace selmcast
