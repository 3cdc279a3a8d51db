// The JSON header of a safetensors file as events, without a document tree and without recursion.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace selmcast {

/// One entry of the header as written: nothing but the JSON types has been checked.
struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

/// Reads the header's entries in file order; `__metadata__` is checked and dropped. Errors
/// (bad_input, without a file name): malformed JSON, a value of the wrong type, an unknown, missing
/// or repeated field, nesting deeper than the format has. At most one list of offsets or dimensions
/// is kept beyond what the text holds.
Result<std::vector<RawTensor>> parse_safetensors_json(std::string_view json);

/// `"name"` for a message: printable and short whatever the file says.
std::string quoted_name(std::string_view name);

}  // namespace selmcast
