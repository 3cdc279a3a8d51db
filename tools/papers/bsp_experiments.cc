#include <algorithm>
#include <cmath>
#include <map>

#include "tools/papers/bsp.h"
#include "tools/papers/experiment.h"

namespace selmcast {
namespace {

constexpr const char* kPapers = "papers";

/// One setting of the sweep: how to draw a problem, and what the papers say about it.
struct Case {
  std::string setting;
  double x = 0.0;
  std::uint32_t n = 100, p = 30;
  Fanout fanout = Fanout::multicast;
  std::vector<LinkLaw> laws;  ///< One per column.
  std::vector<Method> methods{Method::exact, Method::published, Method::orpheus};
  std::map<std::string, PublishedNumber> published;  ///< By "method metric".
};

const char* name_of(Method method) {
  return method == Method::exact ? "exact" : method == Method::published ? "published" : "orpheus";
}

std::uint32_t trials_of(const StudyOptions& options, std::uint32_t otherwise) {
  return options.trials == 0 ? otherwise : options.trials;
}

/// p = share * n, rounded to the nearest, at least 1.
std::uint32_t share_of(double share, std::uint32_t n) {
  return std::max(1U, static_cast<std::uint32_t>(std::lround(share * n)));
}

/// lambda = 0.25, with which the published numbers come out, and 0.5, which the papers declare.
std::vector<LinkLaw> both_spreads(double transmit = 1.0) {
  return {{40e6, 0.25, transmit}, {40e6, 0.5, transmit}};
}
const std::vector<std::string> kBothSpreads = {"lambda=0.25", "lambda=0.5"};

/// Time and receivers of one method over the trials, one sample per column.
Result<std::vector<StudyPoint>> points_of(const Case& one, Method method, std::uint32_t trials,
                                          std::uint64_t seed, const std::function<void()>& tick) {
  StudyPoint time{one.setting, name_of(method), "time", one.x, {}, {}};
  StudyPoint receivers{one.setting, name_of(method), "receivers", one.x, {}, {}};
  for (const auto& law : one.laws) {
    std::vector<double> times, shares;
    for (std::uint32_t trial = 0; trial < trials; ++trial) {
      const auto problem = draw_problem(law, one.n, one.p, one.fanout, trial_seed(seed, trial));
      const auto outcome = run_round(problem, method);
      if (!outcome) return outcome.error();
      times.push_back(outcome->per_kbps * law.mean_kbps / one.p);
      shares.push_back(static_cast<double>(outcome->receivers) / one.n / one.n);
      tick();
    }
    time.ours.push_back(sample_of(times));
    receivers.ours.push_back(sample_of(shares));
  }
  for (auto* point : {&time, &receivers}) {
    const auto found = one.published.find(point->method + " " + point->metric);
    if (found != one.published.end()) point->published = found->second;
  }
  return std::vector<StudyPoint>{std::move(time), std::move(receivers)};
}

Result<StudyTable> run_cases(const std::vector<Case>& cases, std::vector<std::string> columns,
                             std::uint32_t trials, const StudyOptions& options) {
  StudyTable out{std::move(columns), {}};
  std::uint64_t total = 0, done = 0;
  for (const auto& one : cases) total += one.laws.size() * one.methods.size() * trials;
  const auto tick = [&] {
    if (++done; options.progress) options.progress(done, total);
  };
  for (const auto& one : cases) {
    for (const auto method : one.methods) {
      auto points = points_of(one, method, trials, options.seed, tick);
      if (!points) return points.error();
      for (auto& point : *points) out.points.push_back(std::move(point));
    }
  }
  return out;
}

/// A number for the heuristic is one for SELMCAST: the exact optimum is held against it too.
void publish(Case& one, const std::string& metric, PublishedNumber number) {
  one.published["exact " + metric] = one.published["published " + metric] = number;
}

/// What the text of the papers says about n = 100 and n = 200 at p = 0.3 n.
void add_published_by_n(Case& one) {
  const bool multicast = one.fanout == Fanout::multicast;
  if (one.n == 100 && multicast) {
    publish(one, "time", {1.02, 1.02});
    publish(one, "receivers", {0.30, 0.30});
    one.published["orpheus time"] = {1.67, 1.70};
  } else if (one.n == 100) {
    publish(one, "time", {1.32, 1.32});
    publish(one, "receivers", {0.387, 0.387});
    one.published["orpheus time"] = {1.64, 1.67};
  } else if (one.n == 200 && multicast) {
    publish(one, "time", {1.00, 1.00});
    publish(one, "receivers", {0.30, 0.30});
    one.published["orpheus time"] = {1.55, 1.55};
  }
  one.published["orpheus receivers"] = {0.30, 0.30};
}

Case case_of(Fanout fanout, std::uint32_t n, std::uint32_t p, double x, double transmit = 1.0) {
  Case out;
  out.setting = fanout == Fanout::multicast ? "L3" : "L7";
  out.x = x;
  out.n = n;
  out.p = p;
  out.fanout = fanout;
  out.laws = both_spreads(transmit);
  return out;
}

/// Multicast whose senders are as slow as if each sent p copies: mu = 1/p.
Case slow_sender_case(std::uint32_t n) {
  const auto p = share_of(0.3, n);
  auto out = case_of(Fanout::multicast, n, p, n, 1.0 / p);
  out.setting = "L3 mu=1/p";
  if (n == 200) publish(out, "receivers", {0.40, 0.40});
  out.published["orpheus receivers"] = {0.30, 0.30};
  return out;
}

/// The papers average 10 draws. A mean of 10 still scatters by 2 % for Orpheus, whose time is that
/// of the unluckiest receiver, so that a comparison to 3 % needs more of them.
constexpr std::uint32_t kSummaryTrials = 100;

Result<StudyTable> run_summary(const StudyOptions& options) {
  std::vector<Case> cases;
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    cases.push_back(case_of(fanout, 100, 30, 100));
    add_published_by_n(cases.back());
  }
  cases.push_back(case_of(Fanout::multicast, 200, 60, 200));
  add_published_by_n(cases.back());
  cases.push_back(slow_sender_case(200));
  return run_cases(cases, kBothSpreads, trials_of(options, kSummaryTrials), options);
}

Result<StudyTable> run_by_n(const StudyOptions& options) {
  std::vector<Case> cases;
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    for (std::uint32_t n = 50; n <= 200; n += 25) {
      cases.push_back(case_of(fanout, n, share_of(0.3, n), n));
      add_published_by_n(cases.back());
    }
  }
  return run_cases(cases, kBothSpreads, trials_of(options, 10), options);
}

