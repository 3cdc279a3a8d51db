#!/usr/bin/env python3
"""`selmcast run` over shm and uring: verified, and equal to a recomputation outside the program."""

import json
import sys
import tempfile
import unittest

import jobs

COUNT = 1_234_567  # Not a multiple of any frame size.
POLICY = "select=selmcast:3 pace=bsp mix=average"


class Verified(unittest.TestCase):
    def check(self, transport, *extra, policy=POLICY, workers=8, tolerance=1e-5):
        document, worst = jobs.run_and_recompute(
            COUNT, ["--workers", str(workers), "--params-bytes", str(4 * COUNT), "--rounds", "4",
                    "--transport", transport, "--policy", policy, *extra])
        self.assertTrue(document["verified"])
        self.assertEqual(document["failed_ranks"], [])
        self.assertLess(worst, tolerance)
        for one in document["rounds"]:
            self.assertEqual(one["foreign_frames"], [0] * workers)
        return document

    def check_one_copy(self, document, share=1.0):
        params = share * document["params_bytes"]
        for one in document["rounds"]:
            for first in one["tx_first_bytes"]:
                self.assertGreaterEqual(first, params)
                self.assertLessEqual(first, 1.05 * params)

    def test_shm(self):
        self.check("shm")

    def test_shm_with_loss(self):
        document = self.check("shm", "--loss", "0.02")
        self.assertGreater(sum(one["repaired_frames"] for one in document["rounds"]), 0)

    def test_auto_is_shm_on_one_host_unless_the_network_is_asked_for(self):
        for extra, names in (([], ["shm"]), (["--interface", "lo"], ["uring"]),
                             (["--mtu", "1500"], ["verbs", "uring"])):
            with self.subTest(extra=extra):
                document, errors = jobs.run("--workers", "3", "--params-bytes", "4000", "--rounds",
                                            "1", "--policy", "select=all", *extra)
                self.assertIn(document["transport"], names)
                self.assertIn("rank 0: note: transport=auto chose " + document["transport"],
                              errors)

    def test_uring(self):
        self.check_one_copy(self.check("uring"))

    def test_uring_at_mtu_1500(self):
        self.check_one_copy(self.check("uring", "--mtu", "1500"))

    def test_uring_one_copy_whatever_the_number_of_receivers(self):
        for policy in ("select=selmcast:1", "select=selmcast:5", "select=all"):
            with self.subTest(policy=policy):
                self.check_one_copy(self.check("uring", policy=policy, workers=6))

    def test_half_of_the_bytes(self):
        # A round rounds every value below 1 by half a unit in the last place: own and those heard.
        for transport in ("uring", "shm"):
            for kind, half_unit in (("bf16", 2.0 ** -9), ("fp16", 2.0 ** -12)):
                with self.subTest(transport=transport, kind=kind):
                    document = self.check(transport, "--loss", "0.01", tolerance=4 * 2 * half_unit,
                                          policy=POLICY + " codec=cast:" + kind)
                    self.check_one_copy(document, share=0.5)

    def test_uring_with_loss(self):
        for loss in ("0.01", "0.05"):
            document = self.check("uring", "--loss", loss)
            self.assertGreater(sum(one["repaired_frames"] for one in document["rounds"]), 0)

    def test_sim(self):
        self.check("sim", "--loss", "0.01")

    def test_deterministic_runs_give_equal_bits(self):
        dumps = []
        for _ in range(2):
            with tempfile.TemporaryDirectory(prefix="selmcast-test-") as folder:
                jobs.run("--workers", "5", "--params-bytes", "400000", "--rounds", "3",
                         "--transport", "shm", "--policy", "select=all", "--deterministic",
                         "--init", "seed:1", "--dump", folder)
                dumps.append([jobs.dumped(folder, r).tobytes() for r in range(5)])
        self.assertEqual(dumps[0], dumps[1])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
