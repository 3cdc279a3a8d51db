#!/usr/bin/env python3
"""transport/verbs over several guests, with loss, and over many devices: ResNet-50's tensors, as
large as emulation bears (SELMCAST_RESNET_SCALE=8 takes four times the bytes of 16)."""

import unittest

import jobs  # puts lab/ on the path
import guests
import verbs_jobs
from verbs_case import Jobs

# What depends on how many devices a rank has, and on the kind of their addresses.
SUITE = ":".join(f"*.{test}*/{kind}" for kind in ("striped", "ipv6") for test in (
    "EveryPair", "Largest", "Backpressure", "EachMember", "Leaving", "RandomTraffic"))


class SeveralGuests(Jobs):
    """ResNet-50's tensors; each rank in a guest of its own, with loss on every link."""

    def several(self, count):
        policy = "select=selmcast:2" if count > 2 else "select=all"

        def script(links):
            lines = [verbs_jobs.by_hand("lossy", self.resnet50, 4, links,
                                        ["--policy", policy, "--timeout", "40"], rank, count)
                     for rank in range(count)]
            cases = "".join(f"{rank}) {line.strip()} ;;\n" for rank, line in enumerate(lines))
            return f"case $RXE_GUEST in\n{cases}esac\n"

        self.run_script(script, count, kbps=50_000, guests=count, netem="loss 2%")
        self.assertEqual(self.ends.status, 0, str(self.ends))
        said = [self.text(f"lossy.err.{rank}") for rank in range(count)]
        self.assertEqual([self.text(f"lossy.status.{rank}") for rank in range(count)],
                         ["0"] * count, "\n".join(said))
        lossy = self.recomputed("lossy", self.elements, status="status.0", err="err.0")
        read = verbs_jobs.total(lossy, "read_frames")
        print(f"{count} guests, netem loss 2%, {4 * self.elements} bytes of parameters: "
              f"{read} frames read, "
              f"{verbs_jobs.total(lossy, 'repaired_frames')} sent again")
        self.assertGreater(read, 0)

    def test_two_guests(self):
        self.several(2)

    def test_four_guests(self):
        self.several(4)


class EightDevices(Jobs):
    @classmethod
    def setUpClass(cls):
        devices = [f"rxe{k}" for k in range(8)]

        def script(links):
            return (f"export SELMCAST_DEVICES={','.join(devices[:2])}\n" +
                    verbs_jobs.launched("eight", cls.resnet50, 4, links,
                                        ["--policy", "select=selmcast:2"], 8, ",".join(devices)) +
                    f"{verbs_jobs.TESTS} --gtest_filter='{SUITE}' > $RXE_XCHG/suite 2>&1; "
                    "echo $? > $RXE_XCHG/suite.status\n")

        cls.run_script(script, 8, devs=8)

    def test_eight_ranks_on_eight_devices(self):
        document = self.recomputed("eight", self.elements)
        print(f"8 ranks, 8 devices, {4 * self.elements} bytes of parameters: the longest round "
              f"took {max(one['ms'] for one in document['rounds']):.0f} ms")

    def test_conformance_striped_and_over_ipv6(self):
        self.assertEqual(self.text("suite.status"), "0", self.text("suite")[-3000:])


if __name__ == "__main__":
    guests.require()
    unittest.main(verbosity=2)
