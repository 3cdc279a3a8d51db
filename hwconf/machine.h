// What this machine is, as a value: read once, passed around, printed beside every measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace selmcast {

struct CacheLevel {
  std::uint32_t level = 0;       ///< 1, 2, 3; data or unified caches only.
  std::uint64_t bytes = 0;       ///< Size of one cache of this level.
  std::uint32_t line_bytes = 0;  ///< 0 when unknown.
  std::uint32_t count = 0;       ///< How many of them the machine has.
};

struct Processor {
  std::string model;                ///< As /proc/cpuinfo words it; empty when it does not.
  std::uint32_t cores = 0;          ///< Physical cores.
  std::uint32_t threads = 0;        ///< Hardware threads (what the kernel calls a CPU).
  std::uint32_t usable = 0;         ///< Hardware threads that this process may run on.
  std::optional<double> cpu_quota;  ///< CPUs' worth of time that the control group allows.
  std::uint32_t numa_nodes = 0;
  std::vector<CacheLevel> caches;  ///< Ascending level.
};

struct Memory {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes =
      0;                         ///< What can be had without swapping, by the kernel's estimate.
  std::uint64_t swap_bytes = 0;  ///< Total.
};

struct NetworkInterface {
  std::string name;
  std::uint32_t index = 0;  ///< Kernel index, as IP_MULTICAST_IF takes it.
  std::uint32_t mtu = 0;    ///< Largest IP packet in bytes.
  bool up = false;          ///< Administratively up.
  bool running = false;     ///< Up, and the kernel believes that packets can pass.
  bool loopback = false;
  bool multicast =
      false;  ///< The IFF_MULTICAST flag; loopback lacks it and multicasts all the same.
  bool physical = false;          ///< A device stands behind it.
  Kbps speed_kbps = 0;            ///< Link speed; 0 when the driver does not say.
  std::vector<std::string> ipv4;  ///< Addresses in dotted form.
};

struct Limits {
  std::optional<std::uint64_t> memlock_bytes;  ///< RLIMIT_MEMLOCK; nothing means unlimited.
  std::optional<std::uint64_t> open_files;     ///< RLIMIT_NOFILE; nothing means unlimited.
  std::uint64_t receive_buffer_bytes = 0;      ///< net.core.rmem_max; 0 when unknown.
  std::uint64_t send_buffer_bytes = 0;         ///< net.core.wmem_max; 0 when unknown.
  std::uint32_t igmp_memberships = 0;          ///< Groups that one socket may join; 0 when unknown.
};

struct IoUring {
  bool usable = false;  ///< A ring opened, and all operations of transport/uring are there.
  bool send_zero_copy = false;
  bool buffer_ring = false;  ///< The kernel takes receive buffers from a ring.
  std::string reason;        ///< Why it is not usable; empty when it is.
};

struct Privileges {
  bool root = false;                  ///< Effective user 0.
  bool network_admin = false;         ///< CAP_NET_ADMIN.
  bool lock_memory = false;           ///< CAP_IPC_LOCK: RLIMIT_MEMLOCK does not bind.
  bool force_receive_buffer = false;  ///< SO_RCVBUFFORCE works: rmem_max does not bind.
};

struct Machine {
  std::string kernel_release;
  std::string architecture;
  Processor processor;
  Memory memory;
  std::vector<NetworkInterface> interfaces;  ///< Ascending index.
  Limits limits;
  IoUring io_uring;
  Privileges privileges;
};

/// Reads all of it from the running kernel, within a few milliseconds. Never fails: what cannot be
/// read stays at its "unknown" value. Thread-safe.
Machine describe_machine();

/// The parts, each for itself.
Processor describe_processor();
Memory describe_memory();
std::vector<NetworkInterface> describe_interfaces();
Limits describe_limits();
IoUring probe_io_uring();
Privileges describe_privileges();

/// The machine in a few short lines ("kernel: 6.1.0", ...) to stand beside benchmark results. Names
/// no host, user or address.
std::string machine_facts(const Machine& machine);

/// A size with a binary unit, exact where it divides evenly: "32 KiB", "23.5 GiB".
std::string size_text(std::uint64_t bytes);

}  // namespace selmcast
