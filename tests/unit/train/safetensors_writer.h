// Writes safetensors files for tests, honest ones and, through the raw form, lying ones.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"

namespace selmcast::testing {

/// A file's bytes: `length` says how long the header is, whatever `header` holds.
inline Bytes safetensors_bytes(std::uint64_t length, std::string_view header, const Bytes& data) {
  WireWriter out;
  out.put(length);
  for (const char c : header) out.put(static_cast<std::uint8_t>(c));
  for (const std::byte b : data) out.put(static_cast<std::uint8_t>(b));
  return out.take();
}
inline Bytes safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  return safetensors_bytes(header.size(), header, Bytes(data_bytes));
}

/// An entry of the header.
inline std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::uint64_t begin, std::uint64_t end) {
  return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) +
         "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":[" + std::to_string(begin) +
         "," + std::to_string(end) + "]}";
}

/// A file that is removed at the end of the test.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const Bytes& bytes)
      : path_((std::filesystem::path(::testing::TempDir()) /
               (name + "-" + std::to_string(::getpid())))
                  .string()) {
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace selmcast::testing
