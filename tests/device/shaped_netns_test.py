#!/usr/bin/env python3
"""A heterogeneous lab: receivers at 100, 100, 200 and 400 Mbit/s. The measured round time is the
plan's, and the plan's choice is compared with random and with full broadcast in the same run."""

import statistics
import sys
import tempfile
import unittest

import jobs
import lab as lab_module
from lab import Lab
from multicast_netns_test import finish, links_file, start

COUNT = 1_000_000
DOWN = [100, 100, 200, 400]


class Shaped(unittest.TestCase):
    def rounds(self, lab, policy, links):
        with tempfile.TemporaryDirectory(prefix="selmcast-test-") as folder:
            path = None
            if links is not None:
                path = links_file(folder, *links)
            document = finish(start(lab, folder, policy, rounds=8, links=path, count=COUNT), folder)
            self.assertLess(jobs.worst_difference(document, folder, COUNT, 5), 1e-5)
        self.assertTrue(document["verified"])
        return document

    def check_plan(self, document):
        measured = statistics.median(one["ms"] for one in document["rounds"])
        planned = document["params_bytes"] * 8 / document["rounds"][0]["rate_kbps"]
        print(f"{document['policy']}: round {measured:.0f} ms, planned {planned:.0f} ms, "
              f"receivers {document['rounds'][0]['receivers_total']}", flush=True)
        self.assertLess(abs(measured - planned) / planned, 0.15)
        return measured

    def test_round_time_is_the_plans(self):
        links = ([1_000_000] * 4, [1000 * d for d in DOWN])
        with Lab(4, down_mbps=DOWN) as lab:
            ours = self.check_plan(self.rounds(lab, "select=selmcast:2", links))
            full = self.check_plan(self.rounds(lab, "select=all", links))
            chance = statistics.median(
                one["ms"] for one in self.rounds(lab, "select=random:2", links)["rounds"])
        print(f"ratio of round times: random / selmcast {chance / ours:.2f}, "
              f"all / selmcast {full / ours:.2f}", flush=True)
        # By the plan: 1/3 of 100 Mbit/s against the eighth largest quotient, 200/3 Mbit/s.
        self.assertAlmostEqual(full / ours, 2.0, delta=0.35)
        self.assertGreater(chance, ours * 0.95)

    def test_probing_finds_the_shaped_rates(self):
        with Lab(4, down_mbps=DOWN) as lab:
            document = self.rounds(lab, "select=selmcast:2", None)
        # The same plan from measured links: 200/3 Mbit/s on the wire, less headers and headroom.
        expected = 200_000 / 3 * 0.95 * 1432 / 1514
        self.assertLess(abs(document["rounds"][0]["rate_kbps"] / expected - 1), 0.10)


if __name__ == "__main__":
    lab_module.require()
    sys.exit(unittest.main(verbosity=2))
