#include "cli/sim.h"

#include <array>
#include <cstdio>
#include <memory>

#include "cli/common.h"
#include "cli/output_file.h"
#include "cli/sim_output.h"
#include "cli/sim_own.h"

namespace selmcast {
namespace {

struct SimCommand {
  std::string experiment, csv_path, svg_path;
  std::string level = "flow";
  std::uint32_t trials = 0;
  double minutes = 10.0;
  RunOptions own;
};

/// "name  summary" lines, in the order of the papers.
std::string list_of(const std::vector<Experiment>& all) {
  std::size_t width = 0;
  for (const auto& one : all) width = std::max(width, one.name.size());
  std::string out;
  for (const auto& one : all) {
    out += "  " + one.name + std::string(width - one.name.size() + 2, ' ') + one.summary + "\n";
  }
  return out;
}

Result<Experiment> find_experiment(const std::string& name) {
  std::string names;
  for (auto& one : experiments()) {
    if (one.name == name) return std::move(one);
    names += one.name + ", ";
  }
  return bad_input("--experiment " + name + ": there is no such experiment; allowed: " + names +
                   "list");
}

/// One document at most on standard output, and no file named twice.
Result<void> check_outputs(const SimCommand& command, const OutputFile& csv, const OutputFile& svg,
                           const JsonOutput& json) {
  const int standard = (csv.is_standard_output() ? 1 : 0) + (svg.is_standard_output() ? 1 : 0) +
                       (json.human() == nullptr ? 1 : 0);
  if (standard > 1) {
    return bad_input("--csv, --svg, --json: only one of them can be standard output");
  }
  const std::array<NamedFile, 3> files{NamedFile{"--csv", command.csv_path},
                                       NamedFile{"--svg", command.svg_path},
                                       NamedFile{"--json", command.own.json}};
  return check_distinct(files);
}

Result<void> run_experiment(const SimCommand& command) {
  const auto experiment = find_experiment(command.experiment);
  if (!experiment) return experiment.error();
  auto csv = OutputFile::open("--csv", command.csv_path);
  if (!csv) return csv.error();
  auto svg = OutputFile::open("--svg", command.svg_path);
  if (!svg) return svg.error();
  auto json = JsonOutput::open(command.own.json);
  if (!json) return json.error();
  if (auto ok = check_outputs(command, *csv, *svg, *json); !ok) return ok;
  if (auto dropped = json->drop_old(); !dropped) return dropped;
  if (auto dropped = csv->drop_old(); !dropped) return dropped;
  if (auto dropped = svg->drop_old(); !dropped) return dropped;
  StudyOptions options;
  options.trials = command.trials;
  options.seed = command.own.seed;
  options.minutes = command.minutes;
  std::unique_ptr<Progress> progress;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!is_terminal(stderr)) return;
    if (!progress) progress = std::make_unique<Progress>(stderr, experiment->name, total);
    progress->update(done, "trials");
  };
  const auto table = experiment->run(options);
  progress.reset();
  if (!table) return table.error();
  if (auto written = csv->write(study_csv(*experiment, *table)); !written) return written;
  if (svg->wanted()) {
    if (auto written = svg->write(study_svg(*experiment, *table)); !written) return written;
  }
  const bool free = !csv->is_standard_output() && !svg->is_standard_output();
  if (free && json->human() != nullptr) {
    std::fputs(study_text(*experiment, *table).c_str(), json->human());
  }
  const auto trials = command.trials == 0 ? experiment->trials : command.trials;
  return json->write(study_json(*experiment, *table, options.seed, trials));
}

Result<void> run_own(const SimCommand& command) {
  auto json = JsonOutput::open(command.own.json);
  if (!json) return json.error();
  auto document =
      command.level == "engine" ? simulate_engine(command.own) : simulate_flows(command.own);
  if (!document) {
    // Refused input leaves the result of an earlier run, as everywhere.
    if (document.error().kind == ErrorKind::bad_input) return document.error();
    if (auto dropped = json->drop_old(); !dropped) return dropped;
    return document.error();
  }
  if (json->human() != nullptr) std::fputs(own_text(*document).c_str(), json->human());
  const bool verified = document->value("verified", true);
  if (auto written = json->write(std::move(*document)); !written || verified) return written;
  return failed("sim: the simulated job is not verified; see its rounds");
}

