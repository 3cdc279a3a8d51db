"""scripts/rxe-vm keeps its word: status, output, environment, files, several guests, no traces."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lab"))
import guests  # noqa: E402
from guests import run_in_guests  # noqa: E402

FIRST, LINES = 100_000_000, 300_000  # of 10 bytes

# Prints a section per subject; what follows "== NAME" is that subject's.
ONE_GUEST = r"""
section() { echo "== $1"; }
section environment; echo "$TOLD"; pwd; id -u
section stdin; wc -c
section reopened; echo through the file name >/dev/stdout
section gids
for device in rxe0 rxe1; do
  for index in 0 1 2; do
    read -r gid </sys/class/infiniband/$device/ports/1/gids/$index
    echo "$device $gid"
  done
done
section ips; echo "$RXE_IP $RXE_IPS"
section verbs; ibv_devices
echo kept >"$SHARED/kept"
echo vanishes >"$VANISHES/vanishes" && cat "$VANISHES/vanishes" >&2
seq FIRST LAST
sleep 1000 &
exit 42
""".replace("FIRST", str(FIRST)).replace("LAST", str(FIRST + LINES - 1))

# Datagrams of which netem drops a half, counted where they leave and where they arrive.
SEND = """
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(400):
    s.sendto(b"x" * 100, ("g1", 7000))
    if i % 20 == 19:
        time.sleep(0.01)
"""
RECEIVE = """
import socket, subprocess
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7000))
subprocess.run(["rxe-barrier", "bound"], check=True)
s.settimeout(40)
count = 0
try:
    while True:
        s.recv(200)
        s.settimeout(3)
        count += 1
except socket.timeout:
    pass
print("received", count)
"""
GUEST_0 = f"""
rxe-barrier bound || exit 1
# Once the neighbour is known, nothing but netem loses.
until busybox ping -c 1 -W 1 g1 >/dev/null; do :; done
python3 -S -c '{SEND}'
rxe-barrier received || exit 1
tc -s qdisc show dev r0
until busybox ping -c 1 -W 1 g1-0-v6 >/dev/null; do :; done
echo IPv6 answers
echo from zero >$RXE_XCHG/note
rxe-barrier written || exit 1
rxe-barrier never 60
echo "barrier $?"
"""
GUEST_1 = f"""
python3 -S -c '{RECEIVE}'
rxe-barrier received || exit 1
rxe-barrier written || exit 1
cat $RXE_XCHG/note
kill -SEGV $$
"""


def section(text, name):
    found = re.search(rf"^== {name}\n((?:(?!== ).*\n)*)", text, re.MULTILINE)
    return found.group(1).splitlines()


def members(session):
    """Processes of a session, zombies left out: their names by id."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, _, rest = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) == session and fields[0] not in "ZX":
            found[int(pid)] = name.partition("(")[2]
    return found


def count_of(session, name):
    return list(members(session).values()).count(name)


