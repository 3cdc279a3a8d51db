#!/usr/bin/env python3
"""kill -9 of a worker at a random moment: the others finish, or end naming the rank, within twice
the timeout; no process, socket, shared memory or folder is left. Argument: the number of kills."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "device"))
import jobs  # noqa: E402

WORKERS = 6
ROUNDS = 40
TIMEOUT = 3.0


def children_of(pid):
    found = {}
    for line in subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True,
                               text=True, check=False).stdout.splitlines():
        words = line.split()
        if "--rank" in words:
            found[int(words[words.index("--rank") + 1])] = int(words[0])
    return found


def leftovers(folder):
    """What a job may have left: entries of its folder, memfds and unix sockets by its name."""
    left = os.listdir(folder)
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
        left += [line.split()[-1] for line in file if folder in line]
    left += [name for name in os.listdir("/dev/shm") if "selmcast" in name]
    return left


def start_job(transport, folder, rounds=ROUNDS):
    return subprocess.Popen(
        [jobs.PROGRAM, "run", "--workers", str(WORKERS), "--params-bytes", "8000000", "--rounds",
         str(rounds), "--transport", transport, "--policy", "select=selmcast:2", "--timeout",
         str(TIMEOUT), "--json", "-"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, TMPDIR=folder))


def undisturbed(transport, rounds=ROUNDS):
    """Seconds that the job takes when nobody is killed."""
    with tempfile.TemporaryDirectory(prefix="selmcast-kill-") as folder:
        begin = time.monotonic()
        job = start_job(transport, folder, rounds)
        job.communicate(timeout=120)
        assert job.returncode == 0
        return time.monotonic() - begin


def one_kill(number, rng, transport, usual):
    with tempfile.TemporaryDirectory(prefix="selmcast-kill-") as folder:
        job = start_job(transport, folder)
        victim = rng.randrange(WORKERS)
        while len(children_of(job.pid)) < WORKERS and job.poll() is None:
            time.sleep(0.005)
        pids = children_of(job.pid)
        # Every third while the ranks still set up, which the whole time would seldom meet.
        time.sleep(rng.uniform(0.0, (0.25 if number % 3 == 0 else 0.9) * usual))
        if job.poll() is not None or victim not in pids:
            job.communicate()
            return "ended before the kill"
        try:
            os.kill(pids[victim], signal.SIGKILL)
        except ProcessLookupError:  # The job has ended since.
            job.communicate()
            return "ended before the kill"
        killed = time.monotonic()
        try:
            output, errors = job.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            job.kill()
            raise AssertionError(f"kill {number}: hangs; rank {victim} killed") from None
        took = time.monotonic() - killed
        check(number, victim, transport, job.returncode, output, errors)
        # The others go on with their rounds, so they may take what those take, and 2 timeouts more.
        assert took < usual * 1.5 + 2 * TIMEOUT, f"kill {number}: {took:.1f} s to the end"
        alive = [p for p in pids.values() if pathlib.Path(f"/proc/{p}").exists()]
        assert not alive, f"kill {number}: processes left: {alive}"
        assert not leftovers(folder), f"kill {number}: left: {leftovers(folder)}"
        return took, job.returncode


def check(number, victim, transport, status, output, errors):
    name = f"kill {number} of rank {victim} on {transport}"
    if status == 0:
        document = json.loads(output)
        assert document["failed_ranks"] in ([victim], []), f"{name}: {document['failed_ranks']}"
        assert document["verified"], name
        if document["failed_ranks"] == [victim]:
            rounds = document["rounds"]
            assert len(rounds) == ROUNDS, f"{name}: {len(rounds)} rounds"
            # Every eviction begins an epoch, and nothing else does. The victim may have heard
            # others in the round in which it died, or even all of the last one.
            for entry in rounds:
                if entry["epoch"] == rounds[0]["epoch"]:
                    continue
                for rank in range(WORKERS):
                    assert victim not in entry["receivers"][rank], f"{name}: {entry}"
    else:
        assert status == 1, f"{name}: exit {status}: {errors}"
        assert f"rank {victim}" in errors, f"{name}: the rank is not named: {errors}"


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seed = int(os.environ.get("SELMCAST_SEED", "1"))
    rng = random.Random(seed)
    print(f"seed {seed}", flush=True)
    usual = {transport: undisturbed(transport) for transport in ("shm", "uring")}
    finished = ended = missed = 0
    slowest = 0.0
    for number in range(kills):
        transport = ("shm", "uring")[number % 2]
        outcome = one_kill(number, rng, transport, usual[transport])
        if isinstance(outcome, str):
            missed += 1
            continue
        took, status = outcome
        slowest = max(slowest, took)
        finished += status == 0
        ended += status != 0
    print(f"{kills} kills: {finished} jobs finished, {ended} ended naming the rank, {missed} were "
          f"over before; slowest end {slowest:.2f} s after the kill")
    assert finished + ended > kills // 2, "most kills came too late to test anything"


if __name__ == "__main__":
    main()
