// Memory of one worker beside its parameters, as the heap grows from nothing to a driver in its
// first view, against what it should be: one accumulator, under codec=cast the snapshot that
// travels, and per frame a few bytes; nothing the size of the model per sender or per rank.
//
//   bench_worker_memory [MiB of parameters = 64]
#include <malloc.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/driver_rig.h"
#include "bench/null_transport.h"
#include "hwconf/machine.h"

namespace selmcast {
namespace {

/// Bytes in use of the heap, large mapped blocks included.
double heap_bytes() {
  const auto now = ::mallinfo2();
  return static_cast<double>(now.uordblks + now.hblkhd);
}

struct Grown {
  double expected = 0.0, measured = 0.0;
  std::size_t senders = 0;
};

Grown measure(const std::string& policy_text, std::uint32_t ranks, bool deterministic,
              std::vector<float>& parameters) {
  const auto policy = need(parse_policy(policy_text));
  NullTransport transport;
  const auto view = view_of(ranks, 1'000'000);
  const std::vector<PeerAddress> peers(ranks);
  auto config = config_of(policy, 0, ranks, transport.capabilities().max_frame_bytes);
  config.deterministic = deterministic;
  Grown out;
  const double before = heap_bytes();
  const auto made = need(Driver::make(transport, config, peers, parameters));
  Driver& driver = *made;
  offer_first(driver, view, policy, 0);
  const SteadyClock clock;
  driver.progress(clock.now());
  driver.activate(0);
  driver.progress(clock.now());
  out.measured = heap_bytes() - before;
  const Program program = need(compile(view, policy, 0));
  for (std::size_t slot = 0; slot < program.rounds.size(); ++slot) {
    out.senders = std::max(out.senders, senders_of(program, slot).size());
  }
  const auto elements = static_cast<double>(parameters.size());
  const double payload = (config.frame_bytes - kFrameHeaderBytes) / 8 * 8;
  const double frames = std::ceil(elements * bytes_of(policy.codec.element) / payload);
  // The accumulator; the snapshot; per frame its counts of contributors and of ranks, and what is
  // owed of it (16 bits and a bit); and a bit per frame and sender.
  out.expected = elements * (deterministic ? 8 : 4) +
                 (policy.codec.element == WireElement::f32 ? 0.0 : 2 * elements) +
                 frames * (2 + 2 + 2 + 0.125) + static_cast<double>(out.senders) * frames / 8;
  return out;
}

void run(std::size_t mib) {
  std::vector<float> parameters((mib << 20U) / sizeof(float), 1.0F);
  const auto model = static_cast<double>(parameters.size() * sizeof(float));
  std::printf("parameters: %zu MiB; shares are of that\n", mib);
  std::printf(
      "formula: 1 accumulator (2 when deterministic) + 1/2 under codec=cast + per frame 6.1 "
      "bytes and 1 bit per sender\n");
  std::printf("%-34s %6s %8s %10s %10s %14s\n", "policy", "ranks", "senders", "formula", "measured",
              "rest, bytes");
  const struct {
    const char* policy;
    bool deterministic;
  } cases[] = {{"select=all", false},
               {"select=all mix=age", false},
               {"select=all codec=cast:bf16", false},
               {"select=all", true},
               {"select=selmcast:1", false}};
  for (const auto& c : cases) {
    for (const std::uint32_t ranks : {2U, 8U, 64U}) {
      const auto grown = measure(c.policy, ranks, c.deterministic, parameters);
      std::printf("%-34s %6u %8zu %10.4f %10.4f %14.0f\n",
                  (std::string(c.policy) + (c.deterministic ? ", deterministic" : "")).c_str(),
                  ranks, grown.senders, grown.expected / model, grown.measured / model,
                  grown.measured - grown.expected);
    }
  }
}

}  // namespace
}  // namespace selmcast

int main(int argc, char** argv) {
  using namespace selmcast;
  char* end = nullptr;
  const long mib = argc > 1 ? std::strtol(argv[1], &end, 10) : 64;
  if (argc > 2 || (end != nullptr && *end != '\0') || mib < 1 || mib > 1024) {
    std::fprintf(stderr, "usage: bench_worker_memory [MiB of parameters, 1 to 1024]\n");
    return 2;
  }
  std::fprintf(stderr, "%s\n", machine_facts(describe_machine()).c_str());
  run(static_cast<std::size_t>(mib));
  return 0;
}
