#!/usr/bin/env python3
"""transport/verbs with links, queue pairs, devices and guests that fail in the middle of a job. By
hand (`ctest -L extra`), for it takes minutes."""

import pathlib
import unittest

import jobs  # puts lab/ on the path
import guests
import verbs_jobs
from verbs_case import COUNT, Jobs

ROUNDS = 200
# Waits until a job has done so many rounds, by what it prints, or is over.
MOMENTS = """x=$RXE_XCHG
now() { grep -oE '^run [0-9]+/' $x/$1.out 2>/dev/null | tail -n 1 | tr -dc 0-9; }
reached() { local n; while ! [ -e $x/$1.status ]; do n=$(now $1); [ "${n:-0}" -ge $2 ] && return
sleep 0.3; done; }
since() { echo $((($(date +%s%N) - $1) / 1000000)); }
outage() { local start=$(date +%s%N); ip link set $2 down; sleep $3; ip link set $2 up
since $start > $x/$1.outage; }
"""


class Failures(Jobs):
    """200 rounds of four ranks on four devices of one guest: a link goes down and up, the queue
    pairs of a rank are forced into error, and a device is deleted under its rank."""

    @classmethod
    def setUpClass(cls):
        shim = pathlib.Path(verbs_jobs.TESTS).resolve().parent / "libforce_error.so"

        def script(links):
            job = verbs_jobs.launched("all", COUNT, ROUNDS, links,
                                      ["--policy", "select=all", "--timeout", "15"], 4,
                                      "rxe0,rxe1,rxe2,rxe3")
            return (MOMENTS + f"( export LD_PRELOAD={shim}; {job} ) & waits=$!\n" +
                    "reached all 30; outage all r1 1\n"
                    "reached all 70; pkill -USR2 -f '[w]orker .*--rank 1 '; now all > $x/forced\n"
                    "reached all 110; now all > $x/deleted; start=$(date +%s%N)\n"
                    "timeout 60 rdma link delete rxe3; echo $? > $x/delete.status\n"
                    "since $start > $x/delete.ms\n"
                    "wait $waits; pgrep -f '[s]elmcast worker' > $x/left; true\n")

        cls.run_script(script, 4, devs=4)
        cls.rounds = verbs_jobs.document(cls.folder, "all")["rounds"]

    def slowest(self, first, end):
        """In ms, of rounds that were under way between two moments of the script."""
        return max(one["ms"] for one in self.rounds[max(first - 20, 0):end])

    def test_every_round_is_done_and_verified_and_only_the_deleted_one_is_named(self):
        self.finished("all", failed=[3])
        self.assertEqual(len(self.rounds), ROUNDS)

    def test_the_link_came_back(self):
        slowest = self.slowest(30, 90)
        outage = int(self.text("all.outage"))
        print(f"link down for {outage} ms: the longest round took {slowest:.0f} ms")
        self.assertGreater(slowest, 500)  # It was noticed.

    def test_the_queue_pairs_came_back(self):
        self.assertIn("force_error: queue pairs went into error", self.text("all.err"))
        forced = int(self.text("forced"))
        print(f"all queue pairs of a rank in error: the longest round took "
              f"{self.slowest(forced, forced + 40):.0f} ms")

    def test_the_device_is_gone_and_named(self):
        self.assertEqual(self.text("delete.status"), "0")
        self.assertIn("rxe3", self.text("all.err"))
        deleted = int(self.text("deleted"))
        print(f"device deleted in {self.text('delete.ms')} ms (timeout 15 s): the longest round "
              f"took {self.slowest(deleted, ROUNDS):.0f} ms")

    def test_nothing_is_left(self):
        self.assertEqual(self.text("left"), "")


class ARailDies(Jobs):
    """Ranks that stripe over two of three devices, in different orders; one device is down for a
    while."""

    def test_it_is_left_and_taken_again(self):
        def script(links):
            job = verbs_jobs.launched("rail", COUNT, 60, links,
                                      ["--policy", "select=all", "--timeout", "8"], 3,
                                      "rxe0+rxe1,rxe1+rxe2,rxe0+rxe2")
            return (MOMENTS + f"( {job} ) & waits=$!\nreached rail 10; outage rail r1 2\n"
                    "wait $waits\n")

        self.run_script(script, 3, devs=3)
        document = self.recomputed("rail")
        self.assertEqual(len(document["rounds"]), 60)
        print(f"one rail of two down for {self.text('rail.outage')} ms: the longest round took "
              f"{max(one['ms'] for one in document['rounds']):.0f} ms")


class AGuestDies(Jobs):
    def test_the_others_go_on_and_name_it(self):
        def script(links):
            lines = [verbs_jobs.by_hand("die", COUNT, ROUNDS, links,
                                        ["--policy", "select=all", "--timeout", "5"], rank, 3)
                     for rank in range(3)]
            # About 75 packets reach a rank in a round.
            lines[2] = (f"( {lines[2].strip()} ) & cd /sys/class/infiniband/rxe0/ports/1\n"
                        "while [ $(cat hw_counters/rcvd_pkts) -lt 3000 ]; do sleep 0.2; done\n"
                        "rxe-crash\n")
            cases = "".join(f"{rank}) {line.strip()} ;;\n" for rank, line in enumerate(lines))
            return f"case $RXE_GUEST in\n{cases}esac\n"

        self.run_script(script, 3, kbps=50_000, guests=3, may_die=[2])
        document = self.finished("die", status="status.0", failed=[2], err="err.0")
        self.assertEqual(len(document["rounds"]), ROUNDS)
        self.assertEqual(self.text("die.status.1"), "0", self.text("die.err.1"))
        slowest = max(one["ms"] for one in document["rounds"])
        print(f"guest killed (timeout 5 s): the longest round took {slowest:.0f} ms")


if __name__ == "__main__":
    guests.require()
    unittest.main(verbosity=2)
