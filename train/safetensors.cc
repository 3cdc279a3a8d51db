#include "train/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "base/wire.h"
#include "train/safetensors_json.h"

namespace selmcast {
namespace {

constexpr std::size_t kLengthBytes = 8;

struct DtypeRow {
  std::string_view name;
  std::uint64_t bytes;
};
/// In the order of Dtype.
constexpr std::array<DtypeRow, 15> kDtypes{{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"F8_E5M2", 1},
                                            {"F8_E4M3", 1},
                                            {"I16", 2},
                                            {"U16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I32", 4},
                                            {"U32", 4},
                                            {"F32", 4},
                                            {"F64", 8},
                                            {"I64", 8},
                                            {"U64", 8}}};

std::optional<Dtype> dtype_of(std::string_view name) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes.at(i).name == name) return static_cast<Dtype>(i);
  }
  return {};
}

Error in_file(std::string_view name, const std::string& what) {
  return bad_input(std::string(name) + ": " + what);
}

std::string tensor_text(const std::string& name) {
  return "tensor " + quoted_name(name) + ": ";
}

/// Bytes of a tensor, or nothing when they do not fit 64 bits.
std::optional<std::uint64_t> byte_count(const std::vector<std::uint64_t>& shape, Dtype dtype) {
  std::uint64_t bytes = size_of(dtype);
  // A dimension 0 makes the tensor empty however large the others are.
  if (std::ranges::find(shape, 0U) != shape.end()) return 0;
  for (const std::uint64_t dimension : shape) {
    if (bytes > std::numeric_limits<std::uint64_t>::max() / dimension) return {};
    bytes *= dimension;
  }
  return bytes;
}

Result<StoredTensor> checked_tensor(RawTensor&& raw, std::uint64_t data_bytes) {
  const std::string where = tensor_text(raw.name);
  const auto dtype = dtype_of(raw.dtype);
  if (!dtype) return bad_input(where + "dtype: " + quoted_name(raw.dtype) + " is not known");
  if (raw.offsets.size() != 2) {
    return bad_input(where + "data_offsets: " + std::to_string(raw.offsets.size()) +
                     " numbers where begin and end are needed");
  }
  const std::uint64_t begin = raw.offsets[0];
  const std::uint64_t end = raw.offsets[1];
  if (begin > end) {
    return bad_input(where + "data_offsets: begin " + std::to_string(begin) + " is after end " +
                     std::to_string(end));
  }
  if (end > data_bytes) {
    return bad_input(where + "data_offsets: end " + std::to_string(end) + " is beyond the file's " +
                     std::to_string(data_bytes) + " bytes of data");
  }
  const auto bytes = byte_count(raw.shape, *dtype);
  if (!bytes) return bad_input(where + "shape: more bytes than 64 bits can count");
  if (*bytes != end - begin) {
    return bad_input(where + "shape: needs " + std::to_string(*bytes) + " bytes as " + raw.dtype +
                     ", data_offsets give " + std::to_string(end - begin));
  }
  return StoredTensor{{std::move(raw.name), std::move(raw.shape)}, *dtype, begin, end};
}

/// Sorts by place in the file and refuses overlaps, gaps and data that no tensor names.
Result<void> check_cover(std::vector<StoredTensor>& tensors, std::uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::string where = tensor_text(tensor.spec.name) + "data_offsets: ";
    if (tensor.begin < covered) {
      return bad_input(where + "begin " + std::to_string(tensor.begin) +
                       " overlaps the tensor before, which ends at " + std::to_string(covered));
    }
    if (tensor.begin > covered) {
      return bad_input(where + "begin " + std::to_string(tensor.begin) + " leaves a gap from " +
                       std::to_string(covered));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    return bad_input("the tensors end at byte " + std::to_string(covered) + " of " +
                     std::to_string(data_bytes) + " bytes of data");
  }
  return {};
}

/// By sorting: hashing could be made slow by chosen names.
Result<void> check_names(const std::vector<RawTensor>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const RawTensor& tensor : tensors) names.emplace_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return bad_input(tensor_text(std::string(*twice)) + "the name appears twice");
}

/// The header's length from the first bytes, checked against the limit and the file's size.
Result<std::uint64_t> header_length(std::span<const std::byte> head, std::uint64_t file_bytes,
                                    std::string_view name) {
  if (file_bytes < kLengthBytes || head.size() < kLengthBytes) {
    return in_file(name, "header length: the file has only " + std::to_string(file_bytes) +
                             " bytes, 8 are needed");
  }
  const auto length = load_le<std::uint64_t>(head.data());
  if (length > kSafetensorsHeaderLimit) {
    return in_file(
        name, "header length: " + std::to_string(length) + " bytes, the format allows 100000000");
  }
  if (length > file_bytes - kLengthBytes) {
    return in_file(name, "header length: " + std::to_string(length) + " bytes, the file has only " +
                             std::to_string(file_bytes - kLengthBytes) + " after it");
  }
  return length;
}

/// A file open for reading, and its size.
struct OpenFile {
  std::ifstream stream;
  std::uint64_t bytes = 0;

