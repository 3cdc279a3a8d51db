#!/usr/bin/env python3
"""`selmcast train` against the targets of the selection study: n = 8, label-skewed split, batch 8,
about 300 rounds, MLP with eta 0.3. Argument: the number of seeds (default 1).

The study's selections let every pair meet within 4 rounds, which is said here, since the default
lets 8 ranks take 8: rounds that cost half and mix less. Its workers are held to less.

With a learning rate that falls at the end (the default) each run must hold every target. Without,
all but one: the worst of 8 workers varies too much from seed to seed (0.83 to 0.95 over 100 of
select=selmcast:2,4, as for the reference in one thread, without any driver) for its target of 0.86
to hold in every single run, so there it is held by the mean over the seeds."""

import json
import subprocess
import sys

import jobs

EPOCHS = "14"  # Of 22 rounds each.
FALLING, CONSTANT = "0.2", "0"
DEFAULT = "select=selmcast:2"


def train(policy, decay, seed):
    done = subprocess.run(
        [jobs.PROGRAM, "train", "--workers", "8", "--epochs", EPOCHS, "--batch", "8", "--lr",
         "0.3", "--lr-decay", decay, "--model", "mlp", "--split", "skew", "--policy", policy,
         "--seed", str(seed), "--json", "-"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print("policy             decay  seed  mean model  workers mean  worst  single  never talk  "
          "rounds", flush=True)
    failures = []
    worst = {}
    for decay, seed in ((d, s) for d in (FALLING, CONSTANT) for s in range(1, seeds + 1)):
        full = None
        for policy in ("select=all", "select=selmcast:2,4", "select=selmcast:3,4", DEFAULT):
            result = train(policy, decay, seed)
            accuracy, workers = result["accuracy"], result["worker_accuracy"]
            local = result["local_only_accuracy"]
            print(f"{policy:18} {decay:>5}  {seed:4}  {accuracy:10.3f}  {workers['mean']:12.3f}  "
                  f"{workers['min']:5.3f}  {result['baseline_accuracy']:6.3f}  {local:10.3f}  "
                  f"{result['rounds']:6}", flush=True)
            full = accuracy if full is None else full
            targets = [("mean model", accuracy, 0.92),
                       ("against select=all", accuracy - full, -0.025),
                       ("never talk, negated", -local, -0.40)]
            if policy != DEFAULT:
                worst.setdefault((policy, decay), []).append(workers["min"])
                targets.append(("mean worker", workers["mean"], 0.90))
            if decay == FALLING:
                targets.append(("worst worker", workers["min"], 0.91))
            failures += [f"{policy}, decay {decay}, seed {seed}: {what} is {value:.3f}, not {least}"
                         for what, value, least in targets if value < least]
    for (policy, decay), values in worst.items():
        mean = sum(values) / len(values)
        print(f"{policy:18} {decay:>5}  worst worker, mean over the seeds {mean:.3f}")
        if mean < 0.86:
            failures.append(f"{policy}, decay {decay}: the mean worst worker is {mean:.3f}")
    assert not failures, "\n".join(failures)


if __name__ == "__main__":
    main()
