#!/usr/bin/env python3
"""`selmcast store`: serves ranks that do not host the rendezvous, and ends with them."""

import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("SELMCAST", "build/release/selmcast")
WORLD = 3
COUNT = 1000


class Store(unittest.TestCase):
    def setUp(self):
        self.store = subprocess.Popen(
            [PROGRAM, "store", "tcp://127.0.0.1:0", "--world", str(WORLD)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(self.store.communicate)
        self.addCleanup(self.store.kill)
        self.address = self.store.stdout.readline().split()[2]

    def rank(self, number, *extra):
        return subprocess.Popen(
            [PROGRAM, "worker", "--external-store", "--rank", str(number), "--world", str(WORLD),
             "--rendezvous", self.address, "--params-bytes", str(4 * COUNT), "--transport", "shm",
             "--policy", "select=all", "--rounds", "2", "--timeout", "5", *extra],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def test_ranks_meet_there_and_it_ends_when_all_have_left(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [self.rank(number, "--init", "seed:0", "--dump", folder)
                     for number in range(WORLD)]
            for rank in ranks:
                _, errors = rank.communicate(timeout=60)
                self.assertEqual(rank.returncode, 0, errors)
            sizes = [path.stat().st_size for path in pathlib.Path(folder).iterdir()]
            self.assertEqual(sizes, [4 * COUNT] * WORLD)
        printed, errors = self.store.communicate(timeout=10)
        self.assertEqual((self.store.returncode, errors), (0, ""))
        self.assertEqual(printed, "3 of 3 ranks have left\n")

    def test_names_ranks_that_were_lost(self):
        ranks = [self.rank(number) for number in range(WORLD - 1)]
        # Nobody comes as rank 2: the others fail within their timeout.
        for rank in ranks:
            _, errors = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 1, errors)
            self.assertIn("rank 2", errors)
        self.assertIsNone(self.store.poll(), "rank 2 may still come")
        self.store.send_signal(signal.SIGTERM)
        printed, _ = self.store.communicate(timeout=10)
        self.assertEqual(printed, "2 of 3 ranks have left; lost: 0, 1\n")
        self.assertEqual(self.store.returncode, 128 + signal.SIGTERM)

    def test_ctrl_c_ends_it(self):
        self.store.send_signal(signal.SIGINT)
        printed, errors = self.store.communicate(timeout=10)
        self.assertEqual((self.store.returncode, errors), (130, ""))
        self.assertEqual(printed, "0 of 3 ranks have left\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
