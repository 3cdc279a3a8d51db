#!/usr/bin/env python3
"""One copy on the sender's wire and frames on member ports only, seen from outside the program: the
interface counters and the forwarding table of a snooping bridge."""

import json
import subprocess
import sys
import tempfile
import unittest

import jobs
import lab as lab_module
from lab import INTERFACE, Lab

COUNT = 1_500_000
SEED = 5


def start(lab, folder, policy, rounds=3, links=None, count=COUNT, extra=()):
    """One worker by hand in each namespace, rank 0 last: they may start in any order."""
    workers = {}
    for rank in reversed(range(lab.ranks)):
        arguments = [jobs.PROGRAM, "worker", "--rank", str(rank), "--world", str(lab.ranks),
                     "--rendezvous", f"tcp://{lab.address(0)}:7000", "--interface", INTERFACE,
                     "--params-bytes", str(4 * count), "--rounds", str(rounds), "--policy", policy,
                     "--transport", "uring", "--init", f"seed:{SEED}", "--dump", folder, *extra]
        if links is not None:
            arguments += ["--links", links]
        if rank == 0:
            arguments += ["--json", f"{folder}/result.json"]
        workers[rank] = lab.popen(rank, arguments, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return workers


def finish(workers, folder, timeout=120):
    for rank, worker in sorted(workers.items()):
        _, errors = worker.communicate(timeout=timeout)
        assert worker.returncode == 0, f"rank {rank}: exit {worker.returncode}: {errors}"
    with open(f"{folder}/result.json", encoding="utf-8") as file:
        return json.load(file)


def links_file(folder, tx, rx):
    path = f"{folder}/links.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"tx_kbps": tx, "rx_kbps": rx}, file)
    return path


class Multicast(unittest.TestCase):
    def run_job(self, lab, policy):
        with tempfile.TemporaryDirectory(prefix="selmcast-test-") as folder:
            links = links_file(folder, [400_000] * lab.ranks, [400_000] * lab.ranks)
            before = [(lab.counters(r), lab.port_counters(r)) for r in range(lab.ranks)]
            document = finish(start(lab, folder, policy, links=links), folder)
            after = [(lab.counters(r), lab.port_counters(r)) for r in range(lab.ranks)]
            worst = jobs.worst_difference(document, folder, COUNT, SEED)
        self.assertTrue(document["verified"])
        self.assertLess(worst, 1e-5)
        sent = [a[0]["tx_bytes"] - b[0]["tx_bytes"] for b, a in zip(before, after)]
        towards = [a[1]["tx_bytes"] - b[1]["tx_bytes"] for b, a in zip(before, after)]
        return document, sent, towards

    def test_one_copy_whatever_the_number_of_receivers(self):
        with Lab(5) as lab:
            for policy, receivers in (("select=selmcast:2", 2), ("select=all", 4)):
                with self.subTest(policy=policy):
                    document, sent, towards = self.run_job(lab, policy)
                    self.check_bytes(document, sent, towards, receivers)

    def check_bytes(self, document, sent, towards, receivers):
        params, rounds = document["params_bytes"], len(document["rounds"])
        for one in document["rounds"]:
            self.assertEqual(one["foreign_frames"], [0] * 5)
            for first in one["tx_first_bytes"]:
                self.assertLessEqual(1.0, first / params)
                self.assertLessEqual(first / params, 1.05)
            for reached in one["receivers"]:
                self.assertGreaterEqual(len(reached), receivers)
        for rank in range(5):
            # The wire agrees with what the program says it sent: one copy, whatever the receivers.
            said = sum(one["tx_bytes"][rank] for one in document["rounds"])
            self.assertLessEqual(said, sent[rank])
            self.assertLessEqual(sent[rank], 1.05 * said + 300_000)
            # Only what this rank was to hear came out of the bridge towards it.
            heard = sum(rank in reached for one in document["rounds"]
                        for reached in one["receivers"])
            self.assertLessEqual(towards[rank], 1.06 * heard * params + rounds * 100_000 + 300_000)
            self.assertGreaterEqual(towards[rank], heard * params)


if __name__ == "__main__":
    lab_module.require()
    sys.exit(unittest.main(verbosity=2))
