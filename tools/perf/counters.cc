#include "tools/perf/counters.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

namespace selmcast::perf {

std::vector<Counter> read_counters(const std::string& folder, unsigned port) {
  std::vector<Counter> out;
  for (const char* kind : {"hw_counters", "counters"}) {
    std::error_code none;
    const auto path = std::filesystem::path(folder) / "ports" / std::to_string(port) / kind;
    for (const auto& entry : std::filesystem::directory_iterator(path, none)) {
      std::ifstream file(entry.path());
      Counter counter{.name = entry.path().filename()};
      if (file >> counter.value) out.push_back(std::move(counter));
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Counter& a, const Counter& b) { return a.name < b.name; });
  return out;
}

bool tells_of_trouble(std::string_view name) noexcept {
  // Of rxe, mlx5, bnxt_re, irdma, efa, hns and the IBTA's port counters.
  constexpr std::array<std::string_view, 16> kWords{
      "retry", "rnr",    "seq",     "timeout", "drop",      "discard", "_err",    "out_of_buffer",
      "icrc",  "duplic", "retrans", "missing", "violation", "_downed", "overrun", "slow_restart"};
  return std::any_of(kWords.begin(), kWords.end(), [name](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

std::vector<Moved> moved(const std::vector<Counter>& before, const std::vector<Counter>& after) {
  std::vector<Moved> out;
  for (const Counter& now : after) {
    if (!tells_of_trouble(now.name)) continue;
    const auto then = std::find_if(before.begin(), before.end(),
                                   [&](const Counter& c) { return c.name == now.name; });
    if (then == before.end() || now.value <= then->value) continue;
    out.push_back({.name = now.name, .by = now.value - then->value});
  }
  return out;
}

std::string text_of(const std::vector<Moved>& moved) {
  std::string out;
  for (const Moved& m : moved) {
    out += (out.empty() ? "" : ", ") + m.name + " +" + std::to_string(m.by);
  }
  return out;
}

}  // namespace selmcast::perf
