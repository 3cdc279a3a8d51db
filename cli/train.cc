#include "cli/train.h"

#include <array>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/common.h"
#include "cli/launch.h"
#include "cli/run_rank.h"
#include "cli/train_options.h"
#include "sync/policy.h"
#include "train/plot.h"
#include "train/train_result.h"

namespace selmcast {

namespace {

struct TrainCommand {
  TrainCommandOptions options;
  std::vector<std::string> interfaces;
  std::string plot_file;
  RankPlace place;  ///< Of `train-worker`.
};

std::string text_of(const CurvePoint& point) {
  std::array<char, 120> text{};
  std::snprintf(text.data(), text.size(), "epochs  accuracy %.3f, worst worker %.3f, loss %.3f",
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
  spec.on_progress = [&](std::string_view key, std::span<const std::byte> value) {
    if (const auto point = curve.take(key, value)) progress.update(point->epoch, text_of(*point));
  };
  return spec;
}

Result<TrainResult> train_processes(const TrainCommand& command, const TrainTask& task,
                                    std::FILE* human) {
  Progress progress(human, "train", task.options().epochs);
  LiveCurve curve(task);
  auto outcome = launch(launch_spec(command, progress, curve));
  if (!outcome) return std::move(outcome).error();
  if (outcome->exit_status != 0) {
    progress.finish();
    return error_of(*outcome);
  }
  auto result = assemble(task, outcome->results, outcome->failed_ranks);
  if (result) progress.update(task.options().epochs, text_of(result->final_workers()));
  progress.finish();
  for (const auto& line : outcome->child_errors) print_notice(line);
  return result;
}

Result<void> train(TrainCommand& command) {
  auto task = make_task(command.options);
  if (!task) return std::move(task).error();
  const RunOptions& job = command.options.job;
  if (auto ok = check_transport_name(job, command.interfaces, SimAllowed::no); !ok) return ok;
  if (auto ok = check_transport(job, command.interfaces); !ok) return ok;
  auto json = JsonOutput::open(job.json);
  if (!json) return std::move(json).error();
  auto plot = OutputFile::open("--plot", command.plot_file);
  if (!plot) return std::move(plot).error();
  if (json->human() == nullptr && plot->is_standard_output()) {
    return bad_input("--json and --plot cannot both be standard output; name a file for one");
  }
  const auto policy = parse_policy(command.options.job.policy);
  if (!policy) return policy.error();
  for (const auto& notice : policy->notices) {
    print_notice(notice);
  }
  if (auto ok = json->drop_old(); !ok) return ok;
  if (auto ok = plot->drop_old(); !ok) return ok;
  std::FILE* const human = plot->is_standard_output() ? nullptr : json->human();
  auto result = train_processes(command, *task, human);
  if (!result) return std::move(result).error();
  if (human != nullptr) std::fprintf(human, "\n%s", to_table(*result).c_str());
  if (auto ok = json->write(to_json(*result)); !ok) return ok;
  if (plot->wanted()) {
    if (auto ok = plot->write(training_chart(*result)); !ok) return ok;
  }
  if (!result->verified) return failed("what the workers merged could not be verified");
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
  auto worker = Worker::join(worker_config(command.options.job, place, std::move(*links)));
  if (!worker) return std::move(worker).error();
  auto trained = train_rank(**worker, *task, trainer_options(command.options, place.rank));
  if (!trained) return trained;
  return (*worker)->leave();
}

void add_train(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<TrainCommand>();
  auto* sub = app.add_subcommand(
      "train", "Train a small network on handwritten digits across local worker processes");
  sub->add_option("--workers", command->options.training.workers, "Worker processes to start")
      ->capture_default_str();
  add_train_options(*sub, command->options);
  sub->add_option("--interface,--interfaces", command->interfaces,
                  "Network interface of the ranks; several are used in turn")
      ->delimiter(',');
  sub->add_option("--json", command->options.job.json,
                  "Write the result to this file (`-`: standard output)");
  sub->add_option("--plot", command->plot_file, "Write accuracy by step and by time as SVG");
  sub->footer(
      "The result stands beside a single process that does as many steps on as many samples\n"
      "(batches of all workers together), and workers that never talk.\n\n"
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
  sub->add_option("--rendezvous", command->place.rendezvous, "Where the starter listens")
      ->required();
  sub->add_option("--interface", command->place.interface, "Network interface to use");
  add_train_options(*sub, command->options);
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
