// Options shared by `selmcast run` and `selmcast worker`, and the same as child arguments.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/axes/policy.h"
#include "selmcast/memory.h"
#include "selmcast/worker.h"

namespace selmcast {

struct RunOptions {
  std::uint32_t rounds = 10;
  std::string params_file;         ///< --params; one of these three says what is synchronised.
  std::string model;               ///< --model
  std::uint64_t params_bytes = 0;  ///< --params-bytes
  std::string policy_text = kDefaultPolicy;
  Policy policy;  ///< Of the text, see read_policy().
  std::string transport = "auto";
  std::string links_file;
  std::string init;  ///< seed:S
  std::string dump_folder;
  std::uint64_t seed = 1;
  double timeout_s = 10.0;
  double loss = 0.0;
  std::uint32_t mtu = 0;
  bool deterministic = false;
  std::string json;
};

/// The shortest text that reads back as the same number.
std::string text_of(double value);

/// Parses the policy for `world` ranks, once: whatever follows takes options.policy.
Result<void> read_policy(RunOptions& options, std::uint32_t world);
/// Refuses (bad_input) policies whose pace is about an application's steps, for commands without
/// one.
Result<void> check_rounds(const Policy& policy);

/// Adds the options to a subcommand.
void add_run_options(CLI::App& command, RunOptions& options);
/// The options as arguments of a child `worker`, without --json.
std::vector<std::string> as_arguments(const RunOptions& options);
/// Refuses what the simulator cannot show: policies about an application's steps.
Result<void> check_simulated(const Policy& policy);
/// Checks everything that needs no other rank, after read_policy(): files, names, numbers, and that
/// this machine's memory could hold `local` of the ranks.
Result<void> check_run_options(const RunOptions& options, std::uint32_t world, std::uint32_t local);

/// The simulator is no transport between processes: only `run` offers it.
enum class SimAllowed : bool { no, yes };
/// Checks the name of the transport, and that it uses the interfaces if any are named.
Result<void> check_transport_name(const RunOptions& options,
                                  const std::vector<std::string>& interfaces, SimAllowed sim);
/// Checks that this machine has the transport on each of the interfaces (none named: the default).
Result<void> check_transport(const RunOptions& options, const std::vector<std::string>& interfaces);

/// The `S` of --init seed:S; absent when --init was not given.
Result<std::optional<std::uint64_t>> init_seed(const RunOptions& options);
/// Rank r's parameter i = ((1000003 r + 7919 i + S) mod 1024) / 1024.
void fill_parameters(std::span<float> parameters, Rank rank, std::uint64_t seed);
/// Size of the parameter set in float32 elements, from whichever option names it.
Result<std::uint64_t> parameter_count(const RunOptions& options);
/// The initial parameters of a rank: --init, else the file's values, else --init seed:0.
Result<std::vector<float>> initial_parameters(const RunOptions& options, Rank rank);
/// The same in memory that other ranks of this host read in place.
struct SharedParameters {
  SharedMemory memory;
  std::span<float> values;  ///< In it.
};
Result<SharedParameters> shared_parameters(const RunOptions& options, Rank rank);
/// The links table, if a file was named.
Result<std::optional<LinkTable>> load_links(const RunOptions& options, std::uint32_t world);
Duration timeout_of(const RunOptions& options);

}  // namespace selmcast
