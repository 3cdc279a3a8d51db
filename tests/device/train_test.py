#!/usr/bin/env python3
"""`selmcast train` against the targets of the selection study: n = 8, label-skewed split, batch 8,
about 300 rounds, MLP with eta 0.3. Argument: the number of seeds (default 1)."""

import json
import subprocess
import sys

import jobs

EPOCHS = "14"  # Of 22 rounds each.


def train(policy, seed):
    done = subprocess.run(
        [jobs.PROGRAM, "train", "--workers", "8", "--epochs", EPOCHS, "--batch", "8", "--lr",
         "0.3", "--model", "mlp", "--split", "skew", "--policy", policy, "--seed", str(seed),
         "--json", "-"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print("policy             seed  mean model  workers mean  worst  single  never talk  rounds",
          flush=True)
    failures = []
    for seed in range(1, seeds + 1):
        full = None
        for policy in ("select=all", "select=selmcast:2", "select=selmcast:3"):
            result = train(policy, seed)
            accuracy, workers = result["accuracy"], result["worker_accuracy"]
            local = result["local_only_accuracy"]
            print(f"{policy:18} {seed:4}  {accuracy:10.3f}  {workers['mean']:12.3f}  "
                  f"{workers['min']:5.3f}  {result['baseline_accuracy']:6.3f}  {local:10.3f}  "
                  f"{result['rounds']:6}", flush=True)
            full = accuracy if full is None else full
            for what, value, least in (("mean model", accuracy, 0.92),
                                       ("mean worker", workers["mean"], 0.90),
                                       ("worst worker", workers["min"], 0.86),
                                       ("against select=all", accuracy - full, -0.025),
                                       ("never talk, negated", -local, -0.40)):
                if value < least:
                    failures.append(f"{policy}, seed {seed}: {what} is {value:.3f}, not {least}")
    assert not failures, "\n".join(failures)


if __name__ == "__main__":
    main()
