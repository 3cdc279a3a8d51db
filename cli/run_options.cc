#include "cli/run_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <new>

#include "hwconf/machine.h"
#include "plan/axes/rules.h"
#include "plan/compile.h"
#include "probes/links_json.h"
#include "train/parameter_set.h"
#include "train/safetensors.h"
#include "transport/backends/open.h"

namespace selmcast {

namespace {
constexpr std::uint32_t kWorkersMax = 65'533;  // Of the repair queue and the frame header.
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 40U;
}  // namespace

std::string text_of(double value) {
  std::array<char, 32> out{};
  const auto end = std::to_chars(out.data(), out.data() + out.size(), value).ptr;
  return {out.data(), end};
}

void add_run_options(CLI::App& command, RunOptions& o) {
  command.add_option("--rounds", o.rounds, "Number of rounds to run")->capture_default_str();
  auto* what = command.add_option_group("parameters", "What is synchronised; exactly one of these");
  what->add_option("--params", o.params_file, "The tensors of a .safetensors file");
  what->add_option("--model", o.model,
                   "Tensors of the sizes of resnet50, vgg16, bert-base or gpt2");
  what->add_option("--params-bytes", o.params_bytes, "One float32 array of this many bytes");
  what->require_option(1);
  command
      .add_option("--policy", o.policy_text, "Policy string; `selmcast policies` lists the words")
      ->capture_default_str();
  command
      .add_option(
          "--transport", o.transport,
          "auto, shm, uring, verbs or sim. auto takes shm if all ranks are on one host and name no "
          "interface or MTU, else verbs if all ranks have a device, else uring")
      ->capture_default_str();
  command.add_option("--links", o.links_file,
                     "JSON file with tx_kbps and rx_kbps of each rank; "
                     "without it the links are measured first");
  command.add_option("--init", o.init,
                     "seed:S fills the parameters with a pattern that S determines");
  command.add_option("--dump", o.dump_folder,
                     "Write the final parameters of rank I to rank-I.f32 in this folder");
  command.add_option("--seed", o.seed, "Seed of random selections and of --loss")
      ->capture_default_str();
  command
      .add_option("--timeout", o.timeout_s,
                  "Seconds for which a peer may be silent before it is evicted")
      ->capture_default_str();
  command
      .add_option("--loss", o.loss,
                  "Share of received data frames that every rank drops, 0 to 1, to test repair")
      ->capture_default_str();
  command.add_option("--mtu", o.mtu, "Largest packet in bytes; 0 takes the interface's MTU")
      ->capture_default_str();
  command.add_flag("--deterministic", o.deterministic,
                   "Add in fixed point, so that equal inputs give equal bits in every run");
  command.add_option("--json", o.json,
                     "Write the result as JSON to this file (`-`: standard output)");
}

std::vector<std::string> as_arguments(const RunOptions& o) {
  std::vector<std::string> out{"--rounds",    std::to_string(o.rounds),
                               "--policy",    o.policy_text,
                               "--transport", o.transport,
                               "--seed",      std::to_string(o.seed),
                               "--timeout",   text_of(o.timeout_s),
                               "--loss",      text_of(o.loss),
                               "--mtu",       std::to_string(o.mtu)};
  const auto add = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    out.emplace_back(name);
    out.push_back(value);
  };
  add("--params", o.params_file);
  add("--model", o.model);
  if (o.params_bytes > 0) add("--params-bytes", std::to_string(o.params_bytes));
  add("--links", o.links_file);
  add("--init", o.init);
  add("--dump", o.dump_folder);
  if (o.deterministic) out.emplace_back("--deterministic");
  return out;
}

Duration timeout_of(const RunOptions& options) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.timeout_s));
}

Result<std::optional<std::uint64_t>> init_seed(const RunOptions& options) {
  if (options.init.empty()) return std::optional<std::uint64_t>();
  constexpr std::string_view prefix = "seed:";
  std::uint64_t seed = 0;
  const char* end = options.init.data() + options.init.size();
  if (options.init.starts_with(prefix)) {
    const auto [at, error] = std::from_chars(options.init.data() + prefix.size(), end, seed);
    if (error == std::errc() && at == end) return std::optional(seed);
  }
  return bad_input("--init: `" + options.init + "` is not of the form seed:S, S a whole number");
}

void fill_parameters(std::span<float> parameters, Rank rank, std::uint64_t seed) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] =
        static_cast<float>((1000003 * std::uint64_t{rank} + 7919 * i + seed) % 1024) / 1024.0F;
  }
}

