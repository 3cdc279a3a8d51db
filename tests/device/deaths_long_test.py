#!/usr/bin/env python3
"""One rank killed in the middle of training, under the policies that systems_test.py,
mixes_test.py and free_rounds_test.py leave out."""

import sys
import unittest

import free_rounds_test
import systems_test


class Deaths(unittest.TestCase):
    def test_survivors_end_equal(self):
        for policy in ("losp codec=slim:0.3,0.15", "p3"):
            with self.subTest(policy=policy):
                systems_test.killed(policy)

    def test_under_stale(self):
        # The last round is the plain mean; ranks add it up in different orders.
        result = systems_test.killed("select=all pace=periodic:4 mix=stale:1", equal=False)
        self.assertGreaterEqual(result["worker_accuracy"]["min"], result["accuracy"] - 0.01)

    def test_under_free_rounds(self):
        free_rounds_test.killed("pace=ssp:2", "shm")
        free_rounds_test.killed("select=selmcast:2 pace=async", "uring")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
