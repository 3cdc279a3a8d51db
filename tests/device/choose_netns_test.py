#!/usr/bin/env python3
"""Ranks in network namespaces that name neither interface nor transport: the interface is the one
that leads to the store, the transport what all of them can use."""

import subprocess
import tempfile
import unittest

import jobs
import lab as lab_module
from lab import INTERFACE, Lab

COUNT = 50_000
SEED = 5


def start(lab, rank, rendezvous, *extra):
    """Output files are rank 0's."""
    arguments = [jobs.PROGRAM, "worker", "--rank", str(rank), "--world", str(lab.ranks),
                 "--rendezvous", rendezvous, "--params-bytes", str(4 * COUNT), "--rounds", "2",
                 "--policy", "select=all", "--init", f"seed:{SEED}", *extra]
    return lab.popen(rank, arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, text=True)


class Choose(unittest.TestCase):
    def finish(self, workers, status=0):
        ends = []
        for worker in workers:
            printed, errors = worker.communicate(timeout=120)
            ends.append((printed, errors))
            self.assertEqual(worker.returncode, status, errors)
        return ends

    def test_hosts_that_name_nothing(self):
        with Lab(3) as lab, tempfile.TemporaryDirectory(prefix="selmcast-test-") as folder:
            before = lab.counters(1)["tx_bytes"]
            address = f"tcp://{lab.address(0)}:7000"
            ends = self.finish([start(lab, rank, address, "--dump", folder)
                                for rank in range(lab.ranks)])
            sent = lab.counters(1)["tx_bytes"] - before
            for rank in range(lab.ranks):
                # The mean of all, by --init's formula; exact in these few bits but for the third.
                want = sum(jobs.initial(r, COUNT, SEED) for r in range(lab.ranks)) / lab.ranks
                self.assertLess(abs(jobs.dumped(folder, rank) - want).max(), 1e-6)
        self.assertIn("note: transport=auto chose uring: not shm, for rank 1 is on another host "
                      "than rank 0, or in another network namespace; not verbs, for rank ",
                      ends[0][1])
        self.assertGreater(sent, 2 * 4 * COUNT, f"the rounds passed through {INTERFACE}")

    def test_loopback_that_does_not_lead_there(self):
        with Lab(2) as lab, tempfile.TemporaryDirectory(prefix="selmcast-test-") as folder:
            # A path is no network address: it is reached from every namespace.
            address = f"file:{folder}/store"
            ends = self.finish([start(lab, rank, address) for rank in range(2)], status=2)
        for _, errors in ends:
            for words in ("rank 1 is on another host", "interface lo was taken because the store "
                          f"at {address} is on this host", "--interface"):
                self.assertIn(words, errors)

    def test_interface_that_others_do_not_reach(self):
        with Lab(2) as lab:
            address = f"tcp://{lab.address(0)}:7000"
            ends = self.finish([start(lab, 0, address, "--timeout", "2"),
                                start(lab, 1, address, "--timeout", "2", "--interface", "lo")],
                               status=1)
        self.assertIn(f"on rank 0 interface {INTERFACE} was taken because the store's address "
                      f"{address} is on it", ends[0][1])


if __name__ == "__main__":
    lab_module.require()
    unittest.main(verbosity=2)
