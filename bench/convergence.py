#!/usr/bin/env python3
"""Accuracy and loss against time, over the named systems, with their spread over seeds.

    convergence.py [--program build/release/selmcast] [--seeds 5] [--split skew|iid|both]
                   [--data digits,generated:6000] [--workers 8] [--epochs N] [--compute-ms 2]
                   [--links 50000] [--slow 1] [--csv FILE] [--plot FILE.svg] [POLICY...]
    convergence.py --claims [...]
    convergence.py --staleness [...]
    convergence.py --grid [...]

With --transport sim (the default) jobs run in virtual time: links of --links kbit/s per rank are
simulated and enforced, real gradients are computed, and computing takes --compute-ms per step,
--slow times that on rank 0. So figures do not depend on this machine. With another transport the
ranks are processes, links are loopback paced at that rate, and computing sleeps as long. All
systems take equally many steps, but that under overlap faster ranks do more (--steps-by-speed).
`to 95 %` is the first time at which the mean of the workers' newest models reached 0.95 on the
test set (median over the seeds that did, and how many did); accuracy and loss are of that mean
model at the end, with the half width of their 95 % interval (t) over the seeds.

--staleness compares the systems that bear it at 0 to 8 steps of it: ssp:s (0 = bsp), DASO's stale:S
with periodic:8, and osp with at most K steps beyond a departure.

--claims instead judges what the systems promise, on each data set and split, by differences between
runs of the same seed: their mean, and its one-sided 95 % bounds. `holds`: the bound on the bad
side is still within the claim; `does not hold`: the bound on the good side is not; `undecided`
otherwise.

--grid does all of this on both data sets: every named system and the words that bear on accuracy,
their claims, and then staleness. --single-process (implied by --grid) puts a single process beside
them, which does as many steps on the samples of all workers together. `samples` is how many samples
all workers together had seen when the mean of their models after equally many steps reached 0.95.
"""

import argparse
import os
import statistics
import sys

import training_runs as runs

SYSTEMS = ["bsp", "osp", "losp mix=compensate:1", "losp", "slim", "select=all pace=periodic:4",
           "select=selmcast:2", "select=selmcast:3", "selmcast-ssp"]
GRID = ["bsp", "select=all route=ps:2 mix=sgd", "p3", "osp2", "slim", "slim mix=compensate:0",
        "select=selmcast:2", "select=selmcast:3", "select=selmcast:2 mix=age", "orpheus", "gossip",
        "select=selmcast:2 pace=ssp:2", "selmcast-ssp", "select=all pace=periodic:4",
        "select=all pace=periodic:4 mix=stale:2", "osp", "losp mix=compensate:1", "losp",
        "select=all pace=async"]
DRAWN = ["bsp", "p3", "osp2", "slim", "select=selmcast:2", "select=selmcast:3", "orpheus", "gossip",
         "osp", "losp"]  # Of the grid: what twelve colours still keep apart.
STALENESS = ([f"select=all pace=ssp:{s}" for s in (0, 1, 2, 4, 8)] +
             [f"select=all pace=periodic:8 mix=stale:{s}" for s in (1, 2, 4, 8)] +
             [f"osp pace=overlap:{k}" for k in (1, 2, 4, 8)])
CLAIMED = ["bsp", "select=selmcast:2", "select=selmcast:3", "slim", "slim mix=compensate:0", "osp",
           "losp"]
# As many steps of a worker as make the systems settle: about 300 (digits) and 600.
EPOCHS = {"digits": 14, "generated": 8}


def setup_of(options, data, split):
    epochs = options.epochs or EPOCHS.get(data.split(":")[0], 10)
    slowdown = [options.slow] + [1] * (options.workers - 1) if options.slow != 1 else []
    # A point about every fiftieth of the run, whatever the size of an epoch.
    return runs.Setup(options.program, data, split, epochs, [options.links] * options.workers,
                      options.compute_ms, slowdown, options.model, options.hidden,
                      options.curve_steps, references=options.grid or options.single_process,
                      transport=options.transport)


def measure(options, setup, policies, csv):
    """System -> results of its seeds. Seeds outside, so that a busy moment hits all systems."""
    results = {policy: [] for policy in policies}
    for seed in range(1, options.seeds + 1):
        done = runs.train_all(setup, policies, seed, options.at_a_time)
        for policy, result in zip(policies, done):
            results[policy].append(result)
            csv.extend(runs.csv_rows(setup, policy, seed, result))
    return results


def when(moments, seeds, unit, digits):
    """Median over the seeds that got there, and how many did."""
    reached = [moment for moment in moments if moment is not None]
    text = f"{statistics.median(reached):7.{digits}f}" if reached else "      -"
    return f"{text}{unit} ({len(reached)}/{len(seeds)})"


def print_single_process(setup, seeds):
    """The reference runs of the first system's seeds: they do not depend on a policy."""
    curves = [one["curves"]["baseline"] for one in seeds]
    accuracy, half = runs.interval([curve[-1]["accuracy"] for curve in curves])
    loss, loss_half = runs.interval([curve[-1]["loss"] for curve in curves])
    samples = when([runs.samples_to_target(setup, one, "baseline") for one in seeds], seeds, "", 0)
    print(f"{'(single process)':40} {accuracy:.3f} +-{half:.3f}  {loss:.3f} +-{loss_half:.3f}  "
          f"    -  {samples}", flush=True)


