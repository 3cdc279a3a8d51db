#include "hwconf/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <array>
#include <cstdio>

#include "base/system_files.h"

namespace selmcast {
namespace {

std::optional<std::uint64_t> resource_limit(decltype(RLIMIT_MEMLOCK) resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::uint64_t kernel_setting(const std::string& name) {
  return read_system_number("/proc/sys/" + name).value_or(0);
}

std::uint64_t meminfo_bytes(const std::string& meminfo, const char* key) {
  const auto value = value_of_key(meminfo, key);
  return value ? leading_number(*value).value_or(0) * 1024 : 0;
}

std::string interface_facts(const NetworkInterface& interface) {
  std::string line = interface.name + " mtu " + std::to_string(interface.mtu);
  if (interface.speed_kbps != 0) {
    line += " " + std::to_string(interface.speed_kbps / 1000) + " Mbit/s";
  }
  return line;
}

}  // namespace

Memory describe_memory() {
  const std::string meminfo = read_system_file("/proc/meminfo").value_or("");
  return {meminfo_bytes(meminfo, "MemTotal"), meminfo_bytes(meminfo, "MemAvailable"),
          meminfo_bytes(meminfo, "SwapTotal")};
}

Limits describe_limits() {
  Limits limits;
  limits.memlock_bytes = resource_limit(RLIMIT_MEMLOCK);
  limits.open_files = resource_limit(RLIMIT_NOFILE);
  limits.receive_buffer_bytes = kernel_setting("net/core/rmem_max");
  limits.send_buffer_bytes = kernel_setting("net/core/wmem_max");
  limits.igmp_memberships =
      static_cast<std::uint32_t>(kernel_setting("net/ipv4/igmp_max_memberships"));
  return limits;
}

Machine describe_machine() {
  Machine machine;
  utsname names{};
  if (::uname(&names) == 0) {
    machine.kernel_release = names.release;
    machine.architecture = names.machine;
  }
  machine.processor = describe_processor();
  machine.memory = describe_memory();
  machine.interfaces = describe_interfaces();
  machine.limits = describe_limits();
  machine.io_uring = probe_io_uring();
  machine.privileges = describe_privileges();
  return machine;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::array<char, 48> text{};
  const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", value, kUnits.at(unit));
  return text.data();
}

std::string machine_facts(const Machine& machine) {
  const Processor& processor = machine.processor;
  std::string facts = "kernel: " + machine.kernel_release + " " + machine.architecture + "\n";
  facts += "processor: " + (processor.model.empty() ? "unknown" : processor.model) + ", " +
           std::to_string(processor.cores) + " cores, " + std::to_string(processor.threads) +
           " threads (" + std::to_string(processor.usable) + " usable), " +
           std::to_string(processor.numa_nodes) + " NUMA nodes\n";
  if (!processor.caches.empty()) {
    std::string caches;
    for (const CacheLevel& cache : processor.caches) {
      caches += (caches.empty() ? "L" : ", L") + std::to_string(cache.level) + " " +
                std::to_string(cache.count) + " x " + size_text(cache.bytes);
    }
    facts += "caches: " + caches + "\n";
  }
  facts += "memory: " + size_text(machine.memory.total_bytes) + "\n";
  std::string interfaces;
  for (const NetworkInterface& interface : machine.interfaces) {
    if (!interface.up) continue;
    interfaces += (interfaces.empty() ? "" : ", ") + interface_facts(interface);
  }
  facts += "interfaces up: " + (interfaces.empty() ? "none" : interfaces) + "\n";
  return facts;
}

}  // namespace selmcast
