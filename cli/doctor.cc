#include "cli/doctor.h"

#include <algorithm>
#include <memory>

#include "cli/common.h"
#include "cli/doctor_memory.h"

namespace selmcast {
namespace {

// Below these a job works, but loses frames or reaches few workers.
constexpr std::uint64_t kReceiveBufferWanted = 4U << 20U;
constexpr std::uint32_t kMembershipsWanted = 20;
constexpr std::uint64_t kLockedMemoryWanted = 8U << 20U;
constexpr std::uint32_t kSmallestMtu = 576;

bool carries_ipv4(const NetworkInterface& interface) {
  return interface.up && !interface.ipv4.empty();
}

void find_interface_problems(const Machine& machine, std::vector<Finding>& problems) {
  bool other_hosts = false;
  for (const NetworkInterface& interface : machine.interfaces) {
    if (interface.loopback || !carries_ipv4(interface)) continue;
    other_hosts = true;
    if (!interface.multicast) {
      problems.push_back({"interface " + interface.name + " has multicast turned off",
                          "ip link set " + interface.name + " multicast on"});
    }
    if (interface.mtu < kSmallestMtu) {
      problems.push_back({"interface " + interface.name + " has an MTU of " +
                              std::to_string(interface.mtu) + " bytes; frames get very small",
                          "ip link set " + interface.name + " mtu 1500"});
    }
  }
  if (!other_hosts) {
    problems.push_back(
        {"no interface but loopback is up with an IPv4 address: workers of this "
         "host only",
         "ip address add ADDRESS/PREFIX dev NAME; ip link set NAME up"});
  }
}

void find_limit_problems(const Machine& machine, std::vector<Finding>& problems) {
  const Limits& limits = machine.limits;
  const Privileges& privileges = machine.privileges;
  if (limits.receive_buffer_bytes < kReceiveBufferWanted && !privileges.force_receive_buffer) {
    problems.push_back({"receive buffers of sockets are limited to " +
                            size_text(limits.receive_buffer_bytes) + ": bursts get lost",
                        "sysctl -w net.core.rmem_max=" + std::to_string(kReceiveBufferWanted)});
  }
  if (limits.igmp_memberships != 0 && limits.igmp_memberships < kMembershipsWanted) {
    problems.push_back(
        {"a socket may join only " + std::to_string(limits.igmp_memberships) + " multicast groups",
         "sysctl -w net.ipv4.igmp_max_memberships=" + std::to_string(kMembershipsWanted)});
  }
  if (limits.memlock_bytes && *limits.memlock_bytes < kLockedMemoryWanted &&
      !privileges.lock_memory) {
    problems.push_back({"only " + size_text(*limits.memlock_bytes) +
                            " of memory may be locked: registered buffers may be refused",
                        "ulimit -l " + std::to_string(kLockedMemoryWanted / 1024) +
                            ", or a line in /etc/security/limits.conf"});
  }
}

nlohmann::ordered_json optional_number(const std::optional<std::uint64_t>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json machine_json(const Machine& machine) {
  const Processor& processor = machine.processor;
  auto caches = nlohmann::ordered_json::array();
  for (const CacheLevel& cache : processor.caches) {
    caches.push_back({{"level", cache.level},
                      {"bytes", cache.bytes},
                      {"line_bytes", cache.line_bytes},
                      {"count", cache.count}});
  }
  nlohmann::ordered_json json = {{"kernel", machine.kernel_release},
                                 {"architecture", machine.architecture},
                                 {"processor", processor.model},
                                 {"cores", processor.cores},
                                 {"threads", processor.threads},
                                 {"usable_threads", processor.usable},
                                 {"numa_nodes", processor.numa_nodes},
                                 {"caches", std::move(caches)},
                                 {"memory_bytes", machine.memory.total_bytes},
                                 {"memory_available_bytes", machine.memory.available_bytes}};
  json["cpu_quota"] = processor.cpu_quota ? nlohmann::ordered_json(*processor.cpu_quota) : nullptr;
  json["root"] = machine.privileges.root;
  json["network_admin"] = machine.privileges.network_admin;
  return json;
}

nlohmann::ordered_json limits_json(const Machine& machine) {
  const Limits& limits = machine.limits;
  return {{"memlock_bytes", optional_number(limits.memlock_bytes)},
          {"open_files", optional_number(limits.open_files)},
          {"receive_buffer_bytes", limits.receive_buffer_bytes},
          {"force_receive_buffer", machine.privileges.force_receive_buffer},
          {"send_buffer_bytes", limits.send_buffer_bytes},
          {"igmp_memberships", limits.igmp_memberships},
          {"io_uring", machine.io_uring.usable},
          {"io_uring_reason", machine.io_uring.reason}};
}

nlohmann::ordered_json interfaces_json(const std::vector<NetworkInterface>& interfaces) {
  auto list = nlohmann::ordered_json::array();
  for (const NetworkInterface& interface : interfaces) {
    list.push_back({{"name", interface.name},
                    {"mtu", interface.mtu},
                    {"up", interface.up},
                    {"running", interface.running},
                    {"loopback", interface.loopback},
                    {"multicast", interface.multicast},
                    {"physical", interface.physical},
                    {"speed_kbps", interface.speed_kbps},
                    {"ipv4", interface.ipv4}});
  }
  return list;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string limit_text(const std::optional<std::uint64_t>& bytes) {
  return bytes ? size_text(*bytes) : "unlimited";
}

std::string interface_line(const NetworkInterface& interface) {
  std::string addresses;
  for (const std::string& address : interface.ipv4) {
    addresses += (addresses.empty() ? "" : " ") + address;
  }
  const std::string speed = interface.speed_kbps == 0
                                ? "speed unknown"
                                : std::to_string(interface.speed_kbps / 1000) + " Mbit/s";
  return "  " + padded(interface.name, 12) + padded(interface.up ? "up" : "down", 6) +
         padded("mtu " + std::to_string(interface.mtu), 11) + padded(speed, 16) +
         padded(interface.multicast ? "multicast" : "no multicast", 14) +
         (addresses.empty() ? "no IPv4 address" : addresses) + "\n";
}

std::string limits_text(const Machine& machine) {
  const Limits& limits = machine.limits;
  std::string text = "  receive buffer  " + size_text(limits.receive_buffer_bytes) +
                     (machine.privileges.force_receive_buffer ? " (may be exceeded)\n" : "\n");
  text += "  send buffer     " + size_text(limits.send_buffer_bytes) + "\n";
  text += "  locked memory   " + limit_text(limits.memlock_bytes) +
          (machine.privileges.lock_memory ? " (may be exceeded)\n" : "\n");
  text += "  memberships     " + std::to_string(limits.igmp_memberships) + " per socket\n";
  text += "  io_uring        " +
          (machine.io_uring.usable ? "usable" : "not usable: " + machine.io_uring.reason) + "\n";
  return text;
}

int run_doctor(const std::string& json_path) {
  Result<JsonOutput> json = JsonOutput::open(json_path);
  if (!json) return print_error(json.error());
  const Machine machine = describe_machine();
  const std::vector<BackendState> transports = backend_states();
  const MemoryState memory = describe_device_memory();
  std::vector<Finding> problems = find_problems(machine, transports);
  const bool rdma = std::any_of(transports.begin(), transports.end(), [](const BackendState& one) {
    return one.name == "verbs" && one.usable;
  });
  find_memory_problems(memory, rdma, problems);
  if (json->human() != nullptr) {
    std::fputs(doctor_text(machine, transports, problems, memory).c_str(), json->human());
  }
  const Result<void> written = json->write(doctor_json(machine, transports, problems, memory));
  return written ? 0 : print_error(written.error());
}

}  // namespace

std::vector<Finding> find_problems(const Machine& machine,
                                   const std::vector<BackendState>& transports) {
  std::vector<Finding> problems;
  if (!machine.io_uring.usable) {
    problems.push_back({"io_uring is not usable", machine.io_uring.reason});
  }
  for (const BackendState& transport : transports) {
    if (transport.usable) continue;
    problems.push_back({"transport " + transport.name + " is not usable", transport.reason});
  }
  find_interface_problems(machine, problems);
  find_limit_problems(machine, problems);
  return problems;
}

nlohmann::ordered_json doctor_json(const Machine& machine,
                                   const std::vector<BackendState>& transports,
                                   const std::vector<Finding>& problems,
                                   const MemoryState& memory) {
  auto transport_list = nlohmann::ordered_json::array();
  for (const BackendState& transport : transports) {
    transport_list.push_back(
        {{"name", transport.name}, {"usable", transport.usable}, {"reason", transport.reason}});
  }
  auto problem_list = nlohmann::ordered_json::array();
  for (const Finding& problem : problems) {
    problem_list.push_back({{"what", problem.what}, {"remedy", problem.remedy}});
  }
  nlohmann::ordered_json json;
  json["machine"] = machine_json(machine);
  json["limits"] = limits_json(machine);
  json["memory"] = memory_json(memory);
  json["interfaces"] = interfaces_json(machine.interfaces);
  json["transports"] = std::move(transport_list);
  json["problems"] = std::move(problem_list);
  return json;
}

std::string doctor_text(const Machine& machine, const std::vector<BackendState>& transports,
                        const std::vector<Finding>& problems, const MemoryState& memory) {
  std::string text = "Machine\n";
  std::string facts = machine_facts(machine);
  for (std::size_t start = 0; start < facts.size();) {
    const std::size_t end = facts.find('\n', start) + 1;
    text += "  " + facts.substr(start, end - start);
    start = end;
  }
  text += "\nInterfaces\n";
  for (const NetworkInterface& interface : machine.interfaces) text += interface_line(interface);
  text += "\nLimits\n" + limits_text(machine);
  text += "\nMemory of devices\n" + memory_text(memory);
  text += "\nTransports\n";
  for (const BackendState& transport : transports) {
    text += "  " + padded(transport.name, 8) +
            padded(transport.usable ? "usable" : "not usable", 12) + transport.reason + "\n";
  }
  text += problems.empty() ? "\nNothing to mend.\n" : "\nTo mend\n";
  for (const Finding& problem : problems) {
    text += "  " + problem.what + "\n      -> " + problem.remedy + "\n";
  }
  return text;
}

void add_doctor_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("doctor", "Show what this machine offers and what to fix");
  auto json_path = std::make_shared<std::string>();
  command
      ->add_option("--json", *json_path, "Write the report as JSON to FILE (- for standard output)")
      ->type_name("FILE");
  command->footer("Example:\n  selmcast doctor\n  selmcast doctor --json - | python3 -m json.tool");
  command->callback([json_path, &exit_status] { exit_status = run_doctor(*json_path); });
}

}  // namespace selmcast