def print_table(setup, results):
    print(f"\n{setup.data}, {setup.split} split, {setup.model}, {setup.workers} workers")
    print(f"{'policy':40} accuracy     loss           worst  samples           to 95 %           "
          "all steps  rounds        MB sent")
    if setup.references:
        print_single_process(setup, next(iter(results.values())))
    for policy, seeds in results.items():
        accuracy, half = runs.interval([one["accuracy"] for one in seeds])
        loss, loss_half = runs.interval([runs.curve(one)[-1]["loss"] for one in seeds])
        worst = min(one["worker_accuracy"]["min"] for one in seeds)
        samples = when([runs.samples_to_target(setup, one) for one in seeds], seeds, "", 0)
        time = when(map(runs.time_to_target, seeds), seeds, " s", 2)
        seconds = statistics.median(one["seconds"] for one in seeds)
        megabytes = statistics.median(one["bytes_on_wire"] for one in seeds) / 1e6
        rounds = statistics.median(one["rounds"] for one in seeds)
        print(f"{policy:40} {accuracy:.3f} +-{half:.3f}  {loss:.3f} +-{loss_half:.3f}  "
              f"{worst:.3f}  {samples}  {time}  {seconds:6.2f} s  {rounds:6.0f} "
              f"of {seeds[0]['steps']}  {megabytes:7.1f}", flush=True)


def verdict(differences, least):
    """Of the claim that the difference is at least `least`."""
    mean, half = runs.interval(differences, runs.ONE_SIDED)
    if mean - half >= least:
        word = "holds"
    elif mean + half < least:
        word = "does not hold"
    else:
        word = "undecided"
    return f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]  {word}"


def paired(results, ours, other, value):
    return [value(a) - value(b) for a, b in zip(results[ours], results[other])]


def print_claims(setup, results):
    print(f"\n{setup.data}, {setup.split} split: mean difference [one-sided 95 % bounds]  verdict")
    for part, name in ((0.5, "half of"), (1.0, "the end of")):
        differences = []
        for losp, osp in zip(results["losp"], results["osp"]):
            moment = part * min(losp["seconds"], osp["seconds"])
            differences.append(runs.value_at(losp, moment, "accuracy") -
                               runs.value_at(osp, moment, "accuracy"))
        label = f"losp no worse than osp at {name} the shorter run"
        print(f"  (a) {label:62} {verdict(differences, 0.0)}")

    def accuracy(result):
        return result["accuracy"]

    def share(policy, field):
        return statistics.median(a[field] / b[field]
                                 for a, b in zip(results[policy], results["bsp"]))

    for policy in ("slim", "slim mix=compensate:0"):
        part = share(policy, "bytes_on_wire")
        label = f"{policy} within 1.5 points of bsp, {part:.2f} of its bytes"
        print(f"  (b) {label:62} {verdict(paired(results, policy, 'bsp', accuracy), -0.015)}")
    for policy in ("select=selmcast:2", "select=selmcast:3"):
        label = (f"{policy[7:]} within 1.5 points of bsp, {share(policy, 'seconds'):.2f} of its "
                 "time")
        print(f"  (c) {label:62} {verdict(paired(results, policy, 'bsp', accuracy), -0.015)}",
              flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*")
    parser.add_argument("--program", default="build/release/selmcast")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--split", choices=["skew", "iid", "both"], default="both")
    parser.add_argument("--data", help="data sets, separated by commas (default: digits; with "
                                       "--claims digits,generated:6000)")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, help="default: 14 (digits), 8 (generated)")
    parser.add_argument("--curve-steps", type=int, default=8)
    parser.add_argument("--compute-ms", type=float, default=2.0)
    parser.add_argument("--links", type=int, default=50_000)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--transport", default="sim")
    parser.add_argument("--claims", action="store_true")
    parser.add_argument("--staleness", action="store_true")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--single-process", action="store_true")
    parser.add_argument("--at-a-time", type=int, help="simulated jobs (default: one per processor)")
    parser.add_argument("--csv")
    parser.add_argument("--plot")
    options = parser.parse_args()
    if (options.claims or options.grid) and options.policies:
        sys.exit("--claims and --grid take named systems; leave the policies out")
    return options


def main():
    options = arguments()
    default = "digits,generated:6000" if options.claims or options.grid else "digits"
    data_sets = (options.data or default).split(",")
    listed = STALENESS if options.staleness else SYSTEMS
    policies = GRID if options.grid else CLAIMED if options.claims else options.policies or listed
    csv = [runs.CSV_HEADER]
    load = os.getloadavg()[0]
    print(runs.machine_facts())
    where = "virtual time, simulated links of" if options.transport == "sim" else (
        "processes of this machine, loopback paced at")
    print(f"{options.workers} ranks, {where} {options.links / 1000:g} Mbit/s, "
          f"{options.compute_ms:g} ms of computing per step, rank 0 "
          f"{options.slow:g} times that; {options.seeds} seeds")
    chart = runs.Chart("median over the seeds; bands: least to largest")
    for data in data_sets:
        for split in ("skew", "iid") if options.split == "both" else (options.split,):
            setup = setup_of(options, data, split)
            results = measure(options, setup, policies, csv)
            print_table(setup, results)
            if options.claims or options.grid:
                print_claims(setup, results)
            if options.grid:
                print_table(setup, measure(options, setup, STALENESS, csv))
            drawn = {name: results[name] for name in (DRAWN if options.grid else policies)}
            for field, high in (("accuracy", 1.0), ("loss", None)):
                chart.add(f"{field}: {data}, {split} split", drawn, field, 0.0, high)
    if options.transport != "sim":
        print(runs.load_note(load))
    if options.csv:
        runs.write_lines(options.csv, csv)
    if options.plot:
        chart.write(options.plot)


if __name__ == "__main__":
    main()
