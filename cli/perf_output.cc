#include "cli/perf_output.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "tools/perf/counters.h"
#include "tools/perf/figures.h"

namespace selmcast {
namespace {

using nlohmann::ordered_json;

std::string line(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string line(const char* format, ...) {
  std::array<char, 300> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  return text.data();
}

const char* word(PerfRole role) {
  switch (role) {
    case PerfRole::server:
      return "server";
    case PerfRole::client:
      return "client";
    case PerfRole::sender:
      return "sender";
    case PerfRole::receiver:
      return "receiver";
  }
  return "";
}

/// Messages and seconds that make the rate: those of the slowest receiver of datagrams.
struct Base {
  std::uint64_t messages = 0;
  double seconds = 0;
  double rate() const { return seconds > 0 ? static_cast<double>(messages) / seconds : 0; }
};

Base base_of(const perf::Settings& settings, PerfRole role, const perf::Repeat& repeat) {
  Base out{repeat.messages, repeat.seconds};
  if (settings.latency || !perf::takes_receives(settings.op) || repeat.reports.empty()) return out;
  if (role == PerfRole::client && !perf::unreliable(settings.op)) return out;
  bool first = true;
  for (const perf::Report& report : repeat.reports) {
    const Base one{report.received, static_cast<double>(report.elapsed_ns) / 1e9};
    if (first || one.rate() < out.rate()) out = one;
    first = false;
  }
  return out;
}

ordered_json spread_json(std::vector<double> values) {
  const perf::Spread spread = perf::spread_of(std::move(values));
  return {{"median", spread.median}, {"min", spread.least}, {"max", spread.most}};
}

ordered_json moved_json(const std::vector<perf::Moved>& moved) {
  ordered_json out = ordered_json::object();
  for (const auto& one : moved) out[one.name] = one.by;
  return out;
}

ordered_json report_json(const perf::Repeat& repeat, const perf::Report& report) {
  const std::uint64_t good = report.received - std::min(report.received, report.late);
  return {{"received", report.received},
          {"lost", repeat.messages - std::min(repeat.messages, good)},
          {"late", report.late},
          {"foreign", report.foreign},
          {"wrong", report.wrong},
          {"bytes_verified", report.bytes_checked},
          {"seconds", static_cast<double>(report.elapsed_ns) / 1e9},
          {"cpu_s", static_cast<double>(report.cpu_ns) / 1e9},
          {"counters_moved", moved_json(report.moved)}};
}

ordered_json settings_json(const perf::Settings& s, PerfRole role, const perf::Outcome& outcome) {
  ordered_json out;
  out["transport"] = "verbs";
  out["role"] = word(role);
  out["op"] = std::string(perf::name_of(s.op));
  out["device"] = outcome.port;
  out["mtu"] = outcome.mtu_bytes;
  out["size"] = s.size;
  out["depth"] = s.depth;
  out["post_list"] = s.post_list;
  out["signal_every"] = s.signal_every;
  out["queue_pairs"] = s.queue_pairs;
  out["inline"] = outcome.inlined;
  out["events"] = s.events;
  out["rate_limit_kbps"] = s.rate_limit_kbps;
  return out;
}

ordered_json latency_json(const perf::Settings& s, const perf::Outcome& outcome) {
  const bool halved = !perf::answered_by_device(s.op);
  const double unit = halved ? 2'000.0 : 1'000.0;
  const auto over = [&](auto field) {
    std::vector<double> values;
    for (const auto& repeat : outcome.repeats) values.push_back(field(repeat) / unit);
    return spread_json(std::move(values));
  };
  return {{"of", halved ? "half_round_trip" : "round_trip"},
          {"p50", over([](const auto& r) { return double(r.p50); })},
          {"p99", over([](const auto& r) { return double(r.p99); })},
          {"p99_9", over([](const auto& r) { return double(r.p999); })},
          {"mean", over([](const auto& r) { return r.mean; })},
          {"min", over([](const auto& r) { return double(r.least); })},
          {"max", over([](const auto& r) { return double(r.most); })}};
}

ordered_json repeat_json(const perf::Settings& s, PerfRole role, const perf::Repeat& repeat) {
  const Base base = base_of(s, role, repeat);
  ordered_json out{{"messages", repeat.messages},   {"seconds", repeat.seconds},
                   {"messages_per_s", base.rate()}, {"mb_per_s", base.rate() * s.size / 1e6},
                   {"cpu_s", repeat.cpu_seconds},   {"counters_moved", moved_json(repeat.moved)}};
  if (s.latency) out["lost"] = repeat.lost;
  out["receivers"] = ordered_json::array();
  for (const auto& report : repeat.reports) {
    out["receivers"].push_back(report_json(repeat, report));
  }
  return out;
}

}  // namespace

ordered_json perf_json(const perf::Settings& s, PerfRole role, const perf::Outcome& outcome) {
  ordered_json out = settings_json(s, role, outcome);
  std::vector<double> rates, mb, gbit, cpu;
  std::uint64_t verified = outcome.bytes_checked, lost = 0, sent = 0;
  ordered_json repeats = ordered_json::array();
  for (const auto& repeat : outcome.repeats) {
    const Base base = base_of(s, role, repeat);
    rates.push_back(base.rate());
    mb.push_back(base.rate() * s.size / 1e6);
    gbit.push_back(base.rate() * s.size * 8 / 1e9);
    const double gb = static_cast<double>(base.messages) * s.size / 1e9;
    if (gb > 0) cpu.push_back(repeat.cpu_seconds / gb);
    for (const auto& report : repeat.reports) verified += report.bytes_checked;
    repeats.push_back(repeat_json(s, role, repeat));
    sent += repeat.messages;
    for (const auto& one : repeats.back()["receivers"]) lost += one["lost"].get<std::uint64_t>();
  }
  if (s.latency && role == PerfRole::client) {
    out["latency_us"] = latency_json(s, outcome);
  } else if (!s.latency && (role != PerfRole::server || perf::takes_receives(s.op))) {
    out["messages_per_s"] = spread_json(std::move(rates));
    out["mb_per_s"] = spread_json(std::move(mb));
    out["gbit_per_s"] = spread_json(std::move(gbit));
    if (!cpu.empty()) out["cpu_s_per_gb"] = spread_json(std::move(cpu));
  }
  out["messages"] = sent;
  out["bytes_verified"] = verified;
  if (perf::unreliable(s.op) && !s.latency) out["lost"] = lost;
  const std::string trouble = trouble_of(s, outcome);
  out["clean"] = trouble.empty();
  out["repeats"] = std::move(repeats);
  return out;
}

std::string perf_text(const ordered_json& d) {
  const auto spread = [&](const ordered_json& at, const char* unit) {
    return line("%12.2f %s (%.2f to %.2f)\n", at["median"].get<double>(), unit,
                at["min"].get<double>(), at["max"].get<double>());
  };
  std::string out = line("%s %s, %u bytes, %s, MTU %u, depth %u, %zu repeats\n",
                         d["op"].get<std::string>().c_str(), d["role"].get<std::string>().c_str(),
                         d["size"].get<unsigned>(), d["device"].get<std::string>().c_str(),
                         d["mtu"].get<unsigned>(), d["depth"].get<unsigned>(), d["repeats"].size());
  if (d["repeats"].empty()) return out + "  stopped before the first repeat\n";
  if (d.contains("latency_us")) {
    const auto& latency = d["latency_us"];
    const bool halved = latency["of"] == "half_round_trip";
    for (const char* name : {"p50", "p99", "p99_9", "min"}) {
      out += line("  %-6s", name) +
             spread(latency[name], halved ? "us, half of the round trip" : "us, the round trip");
    }
  } else if (d.contains("mb_per_s")) {
    out += "  " + spread(d["mb_per_s"], "MB/s") + "  " + spread(d["gbit_per_s"], "Gbit/s") + "  " +
           spread(d["messages_per_s"], "messages/s");
    if (d.contains("cpu_s_per_gb")) out += "  " + spread(d["cpu_s_per_gb"], "CPU s per GB, here");
  }
  if (d.contains("lost")) {
    out += line("  %llu of %llu messages lost\n", d["lost"].get<unsigned long long>(),
                d["messages"].get<unsigned long long>());
  }
  return out + line("  %llu bytes verified\n", d["bytes_verified"].get<unsigned long long>());
}

std::string trouble_of(const perf::Settings& settings, const perf::Outcome& outcome) {
  // Datagrams may be lost: how many were is part of the result.
  if (perf::unreliable(settings.op)) return {};
  std::string out;
  const auto add = [&](const char* who, std::size_t number, const std::vector<perf::Moved>& moved) {
    if (moved.empty()) return;
    out += (out.empty() ? "" : "; ") + std::string(who) + ", repeat " + std::to_string(number + 1) +
           ": " + perf::text_of(moved);
  };
  for (std::size_t i = 0; i < outcome.repeats.size(); ++i) {
    const auto& repeat = outcome.repeats[i];
    add("here", i, repeat.moved);
    for (const auto& report : repeat.reports) {
      if (report.moved != repeat.moved) add("server", i, report.moved);
    }
  }
  return out;
}

}  // namespace selmcast
