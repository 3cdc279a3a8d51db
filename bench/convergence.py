#!/usr/bin/env python3
"""Accuracy against steps and against time, over the named systems, with their spread over seeds.

    convergence.py [--program build/release/selmcast] [--seeds 5] [--split skew|iid|both]
                   [--workers 8] [--epochs 28] [--compute-ms 2] [--links 50000] [--slow 1]
                   [--csv FILE] [POLICY...]

Links are loopback, paced at --links kbit/s per rank as a stand-in for a network of that rate;
computing is a sleep of --compute-ms per step, --slow times that on rank 0. `to 95 %` is the first
time at which the mean of the workers' models reached 0.95 on the test set (median over the seeds
that did, and how many did). Means are given with the half width of their 95 % interval (t).
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile

SYSTEMS = ["bsp", "osp", "losp mix=compensate:1", "losp", "slim", "select=all pace=periodic:4",
           "select=selmcast:2", "select=selmcast:3"]
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
TARGET = 0.95


def interval(values):
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, float("nan")
    half = T95.get(len(values) - 1, 2.0) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, half


def train(options, links, policy, split, seed):
    command = [options.program, "train", "--workers", str(options.workers), "--epochs",
               str(options.epochs), "--compute-ms", str(options.compute_ms), "--links", links,
               "--split", split, "--policy", policy, "--seed", str(seed), "--json", "-"]
    if options.slow != 1:
        command += ["--slowdown", ",".join([str(options.slow)] + ["1"] * (options.workers - 1))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{policy}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def time_to_target(result):
    for point in result["curves"]["workers"]:
        if point["accuracy"] >= TARGET:
            return point["seconds"]
    return None


def row(options, links, policy, split, csv):
    runs = [train(options, links, policy, split, seed) for seed in range(1, options.seeds + 1)]
    for seed, run in enumerate(runs, 1):
        for point in run["curves"]["workers"]:
            csv.append(f"{split},\"{policy}\",{seed},{point['steps']},{point['seconds']:.4f},"
                       f"{point['accuracy']:.4f},{point['loss']:.4f},"
                       f"{point['worker_accuracy']['min']:.4f}")
    mean, half = interval([run["accuracy"] for run in runs])
    worst = min(run["worker_accuracy"]["min"] for run in runs)
    reached = [t for t in map(time_to_target, runs) if t is not None]
    when = f"{statistics.median(reached):6.2f} s" if reached else "       -"
    seconds = statistics.median(run["seconds"] for run in runs)
    megabytes = statistics.median(run["bytes_on_wire"] for run in runs) / 1e6
    rounds = statistics.median(run["rounds"] for run in runs)
    print(f"{split:5} {policy:28} {mean:.3f} +-{half:.3f}  {worst:.3f}  {when} ({len(reached)}/"
          f"{len(runs)})  {seconds:6.2f} s  {rounds:6.0f} of {runs[0]['steps']}  {megabytes:7.1f}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=SYSTEMS)
    parser.add_argument("--program", default="build/release/selmcast")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--split", choices=["skew", "iid", "both"], default="both")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=28)
    parser.add_argument("--compute-ms", type=float, default=2.0)
    parser.add_argument("--links", type=int, default=50_000)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--csv")
    options = parser.parse_args()
    csv = ["split,policy,seed,steps,seconds,accuracy,loss,worst_worker"]
    print("split policy                       accuracy       worst  to 95 %        "
          "  all steps  rounds        MB sent")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as links:
        rates = [options.links] * options.workers
        json.dump({"tx_kbps": rates, "rx_kbps": rates}, links)
        links.flush()
        for split in ("skew", "iid") if options.split == "both" else (options.split,):
            for policy in options.policies:
                row(options, links.name, policy, split, csv)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8") as file:
            file.write("\n".join(csv) + "\n")


if __name__ == "__main__":
    main()
