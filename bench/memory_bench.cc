// Memory bandwidth of the accumulate kernels against this machine's own, in the manner of STREAM
// (McCalpin, "Memory bandwidth and machine balance", 1995): copy and triad of arrays far larger
// than the caches. Kernels and references take turns, so that a busy machine slows both alike, and
// the ratio is taken within each turn.
//
//   bench_memory [MiB per array = 64] [turns = 15]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hwconf/machine.h"
#include "sync/mix/kernels.h"

namespace selmcast {
namespace {

struct Arrays {
  explicit Arrays(std::size_t n) : a(n, 1.0F), b(n, 2.0F), c(n, 3.0F), wide(n / 2, 1) {}
  const std::byte* update() const { return reinterpret_cast<const std::byte*>(b.data()); }
  std::byte* sent() { return reinterpret_cast<std::byte*>(c.data()); }
  std::vector<float> a, b, c;
  std::vector<std::int64_t> wide;
};

struct Case {
  std::string name;
  double bytes_per_element;  ///< Read and written, as STREAM counts: no write-allocate.
  std::function<void(Arrays&)> run;
  std::vector<double> gbs = {};  ///< One per turn.
};

// Plain loops that the compiler vectorises, as the reference for what a core can move. Not inlined,
// so that they cannot be merged or dropped.
[[gnu::noinline]] void copy(float* a, const float* b, std::size_t n) {
  std::memcpy(a, b, n * sizeof(float));
}
[[gnu::noinline]] void triad(float* a, const float* b, const float* c, float s, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] + s * c[i];
}

/// Calls kernel(first element, count) for each frame's payload of an array: 1432 bytes.
template <class Kernel>
void by_frame(std::size_t elements, std::uint32_t element_bytes, const Kernel& kernel) {
  const std::size_t frame = 1432 / element_bytes;
  for (std::size_t i = 0; i + frame <= elements; i += frame) kernel(i, frame);
}

/// The loops that run frame by frame as the driver does, on updates of this type.
void add_cases_of(WireElement element, const std::string& name, std::vector<Case>& out) {
  const std::uint32_t size = bytes_of(element);
  out.push_back({"sum += update, " + name, 8.0 + size, [=](Arrays& x) {
                   by_frame(x.a.size(), size, [&](std::size_t i, std::size_t n) {
                     kernels::add(element, &x.a[i], x.update() + i * size, n);
                   });
                 }});
  out.push_back({"sum += update - sent, " + name, 8.0 + 2 * size, [=](Arrays& x) {
                   by_frame(x.a.size(), size, [&](std::size_t i, std::size_t n) {
                     kernels::add_difference(element, &x.a[i], x.update() + i * size,
                                             x.sent() + i * size, n);
                   });
                 }});
  out.push_back({"sum += (update - sent) * a, " + name, 8.0 + 2 * size, [=](Arrays& x) {
                   by_frame(x.a.size(), size, [&](std::size_t i, std::size_t n) {
                     kernels::add_scaled_difference(element, &x.a[i], x.update() + i * size,
                                                    x.sent() + i * size, 0.25F, n);
                   });
                 }});
  if (element == WireElement::f32) return;
  out.push_back({"encode, " + name, 4.0 + size,
                 [=](Arrays& x) { kernels::encode(element, x.sent(), x.a.data(), x.a.size()); }});
}

std::vector<Case> cases() {
  std::vector<Case> out{
      {"stream copy", 8, [](Arrays& x) { copy(x.a.data(), x.b.data(), x.a.size()); }},
      {"stream triad", 12,
       [](Arrays& x) { triad(x.a.data(), x.b.data(), x.c.data(), 0.5F, x.a.size()); }}};
  add_cases_of(WireElement::f32, "f32", out);
  add_cases_of(WireElement::bf16, "bf16", out);
  add_cases_of(WireElement::f16, "f16", out);
  // The sums are twice as wide: half as many elements.
  for (const auto element : {WireElement::f32, WireElement::bf16}) {
    const std::uint32_t size = bytes_of(element);
    out.push_back({element == WireElement::f32 ? "fixed sum, f32" : "fixed sum, bf16",
                   0.5 * (16 + 2 * size), [=](Arrays& x) {
                     by_frame(x.wide.size(), size, [&](std::size_t i, std::size_t n) {
                       kernels::fixed_add_difference(element, &x.wide[i], x.update() + i * size,
                                                     x.sent() + i * size, n);
                     });
                   }});
  }
  out.push_back({"own += sum * scale", 12, [](Arrays& x) {
                   kernels::finish_difference(x.a.data(), x.b.data(), 0.25F, x.a.size());
                 }});
  return out;
}

/// Of this thread, so that time given to other processes does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_of(const std::function<void(Arrays&)>& run, Arrays& arrays) {
  const double begin = cpu_seconds();
  run(arrays);
  return cpu_seconds() - begin;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void measure(std::vector<Case>& list, std::size_t elements, int turns) {
  Arrays arrays(elements);
  for (const Case& c : list) seconds_of(c.run, arrays);  // Warm-up: pages and clocks.
  for (int turn = 0; turn < turns; ++turn) {
    for (Case& c : list) {
      const double bytes = c.bytes_per_element * static_cast<double>(elements);
      c.gbs.push_back(bytes / seconds_of(c.run, arrays) / 1e9);
    }
  }
}

void print(const std::vector<Case>& list) {
  std::printf("%-28s %8s %8s %8s %16s\n", "GB/s", "median", "low", "high", "ratio to triad");
  for (const Case& c : list) {
    std::vector<double> ratios;
    for (std::size_t t = 0; t < c.gbs.size(); ++t) ratios.push_back(c.gbs[t] / list[1].gbs[t]);
    std::printf("%-28s %8.2f %8.2f %8.2f %16.2f\n", c.name.c_str(), quantile(c.gbs, 0.5),
                quantile(c.gbs, 0), quantile(c.gbs, 1), quantile(ratios, 0.5));
  }
}

/// The number at this place of the command line, 0 if it is none within [1, most].
long argument(int argc, char** argv, int at, long fallback, long most) {
  if (at >= argc) return fallback;
  char* end = nullptr;
  const long value = std::strtol(argv[at], &end, 10);
  return *end == '\0' && value >= 1 && value <= most ? value : 0;
}

}  // namespace
}  // namespace selmcast

int main(int argc, char** argv) {
  using namespace selmcast;
  const long mib = argument(argc, argv, 1, 64, 4096);
  const long turns = argument(argc, argv, 2, 15, 10'000);
  if (argc > 3 || mib == 0 || turns == 0) {
    std::fprintf(stderr, "usage: bench_memory [MiB per array, 1 to 4096] [turns, 1 to 10000]\n");
    return 2;
  }
  std::fprintf(stderr, "%s\n", machine_facts(describe_machine()).c_str());
  const std::size_t elements = (static_cast<std::size_t>(mib) << 20U) / sizeof(float);
  std::printf("three arrays of %ld MiB, one thread, %ld turns\n", mib, turns);
  auto list = cases();
  measure(list, elements, static_cast<int>(turns));
  print(list);
  return 0;
}