Result<StudyTable> run_slow_senders(const StudyOptions& options) {
  std::vector<Case> cases;
  for (std::uint32_t n = 50; n <= 200; n += 25) cases.push_back(slow_sender_case(n));
  return run_cases(cases, kBothSpreads, trials_of(options, 10), options);
}

Result<StudyTable> run_by_p(const StudyOptions& options) {
  constexpr std::uint32_t n = 200;
  std::vector<Case> cases;
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    for (const double share : {0.1, 0.2, 0.3, 0.4, 0.5}) {
      cases.push_back(case_of(fanout, n, share_of(share, n), share));
      auto& published = cases.back().published;
      if (share == 0.1) {
        const double time = fanout == Fanout::multicast ? 1.85 : 2.0;
        published["orpheus time"] = {time, time};
      }
      if (share == 0.5) published["orpheus time"] = {1.5, 1.5};
    }
  }
  return run_cases(cases, kBothSpreads, trials_of(options, 10), options);
}

Result<StudyTable> run_by_spread(const StudyOptions& options) {
  std::vector<Case> cases;
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    for (const double spread : {0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75}) {
      cases.push_back(case_of(fanout, 200, 60, spread));
      cases.back().laws = {{40e6, spread, 1.0}};
    }
  }
  return run_cases(cases, {"mean"}, trials_of(options, 10), options);
}

Result<StudyTable> run_by_transmit(const StudyOptions& options) {
  std::vector<Case> cases;
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    for (const double transmit : {1.0 / 60, 1.0 / 30, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0}) {
      cases.push_back(case_of(fanout, 200, 60, transmit, transmit));
    }
  }
  return run_cases(cases, kBothSpreads, trials_of(options, 10), options);
}

Result<StudyTable> run_large(const StudyOptions& options) {
  std::vector<Case> cases;
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    for (const std::uint32_t n : {100U, 300U, 1000U, 3000U, 10'000U}) {
      cases.push_back(case_of(fanout, n, share_of(0.3, n), n));
      cases.back().methods = {Method::exact};
    }
  }
  return run_cases(cases, kBothSpreads, trials_of(options, 10), options);
}

/// Equal links and odd n: the optimum is 1, and ties by index cost the heuristic one slot, p + 1
/// instead of p. This is arithmetic, no paper's number.
Result<StudyTable> run_equal_links(const StudyOptions& options) {
  const auto trials = trials_of(options, 10);
  const LinkLaw law{40e6, 0.0, 1.0};
  StudyTable out{{"mean"}, {}};
  for (const std::uint32_t p : {1U, 2U, 3U, 10U}) {
    const std::string setting = "p=" + std::to_string(p);
    for (std::uint32_t n = 25; n <= 101; n += 38) {
      const auto time_of = [&](const Selection& selection) {
        return law.mean_kbps * static_cast<double>(selection.rate.den) /
               static_cast<double>(selection.rate.num) / p;
      };
      const auto add = [&](const char* method, const std::vector<double>& times,
                           std::optional<PublishedNumber> known) {
        out.points.push_back({setting, method, "time", double(n), {sample_of(times)}, known});
      };
      auto problem = draw_problem(law, n, p, Fanout::multicast, options.seed);
      const auto exact = select_exact(problem);
      if (!exact) return exact.error();
      add("exact", {time_of(*exact)}, PublishedNumber{1.0, 1.0});
      const double trap = (p + 1.0) / p;
      add("published, index ties", {time_of(*select_published(problem))},
          PublishedNumber{trap, trap});
      std::vector<double> times;
      for (std::uint32_t trial = 0; trial < trials; ++trial) {
        problem.seed = trial_seed(options.seed, trial);
        times.push_back(time_of(*select_published(problem, Ties::random)));
      }
      add("published, random ties", times, std::nullopt);
    }
  }
  return out;
}

