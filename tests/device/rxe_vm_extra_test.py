"""What scripts/rxe-vm promises beyond rxe_vm_long_test.py: deaths of guests, snooping, links that
go down, and runs that are ended from outside while COMMAND works."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lab"))
import guests  # noqa: E402
from guests import run_in_guests  # noqa: E402

# Guest 0 sees the others die, one by its own panic and one killed, and keeps its network.
DEATHS = ("""
rxe-barrier start || exit 1
until [[ -e $RXE_XCHG/crashing ]]; do sleep 0.1; done
rxe-barrier after-the-crash || exit 2
busybox ping -c 3 -w 10 g2 >/dev/null || exit 3
rxe-kill 2 || exit 4
rxe-barrier after-the-kill || exit 5
busybox ping -c 2 -w 2 g2 >/dev/null && exit 6
read -r carrier </sys/class/net/r0/carrier
echo "carrier $carrier"
""", """
rxe-barrier start || exit 1
echo last words
touch $RXE_XCHG/crashing
sleep 1
rxe-crash
""", """
rxe-barrier start || exit 1
rxe-barrier after-the-crash || exit 2
sleep 1000
""")

# Joins a group on r1 only and counts what the bridge hands to the links of r1 and r2.
SNOOPING = r"""
python3 -S - <<'END'
import socket, time
def multicast(k):
    with open(f"/sys/class/net/p{k}/statistics/tx_packets") as file:
        return int(file.read())
member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def index(name):
    return socket.if_nametoindex(name).to_bytes(4, "little")
group = socket.inet_aton("239.1.2.3")
member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + bytes(4) + index("r1"))
time.sleep(4)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(8) + index("r0"))
before = [multicast(k) for k in range(3)]
for i in range(200):
    sender.sendto(b"x" * 100, ("239.1.2.3", 9))
    time.sleep(0.002)
print(*(multicast(k) - b for k, b in enumerate(before)))
END
"""

LINKS = r"""
try() { # the client may come before the server listens
  timeout 60 ibv_rc_pingpong -d rxe0 -g $1 -n 20 >/dev/null &
  local server=$! i
  for i in $(seq 20); do
    sleep 0.5
    timeout 60 ibv_rc_pingpong -d rxe1 -g $1 -n 20 10.77.0.1 >/dev/null 2>&1 && break
  done
  wait $server
}
ip link set r1 down
sleep 1
ibv_devinfo -d rxe1 | grep -c PORT_ACTIVE
ip link set r1 up
sleep 3
ibv_devinfo -d rxe1 | grep -c PORT_ACTIVE
try 1; echo "IPv4 $?"
try 2; echo "IPv6 $?"
timeout 30 rdma link delete rxe1; echo "deleted $?"
ibv_devices | grep -c rxe
rdma link add again type rxe netdev r1; echo "added $?"
ibv_devices | grep -c again
"""


def processes_below(folder):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(folder):
                found.append(int(pid))
        except OSError:
            pass
    return found


class Deaths(unittest.TestCase):
    def test_others_live_on_where_a_death_is_allowed(self):
        ends = run_in_guests(DEATHS, guests=3, may_die=[1, 2], timeout=240)
        self.assertEqual([g.status for g in ends], [0, guests.DIED, guests.DIED], str(ends))
        self.assertEqual(ends.status, 0, str(ends))
        self.assertEqual(ends[0].stdout, "carrier 1\n")
        self.assertEqual(ends[1].stdout, "last words\n")
        self.assertIn("guest 1 died, as --may-die allows", ends.said)

    def test_a_death_that_is_not_allowed_ends_the_run(self):
        ends = run_in_guests(("sleep 1000", "rxe-kill 1"), guests=2, may_die=[0], timeout=200)
        self.assertEqual((ends.status, ends[1].status), (125, guests.DIED), str(ends))


class Network(unittest.TestCase):
    def test_snooping_prunes_and_its_absence_floods(self):
        for snooping in (True, False):
            with self.subTest(snooping=snooping):
                ends = run_in_guests(SNOOPING, devs=3, snooping=snooping, timeout=120)
                self.assertEqual(ends.status, 0, str(ends))
                # The transmissions of port p1 are what r1 receives. A few are reports and queries.
                _, member, stranger = map(int, ends[0].stdout.split())
                self.assertGreaterEqual(member, 200)
                if snooping:
                    self.assertLess(stranger, 40)
                else:
                    self.assertGreaterEqual(stranger, 200)

    def test_links_go_down_and_up_and_devices_can_be_deleted(self):
        ends = run_in_guests(LINKS, devs=2, timeout=300)
        want = ["0", "1", "IPv4 0", "IPv6 0", "deleted 0", "1", "added 0", "1"]
        self.assertEqual(ends[0].stdout.splitlines(), want, str(ends))


class Ends(unittest.TestCase):
    def test_the_time_limit_keeps_what_was_printed(self):
        ends = run_in_guests("echo printed; sleep 1000", timeout=30)
        self.assertEqual((ends.status, ends[0].status), (124, None), str(ends))
        self.assertEqual(ends[0].stdout, "printed\n")

    def test_end_from_outside_while_the_command_runs(self):
        for which in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(signal=which.name), \
                    tempfile.TemporaryDirectory(prefix="rxe-vm-test-") as folder:
                environment = {**os.environ, "TMPDIR": folder}
                process = subprocess.Popen(
                    [guests.SCRIPT, "--guests", "2", "--", "bash", "-c", "echo up; sleep 1000"],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                self.assertIn(process.stdout.readline(), ("[g0] up\n", "[g1] up\n"))
                self.assertEqual(len(processes_below(folder)), 3)
                process.send_signal(which)
                process.communicate(timeout=60)
                if which == signal.SIGKILL:
                    # Its guests follow it by themselves; the next run removes its files.
                    deadline = time.monotonic() + 30
                    while processes_below(folder) and time.monotonic() < deadline:
                        time.sleep(0.1)
                    self.assertEqual(len(os.listdir(folder)), 1)
                    self.assertEqual(run_in_guests("true", timeout=1, env=environment).status, 124)
                self.assertEqual(processes_below(folder), [])
                self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    guests.require()
    unittest.main(verbosity=2)
