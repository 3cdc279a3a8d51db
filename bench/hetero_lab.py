#!/usr/bin/env python3
"""Time to 95 % accuracy among unlike workers: which policy is best, and by how much.

    hetero_lab.py [--program build/release/selmcast] [--seeds 5] [--minutes 10]
                  [--links-mbps 100,200,...,800] [--compute-ms 4] [--slow-rank 3] [--slow 4]
                  [--split skew|iid] [--data generated:6000] [--hidden 128] [--epochs 3]
                  [--transport sim|auto] [--add POLICY]... [--csv FILE] [--plot FILE.svg]
                  [POLICY...]

With --transport sim (the default) the job runs in virtual time: links of --links-mbps (one per
rank, both directions) are simulated and enforced, real gradients are computed, and only the stated
compute times and the network take time. The figures do not depend on this machine or what else it
does. With another transport all ranks are processes of this machine, the links exist in name only,
and each rank sends at the rate that the plan computes from them. A step computes for at least
--compute-ms, --slow times that on --slow-rank; the network is wide enough that exchanging it takes
longer than computing. Where the pace ties ranks together all do equally many steps; where it does
not (overlap), fast ranks do as many more as they are faster (--steps-by-speed), so that all end
together: otherwise the slow one would train alone, on its own classes, at the end.

`to 95 %`: the first time at which the mean of the workers' newest models reached 0.95 on the test
set, median over the seeds [least, largest]; a seed that never did counts as infinite. Policies
named at the end replace the list, --add extends it. No new seed is begun when it would end after
--minutes."""

import argparse
import math
import os
import statistics
import time

import training_runs as runs

SYSTEMS = ["bsp", "bsp route=ps:1", "bsp route=ps:4", "p3", "osp2", "osp", "losp", "slim",
           "select=all pace=periodic:4", "select=all pace=ssp:2", "select=all pace=async",
           "select=selmcast:2", "select=selmcast:3", "select=selmcast:2 mix=age",
           "select=selmcast:2 pace=ssp:2", "selmcast-ssp pace=ssp:2,0.75",
           "select=selmcast:2 pace=async",
           "select=selmcast:2 pace=periodic:4", "select=random:2"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*")
    parser.add_argument("--add", action="append", default=[])
    parser.add_argument("--program", default="build/release/selmcast")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--links-mbps", default=",".join(str(100 * (i + 1)) for i in range(8)))
    parser.add_argument("--compute-ms", type=float, default=4.0)
    parser.add_argument("--slow-rank", type=int, default=3)
    parser.add_argument("--slow", type=float, default=4.0)
    parser.add_argument("--split", choices=["skew", "iid"], default="skew")
    parser.add_argument("--data", default="generated:6000")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--curve-steps", type=int, default=6)
    parser.add_argument("--transport", default="sim")
    parser.add_argument("--csv")
    parser.add_argument("--plot")
    return parser.parse_args()


def measure(options, setup, policies, csv):
    results = {policy: [] for policy in policies}
    begin = time.monotonic()
    for seed in range(1, options.seeds + 1):
        spent = time.monotonic() - begin
        if seed > 1 and spent * seed / (seed - 1) > options.minutes * 60:
            print(f"seeds {seed}..{options.seeds} left out: they would end after "
                  f"{options.minutes:g} minutes")
            break
        for policy, result in zip(policies, runs.train_all(setup, policies, seed)):
            results[policy].append(result)
            csv.extend(runs.csv_rows(setup, policy, seed, result))
    return results


def seconds_text(value):
    return f"{value:6.2f}" if math.isfinite(value) else "     -"


def print_table(results):
    reached = {policy: [runs.time_to_target(one) or math.inf for one in seeds]
               for policy, seeds in results.items()}
    median = {policy: statistics.median(times) for policy, times in reached.items()}
    print("\npolicy                              to 95 % [least, largest] s   to bsp  accuracy  "
          "worst   all steps  rounds  MB sent")
    for policy in sorted(results, key=lambda name: median[name]):
        times, seeds = reached[policy], results[policy]
        ratio = median[policy] / median["bsp"] if "bsp" in median else math.nan
        print(f"{policy:35} {seconds_text(median[policy])} [{seconds_text(min(times))}, "
              f"{seconds_text(max(times))}]     {ratio:5.2f}x  "
              f"{statistics.median(one['accuracy'] for one in seeds):8.3f}  "
              f"{statistics.median(one['worker_accuracy']['min'] for one in seeds):.3f}  "
              f"{statistics.median(one['seconds'] for one in seeds):7.2f} s  "
              f"{statistics.median(one['rounds'] for one in seeds):6.0f}  "
              f"{statistics.median(one['bytes_on_wire'] for one in seeds) / 1e6:7.1f}")
    best = min(median, key=median.get)
    if not math.isfinite(median[best]):
        print("\nno system reached 95 % in most seeds")
    elif math.isfinite(median.get("bsp", math.inf)):
        print(f"\nbest: {best}, {median['bsp'] / median[best]:.2f} times as fast as bsp to 95 % "
              f"({median[best]:.2f} s against {median['bsp']:.2f} s, medians of "
              f"{len(reached[best])} seeds)")
    else:
        print(f"\nbest: {best}, {median[best]:.2f} s to 95 %")


def main():
    options = arguments()
    policies = list(dict.fromkeys((options.policies or SYSTEMS) + options.add))
    links = [round(1000 * float(rate)) for rate in options.links_mbps.split(",")]
    slowdown = [options.slow if rank == options.slow_rank else 1 for rank in range(len(links))]
    setup = runs.Setup(options.program, options.data, options.split, options.epochs, links,
                       options.compute_ms, slowdown, options.model, options.hidden,
                       options.curve_steps, transport=options.transport)
    load = os.getloadavg()[0]
    print(runs.machine_facts())
    where = ("virtual time, simulated links of" if options.transport == "sim" else
             "ranks on this machine; links in name only, each sender paced at the planned rate for")
    print(f"{setup.workers} ranks, {where} {options.links_mbps} Mbit/s; "
          f"{options.compute_ms:g} ms of computing "
          f"per step, {options.slow:g} times that on rank {options.slow_rank}; {options.model} of "
          f"{options.hidden} hidden units on {options.data}, {options.split} split")
    csv = [runs.CSV_HEADER]
    results = measure(options, setup, policies, csv)
    one = results[policies[0]][0]
    print(f"{one['params_bytes']} bytes of parameters, {one['steps']} steps per worker, "
          f"{len(results[policies[0]])} seeds")
    print_table(results)
    if options.transport != "sim":
        print(runs.load_note(load))
    if options.csv:
        runs.write_lines(options.csv, csv)
    if options.plot:
        chart = runs.Chart(f"{setup.workers} unlike workers; median over the seeds")
        chart.add("accuracy", results, "accuracy", 0.0, 1.0)
        chart.add("loss", results, "loss")
        chart.write(options.plot)


if __name__ == "__main__":
    main()