Result<std::uint64_t> parameter_count(const RunOptions& o) {
  if (!o.model.empty()) {
    auto set = named_parameter_set(o.model);
    if (!set) return std::move(set).error();
    return set->parameters();
  }
  if (!o.params_file.empty()) {
    auto header = read_safetensors_header(o.params_file);
    if (!header) return std::move(header).error();
    if (header->elements() == 0) return bad_input(o.params_file + ": holds no element");
    return header->elements();
  }
  // A negative number arrives here as one beyond what 63 bits hold.
  if (o.params_bytes == 0 || o.params_bytes % 4 != 0 || o.params_bytes >> 63U != 0) {
    return bad_input("--params-bytes: " + std::to_string(o.params_bytes) +
                     " is not a positive multiple of 4 (float32)");
  }
  return o.params_bytes / 4;
}

namespace {

/// How many parameters there are, and how they begin: by the seed's pattern, else as in the file.
struct Initial {
  std::size_t count = 0;
  std::optional<std::uint64_t> seed;
};

Result<Initial> initial_of(const RunOptions& options) {
  auto seed = init_seed(options);
  if (!seed) return std::move(seed).error();
  auto count = parameter_count(options);
  if (!count) return std::move(count).error();
  return Initial{static_cast<std::size_t>(*count), *seed};
}

Result<void> write_initial(const RunOptions& options, const Initial& initial, Rank rank,
                           std::span<float> out) {
  if (options.params_file.empty() || initial.seed) {
    fill_parameters(out, rank, initial.seed.value_or(0));
    return {};
  }
  const auto loaded = load_safetensors(options.params_file);
  if (!loaded) return loaded.error();
  if (loaded->values.size() != out.size()) {
    return bad_input(options.params_file + ": changed while it was read");
  }
  std::copy(loaded->values.begin(), loaded->values.end(), out.begin());
  return {};
}

}  // namespace

Result<std::vector<float>> initial_parameters(const RunOptions& options, Rank rank) {
  const auto initial = initial_of(options);
  if (!initial) return initial.error();
  try {
    std::vector<float> out(initial->count);
    if (auto ok = write_initial(options, *initial, rank, out); !ok) return std::move(ok).error();
    return out;
  } catch (const std::bad_alloc&) {
    return unavailable("no memory for parameters of " +
                       std::to_string(initial->count * sizeof(float)) +
                       " bytes; use fewer ranks or a smaller set, or raise the limit (ulimit -v)");
  }
}

Result<SharedParameters> shared_parameters(const RunOptions& options, Rank rank) {
  const auto initial = initial_of(options);
  if (!initial) return initial.error();
  auto memory = allocate(initial->count * sizeof(float));
  if (!memory) return std::move(memory).error();
  SharedParameters out{std::move(memory).value(), {}};
  out.values = out.memory.floats(initial->count);
  if (auto ok = write_initial(options, *initial, rank, out.values); !ok) {
    return std::move(ok).error();
  }
  return out;
}

Result<std::optional<LinkTable>> load_links(const RunOptions& options, std::uint32_t world) {
  if (options.links_file.empty()) return std::optional<LinkTable>();
  auto links = read_links(options.links_file, world);
  if (!links) return std::move(links).error();
  LinkTable table;
  for (const auto& link : *links) {
    table.tx_kbps.push_back(link.transmit.available_kbps);
    table.rx_kbps.push_back(link.receive.available_kbps);
  }
  return std::optional(std::move(table));
}

Result<void> check_transport_name(const RunOptions& options,
                                  const std::vector<std::string>& interfaces, SimAllowed sim) {
  const std::string& name = options.transport;
  auto names = transport_names();
  if (sim == SimAllowed::yes) names.emplace_back("sim");
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string allowed;
    for (const auto& known : names) allowed += (allowed.empty() ? "" : ", ") + known;
    return bad_input("--transport: `" + name + "` is not known; allowed are " + allowed);
  }
  if (!interfaces.empty() && (name == "shm" || name == "sim")) {
    return bad_input("--interface: " + interfaces.front() + " cannot be used, transport " + name +
                     " passes through no interface; leave it out or choose another transport");
  }
  return {};
}

Result<void> check_transport(const RunOptions& options,
                             const std::vector<std::string>& interfaces) {
  if (options.transport == "sim") return {};
  TransportConfig config;
  config.mtu = options.mtu;
  for (const auto& interface : interfaces.empty() ? std::vector<std::string>{""} : interfaces) {
    config.interface = interface;
    if (auto opened = open_transport(options.transport, config); !opened) {
      return std::move(opened).error();
    }
  }
  return {};
}

