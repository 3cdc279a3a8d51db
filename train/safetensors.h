// Files of tensors in the safetensors format: eight bytes (little-endian) with the length of a JSON
// header, the header, then the tensors' bytes. (Format: github.com/huggingface/safetensors.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "train/parameter_set.h"

namespace selmcast {

/// Longest header the format allows.
inline constexpr std::uint64_t kSafetensorsHeaderLimit = 100'000'000;

enum class Dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64,
};
std::uint64_t size_of(Dtype dtype) noexcept;
std::string_view to_string(Dtype dtype) noexcept;

/// One tensor of a file.
struct StoredTensor {
  TensorSpec spec;  ///< elements() does not overflow.
  Dtype dtype = Dtype::f32;
  std::uint64_t begin = 0;  ///< First byte within the file's data part.
  std::uint64_t end = 0;    ///< One past the last: begin + elements * size.
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< In the order of their bytes; they cover the data part.
  std::uint64_t data_offset = 0;      ///< Where the data part starts in the file.

  std::uint64_t elements() const noexcept;
};

/// Parses and checks the head of a file of `file_bytes` bytes; `head` holds its first bytes, the
/// whole header at least. The bytes are hostile: every length, type, shape and offset is checked,
/// names are unique, tensors neither overlap nor leave gaps, nesting is bounded. `name` stands in
/// messages. Errors (bad_input): one line with name, tensor and field.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> head,
                                            std::uint64_t file_bytes, std::string_view name);

/// Reads only the header of a file. Errors: bad_input, naming the file.
Result<SafetensorsHeader> read_safetensors_header(const std::string& path);

/// A file's tensors one after the other as float32, F16 and BF16 converted exactly.
struct LoadedParameters {
  ParameterSet set;  ///< Named after the file.
  std::vector<float> values;
};
/// Errors: bad_input: as above, or a tensor of another type, or no element at all.
Result<LoadedParameters> load_safetensors(const std::string& path);

/// IEEE 754 binary16 and bfloat16 to float32, exact for every value; NaN payloads are kept.
float float_of_f16(std::uint16_t bits) noexcept;
float float_of_bf16(std::uint16_t bits) noexcept;

}  // namespace selmcast
