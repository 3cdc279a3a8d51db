#include "cli/perf.h"

#include <arpa/inet.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/perf_output.h"
#include "tools/perf/perf.h"

namespace selmcast {
namespace {

constexpr double kSecondsMost = 86'400;

struct PerfCommand {
  perf::Settings settings;
  std::vector<std::string> hosts;
  std::string transport = "verbs", op = "write", group = "239.77.1.1", alone, json;
  double duration_s = 1, timeout_s = 20;
  std::uint32_t port = 18'600;
  bool accept_counters = false, no_warm_up = false;
};

Result<Duration> seconds_of(const char* flag, double seconds) {
  if (!(seconds > 0 && seconds <= kSecondsMost)) {
    return bad_input(std::string("perf: ") + flag + ": " + std::to_string(seconds) +
                     " is not within 0 (exclusive) .. 86400 seconds");
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Result<void> check_alone(const PerfCommand& c) {
  if (c.alone.empty()) return {};
  if (c.alone != "send" && c.alone != "receive") {
    return bad_input("perf: --alone '" + c.alone + "' is unknown; allowed: send, receive");
  }
  if (c.settings.op != perf::Op::multicast) {
    return bad_input("perf: --alone is for --op multicast: only a group needs no exchange");
  }
  if (!c.hosts.empty()) return bad_input("perf: --alone has no server: leave out the host");
  if (c.settings.iterations == 0) return bad_input("perf: --alone needs --iterations");
  if (c.settings.latency) return bad_input("perf: --alone has no --latency");
  return {};
}

/// Flags into settings.
Result<void> read_flags(PerfCommand& c) {
  perf::Settings& s = c.settings;
  if (c.transport != "verbs") {
    return bad_input("perf: --transport " + c.transport +
                     ": allowed is verbs; `selmcast probe` measures the links of shm and uring");
  }
  auto op = perf::parse_op(c.op);
  if (!op) return op.error();
  s.op = *op;
  auto duration = seconds_of("--duration", c.duration_s);
  if (!duration) return duration.error();
  s.duration = *duration;
  auto timeout = seconds_of("--timeout", c.timeout_s);
  if (!timeout) return timeout.error();
  s.timeout = *timeout;
  if (c.port == 0 || c.port > 65'535) {
    return bad_input("perf: --port: " + std::to_string(c.port) + " is not within 1..65535");
  }
  s.warm_up = !c.no_warm_up;
  s.port = static_cast<std::uint16_t>(c.port);
  if (s.op == perf::Op::multicast) {
    in_addr group{};
    if (inet_pton(AF_INET, c.group.c_str(), &group) != 1) {
      return bad_input("perf: --group: '" + c.group + "' is not an IPv4 address");
    }
    s.group = ntohl(group.s_addr);
  }
  if (auto ok = perf::check(s); !ok) return ok;
  return check_alone(c);
}

Result<perf::Outcome> measure(const PerfCommand& c, std::FILE* human) {
  if (c.alone == "send") return perf::send_alone(c.settings);
  if (c.alone == "receive") return perf::receive_alone(c.settings);
  if (c.hosts.empty()) return perf::run_server(c.settings);
  Progress progress(is_terminal(human) ? human : nullptr, "perf", c.settings.repeats);
  return perf::run_client(c.settings, c.hosts,
                          [&](std::uint32_t done, std::uint32_t) { progress.update(done); });
}

Result<void> run_perf(PerfCommand& c) {
  if (auto ok = read_flags(c); !ok) return ok;
  auto json = JsonOutput::open(c.json);
  if (!json) return std::move(json).error();
  if (auto ok = json->drop_old(); !ok) return ok;
  auto outcome = measure(c, json->human());
  if (!outcome) return std::move(outcome).error();
  const std::string trouble = trouble_of(c.settings, *outcome);
  if (!trouble.empty() && !c.accept_counters) {
    return failed("perf: no figure: packets were lost, refused or sent again meanwhile (" +
                  trouble +
                  "); find the cause (README: line-rate benchmarks), measure again, or have the "
                  "figure all the same with --accept-counters");
  }
  const PerfRole role = c.alone == "send"      ? PerfRole::sender
                        : c.alone == "receive" ? PerfRole::receiver
                        : c.hosts.empty()      ? PerfRole::server
                                               : PerfRole::client;
  auto document = perf_json(c.settings, role, *outcome);
  if (!trouble.empty()) print_notice("counters moved: " + trouble);
  if (json->human() != nullptr) std::fputs(perf_text(document).c_str(), json->human());
  return json->write(std::move(document));
}

void add_common(CLI::App& sub, PerfCommand& c) {
  perf::Settings& s = c.settings;
  sub.add_option("host", c.hosts,
                 "Host of the server; without one this end is the server. Multicast takes several");
  sub.add_option("--transport", c.transport, "The transport to measure: verbs")
      ->capture_default_str();
  sub.add_option("--op", c.op, "Operation: write, write-imm, read, send, ud, multicast or atomic")
      ->capture_default_str();
  sub.add_option("--size", s.size, "Bytes in a message")->capture_default_str();
  sub.add_option("--depth", s.depth, "Messages that may be under way on one queue pair")
      ->capture_default_str();
  sub.add_option("--queue-pairs", s.queue_pairs,
                 "Connected queue pairs; messages are assigned round-robin")
      ->capture_default_str();
  sub.add_flag("--latency", s.latency,
               "Measure the latency: a ping-pong with one message at a time");
  sub.add_flag("--verify-all", s.verify_all, "Receivers check every byte instead of a sample");
  sub.add_option("--group", c.group, "Address of the multicast group")->capture_default_str();
  sub.add_option("--device", s.device,
                 "DEVICE[:PORT[:GID_INDEX]]; the default is the first usable device");
  sub.add_option("--port", c.port, "TCP port by which the two ends agree on the measurement")
      ->capture_default_str();
  sub.add_option("--timeout", c.timeout_s, "Seconds for which the other end may be silent")
      ->capture_default_str();
  sub.add_flag("--events", s.events, "Sleep until something completes, instead of polling");
  sub.add_option("--inline", s.inline_bytes,
                 "Send messages of up to this many bytes inside the request")
      ->capture_default_str();
  sub.add_option("--json", c.json, "Write the result as JSON to this file (`-`: standard output)");
}

void add_of_client(CLI::App& sub, PerfCommand& c) {
  perf::Settings& s = c.settings;
  sub.add_option("--post-list", s.post_list, "Client: messages that are posted with one doorbell")
      ->capture_default_str();
  sub.add_option("--signal-every", s.signal_every,
                 "Client: ask for one completion after this many messages; 0 means half of --depth")
      ->capture_default_str();
  sub.add_option("--duration", c.duration_s, "Client: seconds that a repeat takes")
      ->capture_default_str();
  sub.add_option("--iterations", s.iterations, "Client: messages in a repeat, instead of a time")
      ->capture_default_str();
  sub.add_option("--repeats", s.repeats, "Client: repeats after the warm-up")
      ->capture_default_str();
  sub.add_flag("--no-warm-up", c.no_warm_up, "Client: measure without a warm-up, as perftest does");
  sub.add_option("--rate-limit", s.rate_limit_kbps,
                 "Client: rate in kbit/s to which the device paces packets; 0 means no limit")
      ->capture_default_str();
  sub.add_option(
      "--alone", c.alone,
      "send or receive: measure a group whose other end is another program, such as mckey");
  sub.add_flag("--accept-counters", c.accept_counters,
               "Report the result even if loss or retry counters of the devices moved");
}

}  // namespace

void add_perf_command(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<PerfCommand>();
  auto* sub = app.add_subcommand("perf", "Measure one RDMA transport between two hosts");
  add_common(*sub, *command);
  add_of_client(*sub, *command);
  sub->footer(
      "Start the server first. Example:\n  selmcast perf --op write --size 65536 --device mlx5_0\n"
      "  selmcast perf SERVER_HOST --op write --size 65536 --device mlx5_0 --post-list 16");
  sub->callback([command, &exit_status] {
    if (auto ok = run_perf(*command); !ok) exit_status = print_error(ok.error());
  });
}

}  // namespace selmcast
