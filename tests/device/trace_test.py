#!/usr/bin/env python3
"""`selmcast train` with uneven compute times: a trace of compute times goes in, the trace of the
run comes out, and what it says fits the JSON of the run."""

import csv
import json
import pathlib
import subprocess
import tempfile

import jobs

WORKERS, STEPS = 3, 28


def train(folder, policy, *arguments):
    trace = folder / "run.csv"
    done = subprocess.run(
        [jobs.PROGRAM, "train", "--workers", str(WORKERS), "--epochs", "2", "--batch", "32",
         "--policy", policy, "--no-references", "--json", "-", "--write-trace", str(trace),
         "--plot", str(folder / "plot.svg"), *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    with open(trace, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return json.loads(done.stdout), [[row for row in rows if int(row["rank"]) == rank]
                                     for rank in range(WORKERS)]


def check(result, ranks, least_ms, overlap):
    assert result["steps"] == STEPS, result["steps"]
    assert result["baseline_accuracy"] is None
    for rank, rows in enumerate(ranks):
        assert [int(row["step"]) for row in rows] == list(range(STEPS))
        computed = [float(row["compute_ms"]) for row in rows]
        for step, ms in enumerate(computed):
            assert ms >= least_ms[rank][step % len(least_ms[rank])], (rank, step, ms)
        mean = sum(computed) / STEPS
        assert abs(mean - result["rank_compute_ms"][rank]) < 1e-3 * mean + 1e-3
        departed = [int(row["departed"]) for row in rows if row["departed"]]
        closed = [int(row["closed"]) for row in rows if row["closed"]]
        assert departed == list(range(len(departed))), departed
        assert closed == list(range(len(closed))), closed
        if overlap:
            assert rows[0]["departed"] == "0" and not rows[0]["closed"]
            assert len(departed) == len(closed) + 1 <= result["rounds"]
        else:
            assert len(departed) == len(closed) == STEPS == result["rounds"]
    times = [point["seconds"] for point in result["curves"]["by_time"]]
    assert times[0] == 0.0 and times == sorted(times)
    assert len(times) == len(result["curves"]["workers"])


def main():
    with tempfile.TemporaryDirectory(prefix="selmcast-trace-") as name:
        folder = pathlib.Path(name)
        given = folder / "given.csv"
        least = [[1.0], [9.0, 1.0], [2.0, 3.0, 4.0]]
        given.write_text("rank,step,compute_ms\n" + "".join(
            f"{rank},{step},{ms}\n" for rank, times in enumerate(least)
            for step, ms in enumerate(times)), encoding="utf-8")
        for policy, overlap in (("bsp", False), ("osp", True)):
            result, ranks = train(folder, policy, "--compute-trace", str(given))
            assert result["compute_trace"] == str(given)
            check(result, ranks, least, overlap)
        assert (folder / "plot.svg").read_text(encoding="utf-8").count("<polyline") == 8
        # What a run wrote is a trace to run with: each step takes at least as long again.
        again = folder / "again.csv"
        (folder / "run.csv").rename(again)
        least = [[float(row["compute_ms"]) for row in rows] for rows in ranks]
        result, ranks = train(folder, "select=selmcast:1", "--compute-trace", str(again))
        check(result, ranks, least, False)
        result, ranks = train(folder, "bsp", "--compute-ms", "2", "--slowdown", "1,4,1")
        check(result, ranks, [[2.0], [8.0], [2.0]], False)
        assert result["slowdown"] == [1.0, 4.0, 1.0] and result["compute_ms"] == 2.0
        assert result["rank_steps"] == [STEPS] * WORKERS
        # Fast ranks do as many steps more as they are faster where each steps by itself.
        for policy, steps in (("osp", [4 * STEPS, STEPS, 2 * STEPS]), ("bsp", [STEPS] * 3)):
            result, ranks = train(folder, policy, "--compute-ms", "1", "--slowdown", "1,4,2",
                                  "--steps-by-speed")
            assert result["rank_steps"] == steps, result["rank_steps"]
            assert [len(rows) for rows in ranks] == steps


if __name__ == "__main__":
    main()
