"""Running the program and recomputing what it must have computed, from its inputs alone."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lab"))

PROGRAM = os.environ.get("SELMCAST", "build/release/selmcast")


def initial(rank, count, seed):
    """The pattern of --init seed:S, in double precision."""
    index = numpy.arange(count, dtype=numpy.int64)
    return ((1000003 * rank + 7919 * index + seed) % 1024) / 1024.0


def averaged(document, count, seed):
    """Every rank's parameters after the rounds that the document lists, by mix=average: the mean of
    the own value and of those heard, from `receivers`."""
    world = document["workers"]
    values = [initial(rank, count, seed) for rank in range(world)]
    for one in document["rounds"]:
        sums = [v.copy() for v in values]
        heard = [1] * world
        for sender, receivers in enumerate(one["receivers"]):
            for receiver in receivers:
                sums[receiver] += values[sender]
                heard[receiver] += 1
        values = [s / h for s, h in zip(sums, heard)]
    return values


def dumped(folder, rank):
    return numpy.fromfile(pathlib.Path(folder) / f"rank-{rank}.f32", dtype="<f4")


def worst_difference(document, folder, count, seed):
    """Largest |program - recomputed| over all ranks that did not fail."""
    worst = 0.0
    for rank, want in enumerate(averaged(document, count, seed)):
        if rank in document["failed_ranks"]:
            continue
        got = dumped(folder, rank)
        assert got.size == count, f"rank {rank} dumped {got.size} values, not {count}"
        worst = max(worst, float(numpy.abs(got - want).max()))
    return worst


def run(*arguments, timeout=120, expect=0):
    """`selmcast run` with these arguments; its JSON document (None if it failed as expected) and
    what it wrote to standard error."""
    done = subprocess.run([PROGRAM, "run", *arguments, "--json", "-"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == expect, f"exit {done.returncode}: {done.stderr}"
    return (json.loads(done.stdout) if done.stdout else None), done.stderr


def run_and_recompute(count, arguments, seed=5, timeout=120):
    """Runs with --init and --dump; returns the document and the worst difference."""
    with tempfile.TemporaryDirectory(prefix="selmcast-test-") as folder:
        document, _ = run(*arguments, "--init", f"seed:{seed}", "--dump", folder, timeout=timeout)
        return document, worst_difference(document, folder, count, seed)
