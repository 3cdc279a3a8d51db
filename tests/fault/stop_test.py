#!/usr/bin/env python3
"""A worker that hangs (SIGSTOP) keeps its connections open: only deadlines can notice. The others
evict it by name and finish; nothing is left."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kill_test  # noqa: E402

# So many that the stop falls into them and not into what comes before them.
ROUNDS = 200


class Stopped(unittest.TestCase):
    def stop_one(self, transport, victim):
        with tempfile.TemporaryDirectory(prefix="selmcast-stop-") as folder:
            usual = kill_test.undisturbed(transport, ROUNDS)
            job = kill_test.start_job(transport, folder, ROUNDS)
            while len(kill_test.children_of(job.pid)) < kill_test.WORKERS and job.poll() is None:
                time.sleep(0.005)
            pids = kill_test.children_of(job.pid)
            time.sleep(0.6 * usual)
            self.assertIsNone(job.poll(), "the job ended before the stop")
            os.kill(pids[victim], signal.SIGSTOP)
            try:
                output, errors = job.communicate(timeout=60)
            finally:
                job.kill()
            self.assertEqual(job.returncode, 0, errors)
            document = json.loads(output)
            self.assertEqual(document["failed_ranks"], [victim])
            self.assertTrue(document["verified"])
            self.assertEqual(len(document["rounds"]), ROUNDS)
            self.assertIn(f"rank {victim}", errors)
            self.assertEqual([p for p in pids.values() if os.path.exists(f"/proc/{p}")], [])
            self.assertEqual(kill_test.leftovers(folder), [])

    def test_shm(self):
        self.stop_one("shm", 3)

    def test_before_the_first_round(self):
        # The others give up by their deadlines; the launcher must not wait for the stopped one.
        with tempfile.TemporaryDirectory(prefix="selmcast-stop-") as folder:
            job = kill_test.start_job("shm", folder)
            while 2 not in kill_test.children_of(job.pid):
                self.assertIsNone(job.poll())
            pids = kill_test.children_of(job.pid)
            os.kill(pids[2], signal.SIGSTOP)
            try:
                output, errors = job.communicate(timeout=12 * kill_test.TIMEOUT)
            finally:
                job.kill()
            self.assertEqual(job.returncode, 1, errors)
            self.assertEqual(output, "")
            self.assertIn("rank 2", errors.splitlines()[-1])
            self.assertEqual([p for p in pids.values() if os.path.exists(f"/proc/{p}")], [])
            self.assertEqual(kill_test.leftovers(folder), [])

    def test_uring_also_when_it_is_the_publisher(self):
        self.stop_one("uring", 0)


class ByHand(unittest.TestCase):
    def test_survivors_name_the_rank_that_died(self):
        with tempfile.TemporaryDirectory(prefix="selmcast-") as folder:
            ranks = [subprocess.Popen(
                [kill_test.jobs.PROGRAM, "worker", "--rank", str(rank), "--world", "3",
                 "--rendezvous", f"file:{folder}/store", "--params-bytes", "4000000", "--rounds",
                 "1200", "--transport", "shm", "--timeout", "3"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True) for rank in range(3)]
            time.sleep(1.5)
            self.assertEqual([rank.poll() for rank in ranks], [None] * 3, "ended before the kill")
            ranks[2].kill()
            ends = [rank.communicate(timeout=120)[1] for rank in ranks]
            for rank in (0, 1):
                self.assertEqual(ranks[rank].returncode, 0, ends[rank])
                self.assertIn("rank 2 was evicted (dead or silent) in round", ends[rank])


class Interrupted(unittest.TestCase):
    def test_signals_end_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number), tempfile.TemporaryDirectory(prefix="selmcast-") as folder:
                job = kill_test.start_job("shm", folder)
                while len(kill_test.children_of(job.pid)) < kill_test.WORKERS:
                    self.assertIsNone(job.poll())
                    time.sleep(0.005)
                pids = kill_test.children_of(job.pid)
                job.send_signal(number)
                output, errors = job.communicate(timeout=20)
                self.assertEqual(job.returncode, 1, errors)
                self.assertEqual(output, "")
                self.assertIn("interrupted", errors.splitlines()[-1])
                self.assertEqual([p for p in pids.values() if os.path.exists(f"/proc/{p}")], [])
                self.assertEqual(kill_test.leftovers(folder), [])

    def test_a_starter_that_ignores_its_childrens_ends(self):
        """Ignoring SIGCHLD is inherited, and then the kernel reaps children itself."""
        done = subprocess.run(
            [kill_test.jobs.PROGRAM, "run", "--workers", "2", "--params-bytes", "4096", "--rounds",
             "1", "--transport", "shm", "--policy", "select=all", "--json", "-"],
            capture_output=True, text=True, timeout=60, check=False,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["verified"])

    def test_what_a_killed_launcher_leaves_goes_with_the_next_start(self):
        with tempfile.TemporaryDirectory(prefix="selmcast-") as folder:
            job = kill_test.start_job("shm", folder)
            while len(kill_test.children_of(job.pid)) < kill_test.WORKERS:
                self.assertIsNone(job.poll())
                time.sleep(0.005)
            pids = kill_test.children_of(job.pid)
            job.kill()
            job.communicate(timeout=20)
            deadline = time.monotonic() + 10
            while any(os.path.exists(f"/proc/{p}") for p in pids.values()):
                self.assertLess(time.monotonic(), deadline, "ranks outlive their launcher")
                time.sleep(0.01)
            left = os.listdir(folder)
            self.assertEqual(len(left), 1, left)
            living = kill_test.start_job("shm", folder)
            while left[0] in os.listdir(folder):
                self.assertIsNone(living.poll(), "the next launcher left the folder there")
                time.sleep(0.005)
            other = kill_test.start_job("shm", folder)  # Must not take the living one's folder.
            for job in (living, other):
                _, errors = job.communicate(timeout=120)
                self.assertEqual(job.returncode, 0, errors)
            self.assertEqual(kill_test.leftovers(folder), [])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
