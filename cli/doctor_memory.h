// What `selmcast doctor` says about memory for devices: the pages that buffers get.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/arena.h"
#include "cli/doctor.h"

namespace selmcast {

struct MemoryState {
  std::size_t buffer_bytes = 0;           ///< Of the buffer that was tried; 0: there was none.
  PageKind pages = PageKind::plain;       ///< Its pages.
  std::optional<std::size_t> huge_bytes;  ///< Of it, in huge pages.
  std::string buffer_error;               ///< Why there was none.
};

/// Tries a buffer, and gives it back.
MemoryState describe_device_memory();

/// Judges it; pure. `rdma`: an RDMA device is usable, without which nothing is registered.
void find_memory_problems(const MemoryState& memory, bool rdma, std::vector<Finding>& problems);

nlohmann::ordered_json memory_json(const MemoryState& memory);

/// The lines of the human form.
std::string memory_text(const MemoryState& memory);

}  // namespace selmcast
