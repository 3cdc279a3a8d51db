#!/usr/bin/env python3
"""selmcast-ssp from the command line: `run` over every transport, and what is refused."""

import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("SELMCAST", "build/release/selmcast")
WORKERS, STEPS = 6, 8


def selmcast(*arguments):
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120, check=False)


class OnlineRounds(unittest.TestCase):
    def run_job(self, transport, policy="selmcast-ssp"):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as links:
            rates = [200_000 * (1 + rank % 3) for rank in range(WORKERS)]
            json.dump({"tx_kbps": rates, "rx_kbps": rates}, links)
            links.flush()
            done = selmcast("run", "--workers", str(WORKERS), "--params-bytes", "400000",
                            "--rounds", str(STEPS), "--transport", transport, "--links",
                            links.name, "--loss", "0.01", "--policy", policy, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_run(self):
        for transport in ("sim", "shm", "uring"):
            with self.subTest(transport=transport):
                result = self.run_job(transport)
                self.assertTrue(result["verified"])
                self.assertEqual(result["failed_ranks"], [])
                self.assertIn("pace=ssp:4,0.75", result["policy"])
                # Steps, and the last round of all.
                self.assertEqual(len(result["rounds"]), STEPS + 1)
                unserved = {}
                for one in result["rounds"]:
                    self.assertEqual(one["foreign_frames"], [0] * WORKERS)
                    for sender, to in enumerate(one["receivers"]):
                        self.assertGreaterEqual(len(to), 2, "fewer than p")
                        for receiver in set(range(WORKERS)) - {sender}:
                            pair = sender, receiver
                            unserved[pair] = 0 if receiver in to else unserved.get(pair, 0) + 1
                            self.assertLessEqual(unserved[pair], result["summary"]["k"] - 1, pair)

    def test_policies_name_it(self):
        document = json.loads(selmcast("policies", "--json", "-").stdout)
        names = {name["name"]: name["policy"] for name in document["names"]}
        self.assertEqual(names["selmcast-ssp"],
                         "select=selmcast:2 pace=ssp:4,0.75 mix=average groups=sender")

    def refuse(self, arguments, *words):
        done = selmcast(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_what_is_refused(self):
        run = ["run", "--workers", "4", "--params-bytes", "4000", "--transport", "shm", "--policy"]
        self.refuse([*run, "selmcast-ssp select=all"], "select=selmcast:p and route=star")
        self.refuse([*run, "selmcast-ssp pace=ssp:4,2"], "a share eta from 0 to 1")
        self.refuse([*run, "selmcast-ssp select=selmcast:4"], "p = 4")
        self.refuse([*run, "selmcast-ssp", "--deterministic"], "--deterministic")
        self.refuse([*run, "select=selmcast:2 pace=ssp:4"], "pace=ssp:s,eta")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as links:
            json.dump({"tx_kbps": [1000] * 4, "rx_kbps": [1000] * 4}, links)
            links.flush()
            self.refuse(["sim", "--policy", "selmcast-ssp", "--links", links.name,
                         "--params-bytes", "4000"], "run --transport sim")


if __name__ == "__main__":
    unittest.main()
