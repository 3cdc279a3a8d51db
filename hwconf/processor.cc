#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/system_files.h"
#include "hwconf/machine.h"

namespace selmcast {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology* topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  // Otherwise only the part of the machine that this process may use would show.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

std::uint32_t count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return static_cast<std::uint32_t>(std::max(hwloc_get_nbobjs_by_type(topology, type), 0));
}

std::vector<CacheLevel> caches_of(hwloc_topology_t topology) {
  std::vector<CacheLevel> caches;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE}) {
    const hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology, type, nullptr);
    if (cache == nullptr) continue;
    caches.push_back({cache->attr->cache.depth, cache->attr->cache.size,
                      cache->attr->cache.linesize, count_of(topology, type)});
  }
  return caches;
}

/// Group version 2: "QUOTA PERIOD" in microseconds, or "max PERIOD".
std::optional<double> control_group_quota() {
  const auto text = read_system_file("/sys/fs/cgroup/cpu.max");
  if (!text) return std::nullopt;
  const auto quota = leading_number(*text);
  const std::size_t blank = text->find(' ');
  if (!quota || blank == std::string::npos) return std::nullopt;
  const auto period = leading_number(std::string_view(*text).substr(blank));
  if (!period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::uint32_t usable_threads(std::uint32_t threads) {
  // CPU_SETSIZE ends at 1024; larger machines need a larger mask.
  for (int cpus = CPU_SETSIZE; cpus <= 64 * CPU_SETSIZE; cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    const int usable = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (usable > 0) return static_cast<std::uint32_t>(usable);
  }
  return threads;
}

}  // namespace

Processor describe_processor() {
  Processor processor;
  const std::string cpuinfo = read_system_file("/proc/cpuinfo").value_or("");
  processor.model = value_of_key(cpuinfo, "model name").value_or("");
  if (const Topology topology = load_topology()) {
    processor.cores = count_of(topology.get(), HWLOC_OBJ_CORE);
    processor.threads = count_of(topology.get(), HWLOC_OBJ_PU);
    processor.numa_nodes = count_of(topology.get(), HWLOC_OBJ_NUMANODE);
    processor.caches = caches_of(topology.get());
  }
  if (processor.threads == 0) {
    processor.threads = static_cast<std::uint32_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
  }
  processor.usable = usable_threads(processor.threads);
  processor.cpu_quota = control_group_quota();
  return processor;
}

}  // namespace selmcast
