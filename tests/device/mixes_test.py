#!/usr/bin/env python3
"""mix=age and mix=stale over real transports: equal to a recomputation
outside the program, the bytes that they say, and training with them; a rank killed in the middle
does not stop the others."""

import sys
import tempfile
import unittest

import numpy

import jobs
import systems_test

COUNT = 234_567  # Not a multiple of any frame size.


def aged(document, count, seed, gamma):
    """Every rank's parameters by mix=age, from `receivers`: a pair earns gamma / n per round and
    spends what it has when it meets, all that a rank hears together at most 1 - 1/n."""
    world = document["workers"]
    values = [jobs.initial(rank, count, seed) for rank in range(world)]
    credit = numpy.zeros((world, world))  # By receiver and sender.
    cap = 1 - 1 / world
    for one in document["rounds"]:
        credit += gamma / world
        heard = [[s for s in range(world) if r in one["receivers"][s]] for r in range(world)]
        mixed = []
        for receiver, senders in enumerate(heard):
            weights = numpy.minimum(credit[receiver, senders], cap)
            if weights.sum() > cap:
                weights *= cap / weights.sum()
            credit[receiver, senders] -= weights
            own = values[receiver].copy()
            for weight, sender in zip(weights, senders):
                own += weight * (values[sender] - values[receiver])
            mixed.append(own)
        values = mixed
    return values


class Mixes(unittest.TestCase):
    def run_job(self, policy, want, *extra, rounds=9, tolerance=1e-5):
        with tempfile.TemporaryDirectory(prefix="selmcast-test-") as folder:
            document, _ = jobs.run("--workers", "6", "--params-bytes", str(4 * COUNT), "--rounds",
                                   str(rounds), "--policy", policy, *extra, "--init", "seed:5",
                                   "--dump", folder)
            self.assertTrue(document["verified"])
            self.assertEqual(document["failed_ranks"], [])
            worst = max(float(numpy.abs(jobs.dumped(folder, rank) - values).max())
                        for rank, values in enumerate(want(document)))
        self.assertLess(worst, tolerance, policy)

    def test_age_follows_the_receivers(self):
        for policy in ("select=selmcast:2 mix=age", "select=random:1 mix=age:0.5", "mix=age:1",
                       "select=selmcast:1 groups=sender mix=age"):
            for transport in ("shm", "uring"):
                with self.subTest(policy=policy, transport=transport):
                    gamma = float(policy.partition("age:")[2] or 0.9)
                    self.run_job(policy, lambda d: aged(d, COUNT, 5, gamma), "--transport",
                                 transport, "--loss", "0.01")

    def test_age_on_half_of_the_bytes(self):
        # Weights together are below 1, so a round rounds by 2 half units of 2^-9 at most.
        self.run_job("select=selmcast:2 mix=age codec=cast:bf16",
                     lambda d: aged(d, COUNT, 5, 0.9), "--transport", "uring",
                     tolerance=9 * 2 * 2.0 ** -9)

    def test_stale_contracts_by_the_closed_form(self):
        # Without steps: the mean stays, distances shrink to 2S / (2S + P) per round.
        def contracted(document):
            start = [jobs.initial(rank, COUNT, 5) for rank in range(6)]
            mean = sum(start) / 6
            factor = (2 * 2 / (2 * 2 + 6)) ** len(document["rounds"])
            return [mean + factor * (values - mean) for values in start]

        for transport in ("shm", "uring"):
            with self.subTest(transport=transport):
                self.run_job("pace=periodic:3 mix=stale:2", contracted, "--transport", transport,
                             rounds=4)

    def test_training(self):
        for policy in ("select=selmcast:2 mix=age", "select=all pace=periodic:4 mix=age",
                       "select=all pace=periodic:4 mix=stale:1",
                       "select=all pace=periodic:4 mix=stale:2 codec=cast:bf16"):
            with self.subTest(policy=policy):
                result = systems_test.train(policy)
                self.assertGreaterEqual(result["worker_accuracy"]["min"], 0.85)

    def test_a_death_under_age(self):
        result = systems_test.killed("select=selmcast:2 mix=age", equal=False)
        self.assertGreaterEqual(result["worker_accuracy"]["min"], 0.7)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
