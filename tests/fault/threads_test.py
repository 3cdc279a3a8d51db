#!/usr/bin/env python3
"""A system that gives no further thread (ulimit -u, pids.max): the rank says so, and no rank of the
job reports success."""

import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("SELMCAST", "build/release/selmcast")
PRELOAD = os.environ.get("SELMCAST_REFUSE_THREADS", "build/release/tests/librefuse_threads.so")
WORLD = 3
REFUSED = 1
JOB = ["--params-bytes", "4000", "--rounds", "5", "--transport", "shm", "--policy", "select=all",
       "--timeout", "5"]
# Threads of a rank over shared memory: one talks to the store, one moves the bytes.
THREADS = 2
# Nothing that a refusal leads to waits for a timeout.
PATIENCE = 60


def refusing(rank, number):
    return dict(os.environ, LD_PRELOAD=str(pathlib.Path(PRELOAD).resolve()),
                REFUSED_RANK=str(rank), REFUSED_THREAD=str(number))


def end(process):
    """Exit status and diagnostics of a process, which is ended if it does not end by itself."""
    try:
        _, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, errors


class RefusedThreads(unittest.TestCase):
    def launch(self, rank, number):
        return end(subprocess.Popen([PROGRAM, "run", "--workers", str(WORLD), *JOB],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True, env=refusing(rank, number)))

    def test_a_rank_without_a_thread_ends_the_launched_job(self):
        for number in range(1, THREADS + 1):
            with self.subTest(thread=number):
                status, errors = self.launch(REFUSED, number)
                self.assertEqual(status, 1, errors)
                last = errors.splitlines()[-1]
                for word in (f"rank {REFUSED}: no thread", "Resource temporarily unavailable",
                             "ulimit -u", "pids.max"):
                    self.assertIn(word, last)

    def test_all_ranks_end_and_name_the_one_without_a_thread(self):
        for number in range(1, THREADS + 1):
            with self.subTest(thread=number), tempfile.TemporaryDirectory() as folder:
                ranks = [subprocess.Popen(
                    [PROGRAM, "worker", "--rank", str(rank), "--world", str(WORLD), "--rendezvous",
                     f"file:{folder}/store", *JOB], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                    env=refusing(REFUSED, number)) for rank in range(WORLD)]
                for status, errors in [end(rank) for rank in ranks]:
                    self.assertEqual(status, 1, errors)
                    self.assertIn(f"rank {REFUSED}: no thread", errors)

    def test_a_job_with_all_its_threads_runs(self):
        status, errors = self.launch(REFUSED, THREADS + 1)
        self.assertEqual(status, 0, errors)

    def test_a_launcher_without_a_thread_starts_no_rank(self):
        status, errors = self.launch("none", 1)
        self.assertEqual(status, 3, errors)
        lines = errors.splitlines()
        self.assertEqual(len(lines), 1, errors)
        for word in ("store at", "no thread to serve it", "ulimit -u"):
            self.assertIn(word, lines[0])


if __name__ == "__main__":
    unittest.main()