namespace {
/// A links table may allow no plan; better to say so before anything starts.
Result<void> check_plan(const RunOptions& options, std::uint32_t world) {
  auto links = load_links(options, world);
  if (!links) return std::move(links).error();
  if (!*links) return {};
  View view;
  view.epoch = 1;
  view.seed = options.seed;
  view.tx_kbps = (*links)->tx_kbps;
  view.rx_kbps = (*links)->rx_kbps;
  for (Rank rank = 0; rank < world; ++rank) view.members.push_back(rank);
  auto program = compile(view, options.policy, 0);
  if (program) return {};
  return bad_input(options.links_file + ": " + program.error().message);
}

/// A set beyond all memory would end in the kernel killing whatever it likes. What is free at this
/// moment says little and is not asked.
Result<void> check_size(const RunOptions& o, std::uint32_t local) {
  const auto count = parameter_count(o);
  if (!count) return count.error();
  if (auto ok = check_parameters(o.policy, *count * sizeof(float)); !ok) return ok;
  // The parameters, the accumulator, and what the mix keeps.
  const std::uint64_t copies = (o.deterministic ? 3U : 2U) + o.policy.model_copies();
  const Memory memory = describe_memory();
  const std::uint64_t held = memory.total_bytes + memory.swap_bytes;
  // What codec=cast keeps besides, half a copy, is within the precision of this check.
  if (memory.total_bytes != 0 && *count > held / sizeof(float) / copies / local) {
    return unavailable(
        "not enough memory: " + std::to_string(local) + " ranks here hold " +
        std::to_string(copies) + " times " + std::to_string(*count * sizeof(float)) +
        " bytes each (parameters, accumulator and the policy's copies), this machine has " +
        size_text(held) + "; use fewer workers or a smaller set");
  }
  if (*count <= kElementsMax) return {};
  return bad_input(std::to_string(*count) + " parameters are more than " +
                   std::to_string(kElementsMax) + ", what one stream of frames can number");
}
}  // namespace

Result<void> read_policy(RunOptions& o, std::uint32_t world) {
  if (world == 0 || world > kWorkersMax) {
    return bad_input("--workers: " + std::to_string(world) + " is not within 1.." +
                     std::to_string(kWorkersMax));
  }
  auto policy = parse_policy(o.policy_text, world);
  if (!policy) return std::move(policy).error();
  o.policy = std::move(*policy);
  return {};
}

Result<void> check_rounds(const Policy& policy) {
  // Where receivers are selected online it is unequal links that rounds differ by.
  if (!policy.has(Trait::unequal_steps)) return {};
  return bad_input(
      "--policy: pace=ssp and async are about steps that take unequally long, and here are none; "
      "use `selmcast train`, pace=ssp:s,eta with select=selmcast:p, or pace=bsp");
}

Result<void> check_simulated(const Policy& policy) {
  if (auto ok = check_rounds(policy); !ok) return ok;
  if (policy.has(Trait::on_steps)) {
    return bad_input(
        "--policy: the simulator has no steps of an application, which mix=compensate, lgp "
        "and stale are about; use `selmcast train --transport sim`, --transport shm or uring, or "
        "mix=average");
  }
  return {};
}

Result<void> check_run_options(const RunOptions& o, std::uint32_t world, std::uint32_t local) {
  if (o.rounds == 0) return bad_input("--rounds: 0 is not allowed; at least 1");
  if (!(o.loss >= 0.0 && o.loss < 1.0)) {
    return bad_input("--loss: " + text_of(o.loss) + " is not within 0 <= F < 1");
  }
  if (!(o.timeout_s >= 1.0 && o.timeout_s <= 86'400.0)) {
    return bad_input("--timeout: " + text_of(o.timeout_s) + " is not within 1..86400 s");
  }
  if (o.mtu != 0 && (o.mtu < 576 || o.mtu > 65'535)) {
    return bad_input("--mtu: " + std::to_string(o.mtu) + " is not 0 or within 576..65535");
  }
  if (o.deterministic && o.policy.free()) {
    return bad_input(
        "--deterministic: under pace=ssp and async it depends on time what is merged together; use "
        "pace=bsp, or leave it out");
  }
  if (auto seed = init_seed(o); !seed) return std::move(seed).error();
  if (auto size = check_size(o, local); !size) return size;
  if (auto plan = check_plan(o, world); !plan) return plan;
  if (o.dump_folder.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(o.dump_folder, error);
  if (error)
    return bad_input("--dump: cannot make folder " + o.dump_folder + ": " + error.message());
  return {};
}

}  // namespace selmcast
