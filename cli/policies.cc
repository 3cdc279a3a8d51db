#include "cli/policies.h"

#include <algorithm>
#include <memory>

#include "cli/common.h"
#include "plan/axes/policy.h"

namespace selmcast {
namespace {

nlohmann::ordered_json policies_json(
    const std::vector<PolicyWord>& words,
    const std::vector<std::pair<std::string, std::string>>& names) {
  auto axes = nlohmann::ordered_json::array();
  for (const PolicyWord& word : words) {
    axes.push_back({{"axis", word.axis},
                    {"value", word.value},
                    {"meaning", word.meaning},
                    {"default", word.is_default}});
  }
  auto expansions = nlohmann::ordered_json::array();
  for (const auto& [name, policy] : names) {
    expansions.push_back({{"name", name}, {"policy", policy}});
  }
  return {{"words", std::move(axes)}, {"names", std::move(expansions)}};
}

void print_policies(std::FILE* out, const std::vector<PolicyWord>& words,
                    const std::vector<std::pair<std::string, std::string>>& names) {
  std::size_t width = 0;
  for (const PolicyWord& word : words) width = std::max(width, word.value.size());
  for (const auto& [name, policy] : names) width = std::max(width, name.size());
  const int column = static_cast<int>(width);
  std::fprintf(out, "A policy is a list of axis=value words; * marks the default of an axis.\n");
  std::string axis;
  for (const PolicyWord& word : words) {
    std::fprintf(out, "%-8s %c %-*s  %s\n", word.axis == axis ? "" : word.axis.c_str(),
                 word.is_default ? '*' : ' ', column, word.value.c_str(), word.meaning.c_str());
    axis = word.axis;
  }
  if (names.empty()) return;
  std::fprintf(out, "\nA name stands for a whole policy; words after it override single axes.\n");
  for (const auto& [name, policy] : names) {
    std::fprintf(out, "%-8s   %-*s  %s\n", "", column, name.c_str(), policy.c_str());
  }
}

int run_policies(const std::string& json_path) {
  Result<JsonOutput> json = JsonOutput::open(json_path);
  if (!json) return print_error(json.error());
  const auto words = policy_words();
  const auto names = policy_names();
  if (json->human() != nullptr) print_policies(json->human(), words, names);
  const Result<void> written = json->write(policies_json(words, names));
  return written ? 0 : print_error(written.error());
}

}  // namespace

void add_policies_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("policies", "List the words that a policy is made of");
  auto json_path = std::make_shared<std::string>();
  command
      ->add_option("--json", *json_path, "Write the list as JSON to FILE (- for standard output)")
      ->type_name("FILE");
  command->footer("Example:\n  selmcast policies\n  selmcast train --policy \"select=selmcast:3\"");
  command->callback([json_path, &exit_status] { exit_status = run_policies(*json_path); });
}

}  // namespace selmcast
