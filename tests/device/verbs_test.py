#!/usr/bin/env python3
"""transport/verbs in a guest with two Soft-RoCE devices: the conformance suite, reads, whole jobs
recomputed outside, and nothing left over in the kernel."""

import json
import re
import sys
import tempfile
import unittest

import jobs  # puts lab/ on the path
import guests
import verbs_jobs

COUNT = 400_003  # Not a multiple of any frame size.
RANKS = 4


class OneGuest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="selmcast-verbs-")
        cls.folder = cls.temporary.name
        fast = verbs_jobs.links(cls.folder, RANKS, 200_000)

        def launched(name, *arguments, rounds=4, devices="rxe0,rxe1"):
            return verbs_jobs.launched(name, COUNT, rounds, fast, arguments, RANKS, devices)

        script = "export SELMCAST_DEVICES=rxe0,rxe1\n"
        script += "rdma resource > $RXE_XCHG/before\n"
        script += (f"{verbs_jobs.TESTS} "
                   "--gtest_filter='*/shared:*/own:VerbsReads*:VerbsIdentity*' "
                   "> $RXE_XCHG/suite 2>&1; echo $? > $RXE_XCHG/suite.status\n")
        script += launched("plain", "--policy", "select=selmcast:2")
        script += launched("lossy", "--policy", "select=selmcast:2", "--loss", "0.02")
        script += launched("striped", "--policy", "select=all", devices="rxe0+rxe1")
        script += (f"strace -f -qq -e signal=none -o $RXE_XCHG/strace {verbs_jobs.HOT_PATH} "
                   "> $RXE_XCHG/hot_path 2>&1; echo $? > $RXE_XCHG/hot_path.status\n")
        # Pages are set aside for the whole machine: this one is the guest.
        script += ("echo 20 > /proc/sys/vm/nr_hugepages\n"
                   f"{verbs_jobs.UNIT_TESTS} --gtest_filter='ArenaPages.*' > $RXE_XCHG/pages 2>&1; "
                   "echo $? > $RXE_XCHG/pages.status; echo 0 > /proc/sys/vm/nr_hugepages\n")
        script += f"{verbs_jobs.PROGRAM} doctor > $RXE_XCHG/doctor 2>&1\n"
        script += (f"{verbs_jobs.PROGRAM} run --workers 2 --transport verbs --device nosuch "
                   "--policy select=all --params-bytes 4096 2> $RXE_XCHG/nosuch.err; "
                   "echo $? > $RXE_XCHG/nosuch.status\n")
        script += (f"{verbs_jobs.PROGRAM} probe --workers 2 --transport verbs --devices rxe0,rxe1 "
                   "--timestamps --timeout 60 --json $RXE_XCHG/probe.json > $RXE_XCHG/probe.out "
                   "2> $RXE_XCHG/probe.err; echo $? > $RXE_XCHG/probe.status\n")
        script += "ip link set r1 down; sleep 0.2\n"
        script += (f"{verbs_jobs.PROGRAM} run --workers 2 --transport verbs --device rxe1 "
                   "--policy select=all --params-bytes 4096 2> $RXE_XCHG/down.err; "
                   "echo $? > $RXE_XCHG/down.status\n")
        script += "rdma resource > $RXE_XCHG/after\n"
        cls.ends = guests.run_in_guests(script, devs=2, timeout=450, exchange=cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def text(self, name):
        return verbs_jobs.text(self.folder, name)

    def verified(self, name):
        self.assertEqual(self.text(f"{name}.status"), "0", self.text(f"{name}.err"))
        document = verbs_jobs.document(self.folder, name)
        self.assertTrue(document["verified"])
        self.assertEqual(document["transport"], "verbs")
        self.assertEqual(document["failed_ranks"], [])
        self.assertLess(verbs_jobs.worst_difference(self.folder, name, COUNT), 1e-5)
        for one in document["rounds"]:
            self.assertEqual(one["foreign_frames"], [0] * RANKS)
        return document

    def test_the_guest_ended_well(self):
        self.assertEqual(self.ends.status, 0, str(self.ends))

    def test_conformance_and_reads(self):
        self.assertEqual(self.text("suite.status"), "0", self.text("suite")[-3000:])
        self.assertIn("[  PASSED  ]", self.text("suite"))

    def test_one_copy_leaves_each_sender(self):
        document = self.verified("plain")
        for one in document["rounds"]:
            for first in one["tx_first_bytes"]:
                self.assertGreaterEqual(first, 4 * COUNT)
                self.assertLessEqual(first, 1.05 * 4 * COUNT)

    def test_what_is_lost_is_read_from_its_sender(self):
        document = self.verified("lossy")
        self.assertGreater(verbs_jobs.total(document, "read_frames"), 0)
        # The connection to read through is made at the first loss; until it is there, NACKs serve.
        last = document["rounds"][-1]
        self.assertGreater(last["read_frames"], 0)
        self.assertGreater(verbs_jobs.total(document, "read_frames"),
                           verbs_jobs.total(document, "repaired_frames"))

    def test_ranks_that_stripe_over_both_devices(self):
        self.verified("striped")

    def test_between_posts_and_polls_only_doorbells_enter_the_kernel(self):
        """20 000 frames and 500 reads, as the program counts its calls and as strace sees them."""
        self.assertEqual(self.text("hot_path.status"), "0", self.text("hot_path")[-3000:])
        counted = json.loads(re.search(r"^\{.*\}$", self.text("hot_path"), re.MULTILINE).group())
        self.assertEqual((counted["frames"], counted["own"]), (20_000, 0))
        lines = self.text("strace").splitlines()
        marks = [i for i, line in enumerate(lines) if 'write(-1, "selmcast-mark"' in line]
        self.assertEqual(len(marks), 2)
        driver = lines[marks[0]].split()[0]
        calls = [line.split(maxsplit=1)[1] for line in lines[marks[0] + 1:marks[1]]
                 if line.split()[0] == driver and " resumed>" not in line]
        # A doorbell of Soft-RoCE is a write() to the device's file; both counts are of them alone.
        files = {call.split(",")[0] for call in calls}
        self.assertTrue(all(name.startswith("write(") for name in files), files)
        self.assertEqual(len(calls), counted["write"])
        self.assertLessEqual(len(calls), counted["posts"] + counted["reads"])
        print(f"{counted['frames']} frames, {counted['reads']} reads: {len(calls)} doorbells and "
              "no other system call")

    def test_arenas_take_huge_pages_where_there_are_any(self):
        self.assertEqual(self.text("pages.status"), "0", self.text("pages")[-3000:])
        self.assertIn("[       OK ] ArenaPages.HugePages", self.text("pages"))

    def test_doctor_names_the_devices(self):
        self.assertRegex(self.text("doctor"), r"verbs +usable")
        self.assertIn("rxe0 port 1 GID 1 (::ffff:10.77.0.1)", self.text("doctor"))

    def test_probing_says_whose_clock_it_took(self):
        """Soft-RoCE stamps nothing; the rates are there all the same."""
        self.assertEqual(self.text("probe.status"), "0", self.text("probe.err"))
        for rank in range(2):
            self.assertRegex(self.text("probe.err"), rf"rank {rank}: .*rxe{rank} port 1 .*"
                             "does not stamp completions: arrivals are timed by this process")
        document = verbs_jobs.document(self.folder, "probe")
        for rate in document["tx_kbps"] + document["rx_kbps"]:
            self.assertGreater(rate, 0)

    def test_a_device_that_is_not_there(self):
        self.assertEqual(self.text("nosuch.status"), "2")
        self.assertIn("no device is called 'nosuch'; there are: rxe0, rxe1",
                      self.text("nosuch.err"))

    def test_a_port_that_is_down(self):
        self.assertEqual(self.text("down.status"), "3")
        self.assertIn("ip link set r1 up", self.text("down.err"))

    def test_nothing_is_left_in_the_kernel(self):
        self.assertEqual(self.text("before"), self.text("after"))
        self.assertIn("rxe0", self.text("before"))


if __name__ == "__main__":
    guests.require()
    unittest.main(argv=sys.argv[:1], verbosity=2)