/// The static bottleneck model beside max-min fair sharing of the same selection.
Result<StudyTable> run_sharing(const StudyOptions& options) {
  const auto trials = trials_of(options, 3);
  StudyTable out{kBothSpreads, {}};
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    for (const std::uint32_t n : {20U, 40U, 60U}) {
      const auto p = share_of(0.3, n);
      for (const bool exact : {true, false}) {
        const std::string setting = fanout == Fanout::multicast ? "L3" : "L7";
        const std::string method = exact ? "exact" : "orpheus";
        StudyPoint fixed{setting, method + ", load/rate", "time", double(n), {}, {}};
        StudyPoint fair{setting, method + ", max-min", "time", double(n), {}, {}};
        for (const auto& law : both_spreads()) {
          std::vector<double> fixed_times, fair_times;
          for (std::uint32_t trial = 0; trial < trials; ++trial) {
            const auto problem = draw_problem(law, n, p, fanout, trial_seed(options.seed, trial));
            const auto selection = exact ? select_exact(problem) : select_random(problem);
            if (!selection) return selection.error();
            const double unit = law.mean_kbps / p;
            fixed_times.push_back(unit * static_cast<double>(selection->rate.den) /
                                  static_cast<double>(selection->rate.num));
            fair_times.push_back(unit *
                                 fair_completion_ms(cards_of(problem),
                                                    streams_of(selection->receivers, fanout, 1.0)));
          }
          fixed.ours.push_back(sample_of(fixed_times));
          fair.ours.push_back(sample_of(fair_times));
        }
        out.points.push_back(std::move(fixed));
        out.points.push_back(std::move(fair));
      }
    }
  }
  return out;
}

/// Unequal model sizes, uniform in [1-x, 1+x]: the heuristic against the lower bound.
Result<StudyTable> run_unequal(const StudyOptions& options) {
  constexpr std::uint32_t n = 100, p = 30, kUnit = 10'000;
  const auto trials = trials_of(options, 10);
  StudyTable out{kBothSpreads, {}};
  for (const double width : {0.0, 0.25, 0.5, 0.75, 0.95}) {
    StudyPoint papers{"L3", "published order", "time over bound", width, {}, {}};
    StudyPoint largest{"L3", "largest first", "time over bound", width, {}, {}};
    for (const auto& law : both_spreads()) {
      std::vector<double> by_index, by_size;
      for (std::uint32_t trial = 0; trial < trials; ++trial) {
        const auto seed = trial_seed(options.seed, trial);
        const auto problem = draw_problem(law, n, p, Fanout::multicast, seed);
        SplitMix64 random(mix_seed(seed + 1));
        std::vector<std::uint64_t> volume;
        for (std::uint32_t i = 0; i < n; ++i) {
          volume.push_back(
              static_cast<std::uint64_t>(kUnit * (1.0 + width * (2.0 * random.unit() - 1.0))));
        }
        for (const auto order : {SenderOrder::forced_first, SenderOrder::largest_first}) {
          const auto got = select_published_volumes(problem, volume, order, Ties::random);
          if (!got) return got.error();
          auto& list = order == SenderOrder::largest_first ? by_size : by_index;
          list.push_back(got->time.value() / got->lower_bound.value());
        }
      }
      papers.ours.push_back(sample_of(by_index));
      largest.ours.push_back(sample_of(by_size));
    }
    out.points.push_back(std::move(papers));
    out.points.push_back(std::move(largest));
  }
  return out;
}

}  // namespace

std::vector<Experiment> bsp_experiments() {
  return {
      {"bsp", "the numbers in the papers' text: n=100 L3 and L7, n=200 L3 and L3 with mu=1/p", "n",
       kPapers, kSummaryTrials, run_summary},
      {"bsp-n", "time and receivers against n, p=0.3n, L3 and L7", "n", kPapers, 10, run_by_n},
      {"bsp-p", "time and receivers against p/n, n=200, L3 and L7", "p/n", kPapers, 10, run_by_p},
      {"bsp-lambda", "time and receivers against the spread of the links, n=200", "lambda", kPapers,
       10, run_by_spread},
      {"bsp-mu", "time and receivers against transmit over receive rate, n=200", "mu", kPapers, 10,
       run_by_transmit},
      {"bsp-l3-senders", "multicast with slow senders (mu=1/p) against n", "n", kPapers, 10,
       run_slow_senders},
      {"bsp-equal", "equal links, odd n: what ties by index cost", "n", "closed form", 10,
       run_equal_links},
      {"bsp-sharing", "load/rate model beside max-min fair sharing of the same selections", "n",
       kPapers, 3, run_sharing},
      {"bsp-unequal", "unequal model sizes, n=100: heuristic over lower bound", "spread of sizes",
       kPapers, 10, run_unequal},
      {"bsp-large", "the exact optimum up to n=10000", "n", kPapers, 10, run_large},
  };
}

}  // namespace selmcast
