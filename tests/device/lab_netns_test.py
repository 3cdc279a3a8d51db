"""The namespace lab proves what it promises: snooping, shaping, loss per receiver, no traces."""

import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lab"))
import lab as lab_module  # noqa: E402
from lab import Lab  # noqa: E402

GROUP = "239.192.1.2"

# Joins the group, says so, and counts datagrams until 0.5 s pass without one.
RECEIVER = """
import socket, sys
address, group = sys.argv[1:3]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
s.bind(("", 5000))
if group != "-":
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                 socket.inet_aton(group) + socket.inet_aton(address))
print("ready", flush=True)
count = 0
s.settimeout(10)
try:
    while True:
        s.recv(2000)
        s.settimeout(0.5)
        count += 1
except socket.timeout:
    pass
print(count, flush=True)
"""

SENDER = """
import socket, sys, time
address, to, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
for i in range(count):
    s.sendto(bytes(size), (to, 5000))
    if i % 20 == 19:
        time.sleep(0.002)
"""


def python(*arguments):
    return [sys.executable, "-S", "-c", *arguments]


def leftovers():
    return [n for n in lab_module._namespaces() if n.startswith(lab_module.PREFIX + "-")]


class LabTest(unittest.TestCase):
    def listen(self, lab, rank, group):
        process = lab.popen(rank, python(RECEIVER, lab.address(rank), group),
                            stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline().strip(), "ready")
        return process

    def send(self, lab, rank, to, count, size):
        lab.run(rank, python(SENDER, lab.address(rank), to, str(count), str(size)), check=True)

    def counted(self, process):
        out, _ = process.communicate(timeout=30)
        return int(out)

    def test_multicast_reaches_member_ports_only_and_leaves_the_sender_once(self):
        with Lab(4) as lab:
            members = [self.listen(lab, r, GROUP) for r in (1, 2)]
            deadline = time.monotonic() + 5
            while lab.mdb().get(GROUP) != {1, 2} and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(lab.mdb().get(GROUP), {1, 2})
            sent = lab.counters(0)["tx_bytes"]
            at_stranger = lab.port_counters(3)["tx_packets"]
            self.send(lab, 0, GROUP, 300, 1000)
            self.assertEqual([self.counted(m) for m in members], [300, 300])
            once = 300 * (1000 + 8 + 20 + 14)
            grown = lab.counters(0)["tx_bytes"] - sent
            self.assertGreaterEqual(grown, once)
            self.assertLess(grown, once * 1.05)
            self.assertLess(lab.port_counters(3)["tx_packets"] - at_stranger, 30)

    def test_shaped_port_is_no_faster_than_its_rate(self):
        with Lab(2, down_mbps=[None, 10], up_mbps=[None, None]) as lab:
            receiver = self.listen(lab, 1, "-")
            start = time.monotonic()
            self.send(lab, 0, lab.address(1), 500, 1400)
            count = self.counted(receiver)
            seconds = time.monotonic() - start - 0.5  # the receiver's patience
            self.assertEqual(count, 500)
            # 500 * 1442 bytes less the bucket at 10 Mbit/s, were the shaper perfect.
            self.assertGreater(seconds, 0.9 * (500 * 1442 - 80 * 1024) * 8 / 10e6 - 0.1)

    def test_loss_hits_the_receiver_it_is_meant_for(self):
        if lab_module.skip_reason(loss=True):
            self.skipTest(lab_module.skip_reason(loss=True))
        with Lab(3, loss=[0, 0, 0.2]) as lab:
            receivers = [self.listen(lab, r, GROUP) for r in (1, 2)]
            time.sleep(0.3)
            self.send(lab, 0, GROUP, 1000, 100)
            clean, lossy = [self.counted(r) for r in receivers]
            self.assertEqual(clean, 1000)
            self.assertTrue(720 <= lossy <= 880, lossy)  # 800 within 6 standard deviations

    def test_nothing_is_left_and_running_programs_are_ended(self):
        with Lab(2) as lab:
            stubborn = lab.popen(1, python(
                "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
                "print('up', flush=True); time.sleep(600)"), stdout=subprocess.PIPE, text=True)
            self.assertEqual(stubborn.stdout.readline().strip(), "up")
            self.assertEqual(len([n for n in leftovers() if n.startswith(lab._name)]), 3)
        self.assertIsNotNone(stubborn.poll())
        stubborn.stdout.close()
        self.assertEqual([n for n in leftovers() if n.startswith(lab._name)], [])

    def test_a_killed_run_is_cleaned_up_by_the_next(self):
        for how in (signal.SIGKILL, signal.SIGTERM):
            child = subprocess.Popen(
                [sys.executable, "-B", "-c",
                 "import sys, time; sys.path.insert(0, sys.argv[1]); from lab import Lab\n"
                 "with Lab(2) as lab:\n"
                 "    lab.popen(0, ['sleep', '600'])\n"
                 "    print(lab._name, flush=True)\n"
                 "    time.sleep(600)\n", str(pathlib.Path(lab_module.__file__).parent)],
                stdout=subprocess.PIPE, text=True)
            name = child.stdout.readline().strip()
            self.assertEqual(len([n for n in leftovers() if n.startswith(name + "-")]), 3)
            child.send_signal(how)
            child.wait(20)
            child.stdout.close()
            if how == signal.SIGKILL:
                self.assertEqual(len([n for n in leftovers() if n.startswith(name + "-")]), 3)
                lab_module.remove_leftovers()
            self.assertEqual([n for n in leftovers() if n.startswith(name + "-")], [])

    def test_refuses_lists_of_the_wrong_length(self):
        for options in ({"down_mbps": [1]}, {"up_mbps": [1, 2, 3]}, {"loss": [0.1]}):
            with self.assertRaises(ValueError):
                Lab(2, **options)


if __name__ == "__main__":
    lab_module.require()
    unittest.main(verbosity=2)