Result<void> list_experiments(const SimCommand& command) {
  auto json = JsonOutput::open(command.own.json);
  if (!json) return json.error();
  const auto all = experiments();
  if (json->human() != nullptr) std::fputs(list_of(all).c_str(), json->human());
  auto entries = nlohmann::ordered_json::array();
  for (const auto& one : all) entries.push_back({{"name", one.name}, {"summary", one.summary}});
  return json->write({{"experiments", std::move(entries)}});
}

Result<void> run_sim(const SimCommand& command) {
  if (command.experiment == "list") {
    if (command.csv_path.empty() && command.svg_path.empty()) return list_experiments(command);
    return bad_input("--csv, --svg: a list has no figures; name an experiment");
  }
  if (!(command.minutes > 0.0 && command.minutes <= 1000.0)) {
    return bad_input("--minutes: " + text_of(command.minutes) + " is not within 0 < M <= 1000");
  }
  if (command.trials > 10'000) {
    return bad_input("--trials: " + std::to_string(command.trials) + " is not within 1..10000");
  }
  const bool own = !command.own.links_file.empty();
  if (!own && command.experiment.empty()) {
    return bad_input("sim: give either --experiment NAME (list shows the names) or --links FILE");
  }
  return own ? run_own(command) : run_experiment(command);
}

}  // namespace

void add_sim_command(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<SimCommand>();
  command->own.transport = "sim";
  command->own.params_bytes = 4'000'000;
  auto& own = command->own;
  auto* sub = app.add_subcommand("sim", "Simulate the published experiments, or a job of your own");
  auto* name = sub->add_option("--experiment", command->experiment,
                               "Name of an experiment; `list` shows the names");
  auto* links = sub->add_option("--links", own.links_file,
                                "JSON file with the rates of your own ranks, as probe writes it");
  name->excludes(links);
  sub->add_option("--trials", command->trials,
                  "Random draws of links per point; 0 takes the experiment's own number")
      ->needs(name);
  sub->add_option("--minutes", command->minutes, "Simulated minutes in the ssp experiments")
      ->needs(name)
      ->capture_default_str();
  sub->add_option("--csv", command->csv_path, "Write the points as CSV to this file")->needs(name);
  sub->add_option("--svg", command->svg_path, "Draw the curves into this SVG file")->needs(name);
  sub->add_option("--policy", own.policy_text, "Policy of the job of --links")
      ->needs(links)
      ->capture_default_str();
  sub->add_option("--level", command->level,
                  "flow computes with the plan's rates, for up to 10000 ranks; engine simulates "
                  "every frame, "
                  "for up to 256 ranks")
      ->check(CLI::IsMember({"flow", "engine"}))
      ->needs(links)
      ->capture_default_str();
  sub->add_option("--rounds", own.rounds, "Number of rounds of the job of --links")
      ->needs(links)
      ->capture_default_str();
  sub->add_option("--params-bytes", own.params_bytes, "Bytes of parameters in the job of --links")
      ->needs(links)
      ->capture_default_str();
  sub->add_option("--seed", own.seed, "Equal seeds give equal results")->capture_default_str();
  sub->add_option("--json", own.json,
                  "Write the result as JSON to this file (`-`: standard output)");
  sub->footer("Experiments:\n" + list_of(experiments()) +
              "Example:\n  selmcast sim --experiment bsp --csv bsp.csv --svg bsp.svg\n"
              "  selmcast sim --links links.json --policy \"select=selmcast:3\" --level engine");
  sub->callback([command, &exit_status] {
    if (auto ok = run_sim(*command); !ok) exit_status = print_error(ok.error());
  });
}

}  // namespace selmcast
