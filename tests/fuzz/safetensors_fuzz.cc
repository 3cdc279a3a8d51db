// The bytes are a whole file: whatever they say, the parser answers with a header that holds what
// its declaration promises, or with one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "train/safetensors.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = selmcast::parse_safetensors(bytes, size, "input");
  if (!header) {
    require(header.error().kind == selmcast::ErrorKind::bad_input);
    const std::string& message = header.error().message;
    require(message.starts_with("input: ") && message.find('\n') == std::string::npos);
    return 0;
  }
  std::uint64_t covered = header->data_offset;
  for (const auto& tensor : header->tensors) {
    require(header->data_offset + tensor.begin == covered && tensor.begin <= tensor.end);
    require(tensor.spec.elements() * size_of(tensor.dtype) == tensor.end - tensor.begin);
    covered = header->data_offset + tensor.end;
  }
  require(covered == size);
  return 0;
}
