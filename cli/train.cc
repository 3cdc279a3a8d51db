#include "cli/train.h"

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "cli/common.h"
#include "cli/launch.h"
#include "cli/run_rank.h"
#include "cli/train_options.h"
#include "simulate/sim_job.h"
#include "sync/join.h"
#include "train/plot.h"
#include "train/trace.h"
#include "train/train_result.h"

namespace selmcast {

namespace {

struct TrainCommand {
  TrainCommandOptions options;
  std::vector<std::string> interfaces;
  std::string plot_file, trace_file;
  bool no_references = false;
  RankPlace place;  ///< Of `train-worker`.
};

std::string text_of(const CurvePoint& point) {
  std::array<char, 120> text{};
  std::snprintf(text.data(), text.size(), "steps  accuracy %.3f, worst worker %.3f, loss %.3f",
                point.accuracy, point.worker_min, point.loss);
  return text.data();
}

LaunchSpec launch_spec(const TrainCommand& command, Progress& progress, LiveCurve& curve) {
  LaunchSpec spec;
  spec.workers = command.options.training.workers;
  spec.timeout = timeout_of(command.options.job);
  spec.child_arguments = as_arguments(command.options);
  spec.child_arguments.insert(spec.child_arguments.begin(), "train-worker");
  spread_interfaces(command.interfaces, spec);
  if (command.options.quiet) return spec;
  spec.on_progress = [&](std::string_view key, std::span<const std::byte> value) {
    if (const auto point = curve.take(key, value)) progress.update(point->steps, text_of(*point));
  };
  return spec;
}

struct Trained {
  TrainResult result;
  std::string trace;  ///< As CSV, if it was asked for.
};

Result<Trained> trained_of(const TrainCommand& command, const TrainTask& task,
                           const std::map<std::string, Bytes>& published,
                           std::span<const Rank> lost) {
  const bool uneven = command.options.job.policy.has(Trait::uneven_rounds);
  auto result =
      assemble(task, published, lost, command.no_references ? References::no : References::yes,
               uneven ? RoundCounts::own : RoundCounts::equal);
  if (!result) return std::move(result).error();
  Trained trained{std::move(*result), {}};
  if (!command.options.record_trace) return trained;
  const auto traces =
      collect_traces(published, task.options().workers, trained.result.failed_ranks);
  if (!traces) return traces.error();
  trained.trace = trace_csv(*traces);
  return trained;
}

/// A simulated rank's time: only what --compute-ms and the like say takes any, and the network.
class VirtualTrainClock final : public TrainClock {
 public:
  explicit VirtualTrainClock(SimRank& rank) : rank_(rank) {}
  TimePoint now() override { return rank_.now(); }
  void sleep(Duration time) override { rank_.compute(time); }

