#!/usr/bin/env python3
"""The main figures at full size: ResNet-50 over 8 workers, without and with loss."""

import statistics
import sys
import unittest

import jobs

COUNT = 25_557_032
ROUNDS = "6"


class ResNet50(unittest.TestCase):
    def run_once(self, transport, *extra, rounds=ROUNDS):
        document, worst = jobs.run_and_recompute(
            COUNT, ["--workers", "8", "--model", "resnet50", "--rounds", rounds, "--transport",
                    transport, "--policy", "select=selmcast:3 pace=bsp mix=average", *extra],
            timeout=400)
        self.assertTrue(document["verified"])
        self.assertEqual(document["params_bytes"], 4 * COUNT)
        self.assertLess(worst, 1e-5)
        return document

    def test_shm(self):
        self.run_once("shm")

    def test_uring_with_and_without_loss(self):
        clean = self.run_once("uring")
        for one in clean["rounds"]:
            self.assertEqual(one["foreign_frames"], [0] * 8)
            for first in one["tx_first_bytes"]:
                self.assertLessEqual(1.0, first / (4 * COUNT))
                self.assertLessEqual(first / (4 * COUNT), 1.05)
        median = statistics.median(one["ms"] for one in clean["rounds"])
        lossy = self.run_once("uring", "--loss", "0.01")
        self.assertLessEqual(max(one["ms"] for one in lossy["rounds"]), 3 * median)
        self.run_once("uring", "--loss", "0.05", rounds="3")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