class Options(unittest.TestCase):
    def refused(self, *arguments):
        done = subprocess.run([guests.SCRIPT, *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_wrong_usage_is_one_line_and_status_2(self):
        for arguments, named in [
                (["--wheels", "4", "--", "true"], "'--wheels'"),
                (["ibv_devinfo"], "'ibv_devinfo'"),
                ([], "COMMAND"),
                (["--"], "COMMAND"),
                (["--setup", "--", "true"], "--setup"),
                (["--guests"], "--guests wants a value"),
                (["--guests", "two", "--", "true"], "--guests is 'two'; allowed: 1 to 8"),
                (["--guests", "9", "--", "true"], "allowed: 1 to 8"),
                (["--guests", "0", "--", "true"], "allowed: 1 to 8"),
                (["--devs", "17", "--", "true"], "allowed: 1 to 16"),
                (["--devs", "08", "--", "true"], "--devs is '08'"),
                (["--timeout", "-1", "--", "true"], "--timeout is '-1'"),
                (["--timeout", "9" * 30, "--", "true"], "--timeout"),
                (["--mtu", "100", "--", "true"], "allowed: 1280 to 9000"),
                (["--cpus", "", "--", "true"], "--cpus is ''"),
                (["--may-die", "1", "--", "true"], "the last guest is 0"),
                (["--rw", "/nowhere/at/all", "--", "true"], "'/nowhere/at/all'"),
                (["--netem", "loss 1%", "--", "true"], "--netem needs"),
                (["--snooping", "--", "true"], "--snooping needs")]:
            with self.subTest(arguments=arguments):
                self.assertIn(named, self.refused(*arguments))


class Machine(unittest.TestCase):
    @unittest.skipIf(os.geteuid() != 0, "needs root, to become somebody who may install nothing")
    def test_a_machine_that_lacks_something_is_named_with_status_3(self):
        with tempfile.TemporaryDirectory(prefix="rxe-vm-test-") as folder:
            os.chmod(folder, 0o755)
            # Says of every package that it is not installed.
            fake = pathlib.Path(folder, "dpkg-query")
            fake.write_text("#!/bin/sh\nexit 1\n")
            fake.chmod(0o755)
            script = pathlib.Path(folder, "scripts")
            shutil.copytree(guests.SCRIPT.parent, script)
            done = subprocess.run(
                ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                 script / "rxe-vm", "--", "true"], stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=60, check=False,
                env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            self.assertIn("Run as root: apt-get install qemu-system-x86", done.stderr)
            self.assertIn("rxe-vm: cannot run here: ", done.stderr.splitlines()[-1])


class OneGuest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="rxe vm, test-") as folder:
            here = pathlib.Path(folder)
            for name in ("kept here", "vanish"):
                (here / name).mkdir()
            environment = {**os.environ, "TOLD": "a 'b'\n$c \"d\"",
                           "SHARED": f"{folder}/kept here", "VANISHES": f"{folder}/vanish"}
            # Standard input is closed, not only empty.
            cls.done = subprocess.run(
                ["bash", "-c", 'exec "$@" <&-', "bash", guests.SCRIPT, "--devs", "2",
                 "--timeout", "120", "--rw", f"{folder}/kept here", "--",
                 "bash", "-c", ONE_GUEST],
                capture_output=True, text=True, timeout=200, check=False,
                env=environment, cwd=folder)
            cls.folder = folder
            cls.kept = {str(p.relative_to(here)): p.read_text()
                        for p in here.rglob("*") if p.is_file()}

    def test_status_is_the_commands(self):
        self.assertEqual(self.done.returncode, 42, self.done.stderr)

    def test_environment_folder_and_user(self):
        self.assertEqual(section(self.done.stdout, "environment"),
                         ["a 'b'", '$c "d"', self.folder, "0"])

    def test_standard_input_is_empty_and_output_can_be_opened_by_name(self):
        self.assertEqual(section(self.done.stdout, "stdin"), ["0"])
        self.assertEqual(section(self.done.stdout, "reopened"), ["through the file name"])

    def test_output_is_complete_and_in_order_and_errors_are_apart(self):
        numbers = [line for line in self.done.stdout.splitlines() if re.fullmatch(r"\d{9}", line)]
        self.assertEqual(len(numbers), LINES)
        self.assertTrue(all(int(text) == FIRST + i for i, text in enumerate(numbers)))
        self.assertTrue(self.done.stdout.endswith(f"{FIRST + LINES - 1}\n"))
        self.assertEqual(self.done.stderr, "vanishes\n")

    def test_only_shared_folders_keep_what_was_written(self):
        self.assertEqual(self.kept, {"kept here/kept": "kept\n"})

    def test_each_device_has_gids_of_both_families(self):
        # A link-local one first: the guest's addresses follow.
        want = []
        for k in (0, 1):
            want += [f"rxe{k} fe80:0000:0000:0000:0077:00ff:fe00:000{k}",
                     f"rxe{k} 0000:0000:0000:0000:0000:ffff:0a4d:000{k + 1}",
                     f"rxe{k} fd77:0000:0000:0000:0000:0000:0001:000{k + 1}"]
        self.assertEqual(sorted(section(self.done.stdout, "gids")), sorted(want))
        self.assertEqual(section(self.done.stdout, "ips"), ["10.77.0.1 10.77.0.1 10.77.0.2"])
        text = "\n".join(section(self.done.stdout, "verbs"))
        self.assertTrue("rxe0" in text and "rxe1" in text, text)


class TwoGuests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ends = run_in_guests((GUEST_0, GUEST_1), guests=2, netem="loss 50%", timeout=150)

    def test_the_first_status_that_is_not_0_counts(self):
        self.assertEqual([g.status for g in self.ends], [0, 139], str(self.ends))
        self.assertEqual(self.ends.status, 139)

    def test_guests_hear_each_other_and_netem_loses_half(self):
        sent, lost = map(int, re.search(r"Sent \d+ bytes (\d+) pkt \(dropped (\d+)",
                                        self.ends[0].stdout).groups())
        arrived = int(re.search(r"received (\d+)", self.ends[1].stdout).group(1))
        # 200 within six standard deviations of 10; other packets are few.
        self.assertTrue(140 <= arrived <= 260, str(self.ends))
        self.assertTrue(140 <= lost <= 290, str(self.ends))
        self.assertGreaterEqual(sent, arrived)
        self.assertIn("IPv6 answers", self.ends[0].stdout)

    def test_they_share_a_folder_and_barriers(self):
        self.assertIn("from zero", self.ends[1].stdout)

    def test_a_barrier_that_an_ended_guest_cannot_reach_fails_at_once(self):
        self.assertIn("barrier 1", self.ends[0].stdout)
        self.assertIn("guest 1 ended before it came to 'never'", self.ends[0].stderr)


class Ends(unittest.TestCase):
    def test_a_kernel_crash_is_125_with_the_kernels_words(self):
        ends = run_in_guests("echo before; sleep 1; rxe-crash", timeout=100)
        self.assertEqual(ends.status, 125, str(ends))
        self.assertEqual((ends[0].status, ends[0].stdout), (guests.DIED, "before\n"))
        self.assertIn("Kernel panic", ends.said)

    def test_the_time_limit_holds_while_the_guest_boots(self):
        start = time.monotonic()
        ends = run_in_guests(["true"], timeout=1)
        self.assertEqual((ends.status, ends[0].status), (124, None), str(ends))
        self.assertIn("time limit of 1 s", ends.said)
        self.assertLess(time.monotonic() - start, 60)

    def test_a_signal_leaves_no_process_and_no_file(self):
        for which, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            with self.subTest(signal=which.name), \
                    tempfile.TemporaryDirectory(prefix="rxe-vm-test-") as folder:
                process = subprocess.Popen([guests.SCRIPT, "--guests", "2", "--", "true"],
                                           env={**os.environ, "TMPDIR": folder},
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                           text=True, start_new_session=True)
                deadline = time.monotonic() + 60
                try:
                    # Two guests and the hub between them.
                    while count_of(process.pid, "qemu-system-x86") < 3 and \
                            time.monotonic() < deadline:
                        time.sleep(0.05)
                    self.assertEqual(count_of(process.pid, "qemu-system-x86"), 3)
                    self.assertEqual(len(os.listdir(folder)), 1)
                    process.send_signal(which)
                    output, _ = process.communicate(timeout=60)
                finally:
                    process.kill()
                self.assertEqual(process.returncode, status, output)
                self.assertEqual(members(process.pid), {})
                self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    guests.require()
    unittest.main(verbosity=2)
