#!/usr/bin/env python3
"""`selmcast perf` on Soft-RoCE: an end whose other end died or hangs ends by its deadline and says
why."""

import json
import pathlib
import signal
import sys
import time
import unittest

import verbs_perf_test as perf
from verbs_perf_test import command, end_of, guests, start

LATE = 3  # seconds that the machine may add to a deadline


# ---- In the guest ------------------------------------------------------------------------------

def packets():
    return int(pathlib.Path(
        "/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts").read_text())


def deaths():
    """What each end says when the other is killed or stopped in the middle."""
    out = {}
    endless = ("--duration", 60, "--accept-counters")
    for op, victim, how in (("send", "server", signal.SIGKILL), ("send", "client", signal.SIGSTOP),
                            ("ud", "server", signal.SIGSTOP), ("ud", "client", signal.SIGKILL),
                            ("write", "server", signal.SIGKILL)):
        before = packets()
        print(time.monotonic(), op, victim, how.name, file=sys.stderr, flush=True)
        ends = {"server": start(command("rxe0", "--op", op, "--size", 1000, "--depth", 8))}
        ends["client"] = start(command("rxe1", "--op", op, "--size", 1000, "--depth", 8,
                                       *endless, "127.0.0.1"))
        while packets() < before + 100 and ends["client"].poll() is None:
            time.sleep(0.05)
        began = time.monotonic()
        ends[victim].send_signal(how)
        other = end_of(ends["client" if victim == "server" else "server"])
        other["seconds"] = time.monotonic() - began
        out[f"{op} {victim} {how.name}"] = other
        ends[victim].kill()
        ends[victim].communicate()
    return out


# ---- On the host -------------------------------------------------------------------------------

class Deaths(perf.Ends):
    @classmethod
    def setUpClass(cls):
        ends = guests.run_in_guests([sys.executable, "-B", __file__, "--inside"], devs=2,
                                    timeout=450, env={"SELMCAST": perf.PROGRAM})
        if ends[0].status != 0:
            raise AssertionError(str(ends))
        cls.said = json.loads(ends[0].stdout)

    def test_an_end_survives_the_other_by_its_deadline_at_most(self):
        self.assertEqual(len(self.said), 5)
        for what, end in self.said.items():
            with self.subTest(what):
                victim = what.split()[1]
                killed = "SIGKILL" in what
                cause = ("closed the connection|went away" if killed
                         else "silent for|did not get ready|does not|no message completes")
                self.one_line(end, 1, f"the {victim}")
                self.assertRegex(end["err"], cause)
                self.assertLess(end["seconds"], (2 if killed else 2 * perf.TIMEOUT) + LATE)


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        print(json.dumps(deaths()))
    else:
        guests.require()
        unittest.main(verbosity=2)