  /// Fills `into` completely or reports the file as cut short.
  Result<void> read(std::span<std::byte> into, std::string_view name) {
    stream.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size()));
    if (stream.gcount() == static_cast<std::streamsize>(into.size())) return {};
    return in_file(name, "reading failed: the file ended early or the device reports an error");
  }
};

Result<OpenFile> open_file(const std::string& path) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) {
    return in_file(path, status ? "cannot be read: " + status.message() : "is not a regular file");
  }
  OpenFile file;
  file.bytes = std::filesystem::file_size(path, status);
  if (status) return in_file(path, "cannot be read: " + status.message());
  file.stream.open(path, std::ios::binary);
  if (!file.stream) return in_file(path, std::string("cannot be read: ") + std::strerror(errno));
  return file;
}

Result<SafetensorsHeader> read_header(OpenFile& file, const std::string& path) {
  std::vector<std::byte> head(std::min<std::uint64_t>(file.bytes, kLengthBytes));
  if (auto read = file.read(head, path); !read) return std::move(read).error();
  const auto length = header_length(head, file.bytes, path);
  if (!length) return length.error();
  head.resize(kLengthBytes + *length);
  if (auto read = file.read(std::span(head).subspan(kLengthBytes), path); !read) {
    return std::move(read).error();
  }
  return parse_safetensors(head, file.bytes, path);
}

float value_at(const std::byte* at, Dtype dtype) noexcept {
  if (dtype == Dtype::f16) return float_of_f16(load_le<std::uint16_t>(at));
  if (dtype == Dtype::bf16) return float_of_bf16(load_le<std::uint16_t>(at));
  return std::bit_cast<float>(load_le<std::uint32_t>(at));
}

/// Appends the file's next bytes, the tensor's, to `values`.
Result<void> append_tensor(OpenFile& file, const StoredTensor& tensor, const std::string& path,
                           std::vector<float>& values) {
  std::array<std::byte, 65536> block;
  const std::uint64_t size = size_of(tensor.dtype);
  for (std::uint64_t at = tensor.begin; at < tensor.end;) {
    const std::uint64_t count = std::min<std::uint64_t>(tensor.end - at, block.size());
    if (auto read = file.read(std::span(block).first(count), path); !read) return read;
    for (std::uint64_t i = 0; i < count; i += size) {
      values.push_back(value_at(block.data() + i, tensor.dtype));
    }
    at += count;
  }
  return {};
}

}  // namespace

std::uint64_t size_of(Dtype dtype) noexcept {
  return kDtypes[static_cast<std::size_t>(dtype)].bytes;
}

std::string_view to_string(Dtype dtype) noexcept {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}

std::uint64_t SafetensorsHeader::elements() const noexcept {
  std::uint64_t total = 0;
  for (const StoredTensor& tensor : tensors)
    total += (tensor.end - tensor.begin) / size_of(tensor.dtype);
  return total;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> head,
                                            std::uint64_t file_bytes, std::string_view name) {
  const auto length = header_length(head, file_bytes, name);
  if (!length) return length.error();
  if (head.size() - kLengthBytes < *length) {
    return in_file(name, "header: only " + std::to_string(head.size() - kLengthBytes) + " of " +
                             std::to_string(*length) + " bytes are there");
  }
  const auto text = head.subspan(kLengthBytes, *length);
  auto raw = parse_safetensors_json({reinterpret_cast<const char*>(text.data()), text.size()});
  if (!raw) return in_file(name, raw.error().message);
  if (auto unique = check_names(*raw); !unique) return in_file(name, unique.error().message);
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + *length;
  const std::uint64_t data_bytes = file_bytes - header.data_offset;
  header.tensors.reserve(raw->size());
  for (RawTensor& entry : *raw) {
    auto tensor = checked_tensor(std::move(entry), data_bytes);
    if (!tensor) return in_file(name, tensor.error().message);
    header.tensors.push_back(std::move(*tensor));
  }
  if (auto cover = check_cover(header.tensors, data_bytes); !cover) {
    return in_file(name, cover.error().message);
  }
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const std::string& path) {
  auto file = open_file(path);
  if (!file) return std::move(file).error();
  return read_header(*file, path);
}

Result<LoadedParameters> load_safetensors(const std::string& path) {
  auto file = open_file(path);
  if (!file) return std::move(file).error();
  const auto header = read_header(*file, path);
  if (!header) return header.error();
  for (const StoredTensor& tensor : header->tensors) {
    if (tensor.dtype == Dtype::f32 || tensor.dtype == Dtype::f16 || tensor.dtype == Dtype::bf16) {
      continue;
    }
    return in_file(path, tensor_text(tensor.spec.name) +
                             "dtype: " + std::string(to_string(tensor.dtype)) +
                             " cannot be averaged; F32, F16 and BF16 can");
  }
  if (header->elements() == 0) return in_file(path, "holds no parameters");
  LoadedParameters loaded;
  loaded.set.name = std::filesystem::path(path).filename().string();
  loaded.values.reserve(header->elements());
  for (const StoredTensor& tensor : header->tensors) {
    if (auto read = append_tensor(*file, tensor, path, loaded.values); !read) {
      return std::move(read).error();
    }
    loaded.set.tensors.push_back(tensor.spec);
  }
  return loaded;
}

float float_of_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

float float_of_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1FU) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
  }
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // subnormal or zero
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

}  // namespace selmcast
