"""The guest is sane: rdma-core's own programs work on its Soft-RoCE devices; none of ours runs."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lab"))
import guests  # noqa: E402
from guests import run_in_guests  # noqa: E402

# check NAME SERVER CLIENT: runs a pair of programs; the client tries again until the server
# listens. After "== NAME" come the server's status and what both printed.
GATE = r"""
check() {
  echo "== $1"
  local server=$2 client=$3 pid try
  timeout 40 $server >server.log 2>&1 &
  pid=$!
  for try in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5
    timeout 40 $client >client.log 2>&1 && break
    kill -0 $pid 2>/dev/null || break
  done
  wait $pid
  echo "server $?"
  cat server.log client.log
}
cd /tmp
echo "== devinfo"
ibv_devinfo -v
check rc4 "ibv_rc_pingpong -d rxe0 -g 1 -n 50" "ibv_rc_pingpong -d rxe1 -g 1 -n 50 g0-0"
check rc6 "ibv_rc_pingpong -d rxe0 -g 2 -n 50" "ibv_rc_pingpong -d rxe1 -g 2 -n 50 g0-0"
check ud "ibv_ud_pingpong -d rxe0 -g 1 -n 50" "ibv_ud_pingpong -d rxe1 -g 1 -n 50 g0-0"
check same "ibv_rc_pingpong -d rxe0 -g 1 -n 50" "ibv_rc_pingpong -d rxe0 -g 1 -n 50 g0-0"
check rping "rping -s -a $RXE_IP -C 5 -v -V" "rping -c -a $RXE_IP -I 10.77.0.2 -C 5 -v -V"
echo "== counters"
cat /sys/class/infiniband/rxe1/ports/1/hw_counters/{sent_pkts,rcvd_pkts}
echo "== multicast"
timeout 60 stdbuf -oL mckey -m 239.1.1.1 -b 10.77.0.2 -c 1 -C 10 >receiver.log 2>&1 &
receiver=$!
for try in $(seq 100); do
  grep -q 'joined' receiver.log && break
  sleep 0.1
done
timeout 60 mckey -m 239.1.1.1 -b 10.77.0.1 -s -c 1 -C 10
echo "sender $?"
wait $receiver
echo "receiver $?"
cat receiver.log
echo "== pyverbs"
[[ -d PYVERBS ]] || exit 0
# Its package file imports all of its tests, and those of every vendor take long.
mkdir -p pyverbs/tests && cp PYVERBS/* pyverbs/tests && gunzip pyverbs/tests/*.gz
cd pyverbs && : >tests/__init__.py
timeout 100 /usr/bin/python3 -B -c 'RUNNER' --dev rxe0 --gid 1 MODULES 2>&1
echo "pyverbs $?"
"""

PYVERBS = pathlib.Path("/usr/share/doc/rdma-core/tests")
MODULES = " ".join("tests.test_" + name for name in ("pd", "addr", "cq", "mr", "device", "qp"))
RUNNER = """
import sys, unittest
sys.path[:0] = [".", "tests"]
from args_parser import parser
parser.parse_args()
unittest.main(module=None, verbosity=2)
"""
for name, text in (("PYVERBS", PYVERBS), ("MODULES", MODULES), ("RUNNER", RUNNER)):
    GATE = GATE.replace(name, str(text))


class Gate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ends = run_in_guests(GATE, devs=2, timeout=240)

    def section(self, name):
        found = re.search(rf"^== {name}\n((?:(?!== ).*\n)*)", self.ends[0].stdout, re.MULTILINE)
        self.assertIsNotNone(found, str(self.ends))
        return found.group(1)

    def test_two_active_devices(self):
        text = self.section("devinfo")
        self.assertEqual(re.findall(r"hca_id:\s+(\S+)", text), ["rxe0", "rxe1"])
        self.assertEqual(text.count("PORT_ACTIVE (4)"), 2, text)
        self.assertEqual(re.findall(r"active_mtu:\s+(\d+)", text), ["4096", "4096"])

    def test_ping_pong(self):
        for name, size, gids in (("rc4", 4096, ("::ffff:10.77.0.1", "::ffff:10.77.0.2")),
                                 ("rc6", 4096, ("fd77::1:1", "fd77::1:2")),
                                 ("same", 4096, ("::ffff:10.77.0.1", "::ffff:10.77.0.1")),
                                 ("ud", 1024, ("::ffff:10.77.0.1", "::ffff:10.77.0.2"))):
            with self.subTest(name):
                text = self.section(name)
                self.assertIn("server 0\n", text, text)
                # Each side says what it moved: both ways, 50 times.
                moved = re.findall(rf"^{2 * 50 * size} bytes in", text, re.MULTILINE)
                self.assertEqual(len(moved), 2, text)
                for gid in gids:
                    self.assertRegex(text, rf"local address:.*GID {re.escape(gid)}\n")

    def test_connection_manager(self):
        text = self.section("rping")
        self.assertIn("server 0\n", text)
        # The last of five, at the server and back at the client.
        self.assertRegex(text, "(?m)^server ping data: rdma-ping-4: ")
        self.assertRegex(text, "(?m)^ping data: rdma-ping-4: ")

    def test_the_pairs_used_the_link(self):
        sent, received = map(int, self.section("counters").split())
        # 3 ping-pongs of 50 messages between the devices, at least one packet each.
        self.assertGreaterEqual(min(sent, received), 150)

    def test_multicast_through_the_connection_manager(self):
        text = self.section("multicast")
        self.assertIn("sender 0\nreceiver 0\n", text)
        self.assertIn("receiving data transfers\ndata transfers complete\n", text)

    def test_pyverbs_own_tests(self):
        if not PYVERBS.is_dir():
            self.skipTest(f"no {PYVERBS}: this system keeps no documentation of packages")
        text = self.section("pyverbs")
        self.assertIn("pyverbs 0\n", text)
        # Those of raw packets, device memory, DMA-BUF and re-registration skip themselves.
        self.assertGreater(len(re.findall(r"\.\.\. ok$", text, re.MULTILINE)), 40, text)


if __name__ == "__main__":
    guests.require()
    unittest.main(verbosity=2)
