// What decides who sends to whom comes from files, command lines and other ranks: views, policies,
// link tables and selection problems. Whatever they say, the answer holds its promises, or is one
// line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "cli/plan.h"
#include "plan/axes/policy.h"
#include "plan/view.h"
#include "probes/links_json.h"

namespace {

using Json = nlohmann::json;

void require(bool holds) {
  if (!holds) std::abort();
}

void require_line(const selmcast::Error& error) {
  require(error.kind == selmcast::ErrorKind::bad_input);
  require(!error.message.empty() && error.message.find('\n') == std::string::npos);
}

void fuzz_view(std::span<const std::byte> bytes) {
  const auto view = selmcast::parse_view(bytes);
  if (!view) return require_line(view.error());
  const auto again = selmcast::serialize(*view);
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  require(std::is_sorted(view->members.begin(), view->members.end()));
}

void fuzz_policy(std::string_view text) {
  const auto policy = selmcast::parse_policy(text);
  if (!policy) return require_line(policy.error());
  const auto said = selmcast::to_string(*policy);
  const auto again = selmcast::parse_policy(said);
  require(again && selmcast::to_string(*again) == said);
  for (const std::uint32_t workers : {1U, 2U, 7U, 300U}) {
    const auto fits = selmcast::check_policy(*policy, workers);
    if (!fits) require_line(fits.error());
  }
}

void fuzz_links(std::string_view text) {
  const auto links = selmcast::parse_links(text, "input", 0);
  if (!links) return require_line(links.error());
  require(!links->empty());
  const auto again = selmcast::parse_links(selmcast::links_json(*links), "again", 0);
  require(again && again->size() == links->size());
}

/// A sender reaches p others, each once and never itself, and at most one less in its own row.
void check_answer(const Json& answer) {
  const bool rows = answer.at("layout") == "rows";
  require(answer.at("rate_kbps").at("num") > 0 && answer.at("rate_kbps").at("den") > 0);
  const auto receivers = answer.at("receivers").get<std::vector<std::vector<std::uint32_t>>>();
  for (std::uint32_t i = 0; i < receivers.size(); ++i) {
    const auto& to = receivers[i];
    require(std::is_sorted(to.begin(), to.end()));
    require(std::adjacent_find(to.begin(), to.end()) == to.end());
    require(!std::binary_search(to.begin(), to.end(), i) &&
            (to.empty() || to.back() < receivers.size()));
    require(rows || !to.empty());
  }
}

void fuzz_problem(const std::string& text) {
  const auto answer = selmcast::plan_json(text);
  if (!answer) return require_line(answer.error());
  check_answer(Json::parse(*answer));
}

/// A problem that has the right shape, of up to 16 ranks.
void fuzz_numbers(std::span<const std::byte> input) {
  std::size_t at = 0;
  const auto next = [&] {
    return at < input.size() ? std::to_integer<std::uint32_t>(input[at++]) : 0U;
  };
  const std::uint32_t n = next() % 17;
  Json problem = {{"p", next() % 18}, {"layout", next() % 2 == 0 ? "edges" : "rows"}};
  if (next() % 2 == 0) problem["algorithm"] = next() % 2 == 0 ? "published" : "random";
  if (next() % 2 == 0) problem["k"] = next();
  if (next() % 2 == 0) problem["fanout"] = "unicast";
  problem["tx_kbps"] = problem["rx_kbps"] = Json::array();
  for (std::uint32_t i = 0; i < n; ++i) {
    problem["tx_kbps"].push_back(std::uint64_t{next()} << next() % 48);
    problem["rx_kbps"].push_back(std::uint64_t{next()} << next() % 48);
  }
  fuzz_problem(problem.dump());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kTextMax = 600;  // Problems of many ranks take time.
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  const std::string text(reinterpret_cast<const char*>(data) + 1, std::min(size - 1, kTextMax));
  switch (data[0] % 5) {
    case 0:
      fuzz_view(input);
      break;
    case 1:
      fuzz_policy(text);
      break;
    case 2:
      fuzz_links(text);
      break;
    case 3:
      fuzz_problem(text);
      break;
    default:
      fuzz_numbers(input);
  }
  return 0;
}
