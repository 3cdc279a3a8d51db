#include "cli/doctor_memory.h"

#include "cli/common.h"

namespace selmcast {
namespace {

constexpr std::size_t kTried = std::size_t{8} << 20U;  // about what a device's receives take

Finding split(const std::string& message) {
  const auto at = message.find("; ");
  if (at == std::string::npos) return {message, message};
  return {message.substr(0, at), message.substr(at + 2)};
}

std::string pages_text(const MemoryState& memory) {
  switch (memory.pages) {
    case PageKind::hugetlb:
      return "huge pages (vm.nr_hugepages)";
    case PageKind::transparent:
      return "transparent huge pages" + (memory.huge_bytes
                                             ? ", " + size_text(*memory.huge_bytes) + " of " +
                                                   size_text(memory.buffer_bytes) + " huge"
                                             : std::string());
    case PageKind::plain:
      break;
  }
  return "plain pages";
}

}  // namespace

MemoryState describe_device_memory() {
  MemoryState out;
  if (auto arena = Arena::map(kTried)) {
    out.buffer_bytes = arena->size();
    out.pages = arena->pages();
    out.huge_bytes = arena->huge_bytes();
  } else {
    out.buffer_error = arena.error().message;
  }
  return out;
}

void find_memory_problems(const MemoryState& memory, bool rdma, std::vector<Finding>& problems) {
  if (!memory.buffer_error.empty()) problems.push_back(split(memory.buffer_error));
  if (!rdma) return;
  if (memory.buffer_error.empty() && memory.pages == PageKind::plain) {
    problems.push_back({"buffers of devices get plain pages: more address translations",
                        "sysctl -w vm.nr_hugepages=64, or echo madvise > "
                        "/sys/kernel/mm/transparent_hugepage/enabled"});
  }
}

nlohmann::ordered_json memory_json(const MemoryState& memory) {
  nlohmann::ordered_json json;
  const bool there = memory.buffer_error.empty();
  json["buffer_pages"] = there ? nlohmann::ordered_json(name_of(memory.pages)) : nullptr;
  json["buffer_bytes"] = memory.buffer_bytes;
  json["huge_bytes"] =
      memory.huge_bytes ? nlohmann::ordered_json(*memory.huge_bytes) : nlohmann::ordered_json();
  return json;
}

std::string memory_text(const MemoryState& memory) {
  return "  buffers         " +
         (memory.buffer_error.empty() ? pages_text(memory) : memory.buffer_error) + "\n";
}

}  // namespace selmcast