 private:
  SimRank& rank_;
};

Result<Trained> train_simulated(const TrainCommand& command, const TrainTask& task) {
  const std::uint32_t world = command.options.training.workers;
  auto config = simulated_job(command.options.job, world);
  if (!config) return std::move(config).error();
  std::vector<std::vector<float>> none(world);
  SimJob job(std::move(*config), none);
  const auto outcome = job.run_workers([&](Worker& worker, SimRank& rank) -> Result<void> {
    const auto options = trainer_options(command.options, task, worker.rank());
    if (!options) return options.error();
    VirtualTrainClock clock(rank);
    return train_rank(worker, task, *options, clock);
  });
  if (!outcome) return outcome.error();
  if (outcome->timed_out) return failed("the simulated job did not end in its time");
  for (const auto& error : outcome->errors) {
    if (!error.empty()) return failed(error);
  }
  return trained_of(command, task, outcome->published, outcome->failed_ranks);
}

Result<Trained> train_processes(const TrainCommand& command, const TrainTask& task,
                                std::FILE* human) {
  Progress progress(human, "train", task.steps());
  LiveCurve curve(task);
  auto outcome = launch(launch_spec(command, progress, curve));
  if (!outcome) return std::move(outcome).error();
  if (outcome->exit_status != 0) {
    progress.finish();
    return error_of(*outcome);
  }
  auto trained = trained_of(command, task, outcome->results, outcome->failed_ranks);
  if (trained) progress.update(task.steps(), text_of(trained->result.final_workers()));
  progress.finish();
  for (const auto& line : outcome->child_errors) print_notice(line);
  return trained;
}

/// What the result was computed with, beside what assemble() knows.
nlohmann::ordered_json document_of(const TrainCommand& command, const TrainResult& result) {
  const TrainCommandOptions& options = command.options;
  auto document = to_json(result);
  document["hidden"] = options.training.hidden;
  document["curve_steps"] = options.training.curve_steps;
  document["slowdown"] = options.slowdown;
  document["compute_ms"] = options.compute_ms;
  document["steps_by_speed"] = options.steps_by_speed;
  document["compute_trace"] = options.compute_trace;
  return document;
}

/// Where the results go.
struct TrainOutputs {
  JsonOutput json;
  OutputFile plot, trace;
};

Result<TrainOutputs> open_outputs(const TrainCommand& command) {
  const TrainCommandOptions& options = command.options;
  const std::array<NamedFile, 3> files{NamedFile{"--json", options.job.json},
                                       NamedFile{"--plot", command.plot_file},
                                       NamedFile{"--write-trace", command.trace_file}};
  const std::array<NamedFile, 3> inputs{NamedFile{"--data", options.data},
                                        NamedFile{"--links", options.job.links_file},
                                        NamedFile{"--compute-trace", options.compute_trace}};
  if (auto ok = check_distinct(files, inputs); !ok) return ok.error();
  auto json = JsonOutput::open(options.job.json);
  if (!json) return std::move(json).error();
  auto plot = OutputFile::open("--plot", command.plot_file);
  if (!plot) return std::move(plot).error();
  auto trace = OutputFile::open("--write-trace", command.trace_file);
  if (!trace) return std::move(trace).error();
  const int standard = (json->human() == nullptr ? 1 : 0) + (plot->is_standard_output() ? 1 : 0) +
                       (trace->is_standard_output() ? 1 : 0);
  if (standard > 1) {
    return bad_input(
        "--json, --plot, --write-trace: only one of them can be standard output; name a file");
  }
  return TrainOutputs{std::move(*json), std::move(*plot), std::move(*trace)};
}

Result<void> write(const TrainCommand& command, const Trained& trained, TrainOutputs& outputs) {
  if (auto ok = outputs.json.write(document_of(command, trained.result)); !ok) return ok;
  if (outputs.plot.wanted()) {
    if (auto ok = outputs.plot.write(training_chart(trained.result)); !ok) return ok;
  }
  return outputs.trace.write(trained.trace);
}

Result<void> train(TrainCommand& command) {
  command.options.record_trace = !command.trace_file.empty();
  auto task = make_task(command.options);
  if (!task) return std::move(task).error();
  const RunOptions& job = command.options.job;
  if (auto ok = check_transport_name(job, command.interfaces, SimAllowed::yes); !ok) return ok;
  if (auto ok = check_transport(job, command.interfaces); !ok) return ok;
  auto outputs = open_outputs(command);
  if (!outputs) return std::move(outputs).error();
  for (const auto& notice : job.policy.notices) print_notice(notice);
  if (auto ok = outputs->json.drop_old(); !ok) return ok;
  if (auto ok = outputs->plot.drop_old(); !ok) return ok;
  if (auto ok = outputs->trace.drop_old(); !ok) return ok;
  const bool taken = outputs->plot.is_standard_output() || outputs->trace.is_standard_output();
  std::FILE* const human = taken ? nullptr : outputs->json.human();
  command.options.quiet = human == nullptr;
  auto trained = job.transport == "sim" ? train_simulated(command, *task)
                                        : train_processes(command, *task, human);
  if (!trained) return std::move(trained).error();
  if (human != nullptr) std::fprintf(human, "\n%s", to_table(trained->result).c_str());
  if (auto ok = write(command, *trained, *outputs); !ok) return ok;
  if (!trained->result.verified) return failed("what the workers merged could not be verified");
  return {};
}

Result<void> train_worker(TrainCommand& command) {
  const RankPlace& place = command.place;
  if (place.world == 0 || place.rank >= place.world) {
    return bad_input("--rank: " + std::to_string(place.rank) + " does not exist in --world " +
                     std::to_string(place.world));
  }
  command.options.training.workers = place.world;
  auto task = make_task(command.options);
  if (!task) return std::move(task).error();
  auto links = load_links(command.options.job, place.world);
  if (!links) return std::move(links).error();
  auto worker = join_job(worker_config(command.options.job, place, std::move(*links)),
                         command.options.job.policy);
  if (!worker) return std::move(worker).error();
  print_joining(**worker, command.options.job.policy);
  const auto options = trainer_options(command.options, *task, place.rank);
  if (!options) return options.error();
  auto trained = train_rank(**worker, *task, *options);
  if (!trained) return trained;
  return (*worker)->leave();
}

void add_train(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<TrainCommand>();
  auto* sub = app.add_subcommand("train", "Train a small network across local worker processes");
  sub->add_option("--workers", command->options.training.workers,
                  "Number of worker processes to start")
      ->capture_default_str();
  add_train_options(*sub, command->options);
  sub->add_option("--interface,--interfaces,--device,--devices", command->interfaces,
                  "Network interfaces or RDMA devices; ranks are assigned to them round-robin")
      ->delimiter(',');
  sub->add_option("--json", command->options.job.json,
                  "Write the result as JSON to this file (`-`: standard output)");
  sub->add_option("--plot", command->plot_file,
                  "Draw accuracy and loss against time and samples into this SVG file");
  sub->add_option("--write-trace", command->trace_file,
                  "Write as CSV when each rank computed each step, and between which rounds");
  sub->add_flag(
      "--no-references", command->no_references,
      "Do not train the two references: a single process, and workers that never communicate");
  sub->footer(
      "The result is compared with a single process that takes as many steps on as many samples\n"
      "(the batches of all workers together), and with workers that never communicate.\n\n"
      "Example:\n  selmcast train --workers 8 --policy \"select=selmcast:3\" --plot accuracy.svg");
  sub->callback([command, &exit_status] {
    if (auto ok = train(*command); !ok) exit_status = print_error(ok.error());
  });
}

void add_train_worker(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<TrainCommand>();
  auto* sub = app.add_subcommand("train-worker", "One rank of `train`");
  sub->group("");
  sub->add_option("--rank", command->place.rank, "This rank, from 0")->required();
  sub->add_option("--world", command->place.world, "Number of ranks")->required();
  sub->add_option("--rendezvous", command->place.rendezvous,
                  "Address at which the launcher serves the rendezvous")
      ->required();
  sub->add_option("--interface,--device", command->place.interface,
                  "Network interface or RDMA device to use");
  add_train_options(*sub, command->options);
  add_rank_options(*sub, command->options);
  sub->callback([command, &exit_status] {
    if (auto ok = train_worker(*command); !ok) exit_status = print_error(ok.error());
  });
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_status) {
  add_train(app, exit_status);
  add_train_worker(app, exit_status);
}

}  // namespace selmcast
