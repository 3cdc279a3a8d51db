#!/usr/bin/env python3
"""`selmcast perf` on Soft-RoCE: every operation moves and verifies what it says, flags that cannot
be are refused by name, and mckey and we hear each other. Ends that die or hang: see
verbs_perf_long_test.py."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lab"))
import guests  # noqa: E402

PROGRAM = os.environ.get("SELMCAST", str(guests.ROOT / "build" / "release" / "selmcast"))
RELIABLE = {"write": 16384, "write-imm": 5000, "read": 16384, "send": 5000, "atomic": 8}
DATAGRAMS = ("ud", "multicast")
PINGS = ("write", "read", "send", "ud")
TIMEOUT = 5   # seconds, of --timeout where it is what is tested
PATIENCE = 25  # where it is not


# ---- In the guest ------------------------------------------------------------------------------

def command(device, *flags, timeout=TIMEOUT):
    return [PROGRAM, "perf", "--device", device, "--timeout", str(timeout),
            *(str(flag) for flag in flags)]


def start(words):
    return subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_of(process, limit=60):
    out, err = process.communicate(timeout=limit)
    return {"status": process.returncode, "out": out, "err": err}


def both(*flags, client=(), server=()):
    """A measurement between the two devices; --accept-counters, because Soft-RoCE on a busy machine
    sends some packets twice. Its responder (6.1) then refuses a request now and then, which ends
    any program's connection: tried again."""
    for _ in range(3):
        ends = once(*flags, client=client, server=server)
        if "the measurement: " not in ends["client"]["err"]:
            break
    return ends


def once(*flags, client, server):
    print(time.monotonic(), *flags, *client, file=sys.stderr, flush=True)
    one = start(command("rxe0", "--accept-counters", "--json", "-", *flags, *server,
                        timeout=PATIENCE))
    other = start(command("rxe1", "--accept-counters", "--json", "-", *flags, *client,
                          "127.0.0.1", timeout=PATIENCE))
    return {"client": end_of(other), "server": end_of(one)}


def floods():
    short = ("--iterations", 40, "--repeats", 2)
    out = {}
    for op, size in RELIABLE.items():
        out[op] = both("--op", op, "--size", size, "--depth", 8,
                       client=(*short, "--post-list", 4, "--signal-every", 4))
    for op in DATAGRAMS:
        out[op] = both("--op", op, "--size", 900, "--depth", 16, client=short)
    out["inline"] = both("--op", "send", "--size", 60, "--verify-all", "--inline", 64, client=short)
    out["several"] = both("--op", "send", "--size", 9000, "--verify-all", "--queue-pairs", 3,
                          "--events", "--depth", 8, client=short)
    out["seconds"] = both("--op", "write", "--size", 4096, "--depth", 8,
                          client=("--duration", 0.3, "--repeats", 3))
    return out


def interoperation():
    """mckey -b is the address of the other device."""
    group = ("--op", "multicast", "--group", "239.1.2.3", "--size", 100, "--iterations", 20)
    out = {}
    theirs = start(["stdbuf", "-oL", "mckey", "-m", "239.1.2.3", "-b", "10.77.0.1", "-c", "1",
                    "-C", "20", "-S", "100"])
    lines = []
    while "joined" not in "".join(lines) and theirs.poll() is None:
        lines.append(theirs.stdout.readline())
    time.sleep(0.3)  # It posts its receives after it says so.
    out["ours to mckey"] = end_of(start(command("rxe1", *group, "--alone", "send")))
    out["mckey hears"] = end_of(theirs)
    out["mckey hears"]["out"] = "".join(lines) + out["mckey hears"]["out"]

    # mckey sleeps for five seconds before it sends.
    ours = start([PROGRAM, "perf", "--device", "rxe0", "--timeout", "30", *map(str, group),
                  "--alone", "receive", "--json", "-"])
    attached = pathlib.Path("/proc/net/igmp")
    for _ in range(50):
        if "030201EF" in attached.read_text():  # 239.1.2.3, as the kernel prints it.
            break
        time.sleep(0.1)
    time.sleep(0.3)
    out["mckey sends"] = end_of(start(["mckey", "-m", "239.1.2.3", "-b", "10.77.0.2", "-s", "-c",
                                       "1", "-C", "20", "-S", "100"]))
    out["ours hears"] = end_of(ours)
    return out


def inside():
    both_refused = both("--op", "write", server=("--size", 64), client=("--size", 128))
    alone = {
        "nobody": end_of(start([PROGRAM, "perf", "--device", "rxe0", "--timeout", "1"])),
        "no server": end_of(start([PROGRAM, "perf", "127.0.0.1", "--timeout", "1"])),
        "no such device": end_of(start([PROGRAM, "perf", "--device", "rxe9"])),
        "long datagram": end_of(start(command("rxe0", "--op", "ud", "--size", 5000))),
    }
    pings = {op: both("--op", op, "--size", 8, "--latency",
                      client=("--iterations", 30, "--repeats", 2)) for op in PINGS}
    print(json.dumps({
        "floods": floods(), "pings": pings, "other flags": both_refused, "alone": alone,
        "pacing": both("--op", "write", client=("--rate-limit", 1000)),
        "mckey": interoperation() if shutil.which("mckey") else None,
    }))


# ---- On the host -------------------------------------------------------------------------------

class Ends(unittest.TestCase):
    def one_line(self, end, status, *words):
        self.assertEqual(end["status"], status, end)
        lines = [line for line in end["err"].splitlines() if not line.startswith("selmcast: note")]
        self.assertEqual(len(lines), 1, end)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(end["out"], "", end)


class Perf(Ends):
    @classmethod
    def setUpClass(cls):
        ends = guests.run_in_guests([sys.executable, "-B", __file__, "--inside"], devs=2,
                                    timeout=450, env={"SELMCAST": PROGRAM})
        if ends[0].status != 0:
            raise AssertionError(str(ends))
        cls.said = json.loads(ends[0].stdout)

    def documents(self, ends):
        """Client's and server's JSON of a measurement that went well."""
        for end in ends.values():
            self.assertEqual(end["status"], 0, ends)
        out = [json.loads(ends[end]["out"]) for end in ("client", "server")]
        for document, role in zip(out, ("client", "server")):
            self.assertEqual((document["schema"], document["role"]), (1, role))
        return out

    def test_reliable_operations_move_and_verify(self):
        # Bytes that a repeat of 40 messages verifies: a sample of 8 + 8 + 64 of each send, the
        # memory written (once), the sum of the atomics; a read is checked at the end.
        verified = {"write": 2 * 16384, "write-imm": 2 * 5000, "read": 16384,
                    "send": 2 * 40 * (8 + 8 + 64), "atomic": 2 * 8}
        for op, size in RELIABLE.items():
            with self.subTest(op):
                client, _ = self.documents(self.said["floods"][op])
                self.assertEqual((client["op"], client["size"], client["messages"]), (op, size, 80))
                self.assertEqual(client["bytes_verified"], verified[op])
                for repeat in client["repeats"]:
                    self.assertEqual(repeat["messages"], 40)
                    rate = 40 / repeat["seconds"]
                    self.assertAlmostEqual(repeat["messages_per_s"], rate, delta=rate * 1e-6)
                    self.assertAlmostEqual(repeat["mb_per_s"], rate * size / 1e6,
                                           delta=rate * size / 1e6 * 1e-6)
                    takes = op in ("send", "write-imm")
                    self.assertEqual([r["received"] for r in repeat["receivers"]],
                                     [40 if takes else 0])

    def test_datagrams_are_counted_where_they_arrive(self):
        for op in DATAGRAMS:
            with self.subTest(op):
                client, server = self.documents(self.said["floods"][op])
                received = sum(r["receivers"][0]["received"] for r in client["repeats"])
                self.assertEqual(client["lost"], 80 - received)
                # Slower than it sends, the receiver may lose some, but not most.
                self.assertGreater(received, 40)
                self.assertEqual(client["bytes_verified"], received * (8 + 8 + 64))
                self.assertEqual(server["bytes_verified"], client["bytes_verified"])
                self.assertEqual(client["lost"], server["lost"])

    def test_every_byte_and_several_queue_pairs(self):
        client, _ = self.documents(self.said["floods"]["inline"])
        self.assertTrue(client["inline"])
        self.assertEqual(client["bytes_verified"], 80 * 60)
        client, _ = self.documents(self.said["floods"]["several"])
        self.assertEqual((client["queue_pairs"], client["events"]), (3, True))
        self.assertEqual(client["bytes_verified"], 80 * 9000)

    def test_repeats_of_a_duration(self):
        client, _ = self.documents(self.said["floods"]["seconds"])
        self.assertEqual(len(client["repeats"]), 3)
        for repeat in client["repeats"]:
            self.assertGreaterEqual(repeat["seconds"], 0.3)
        rates = sorted(repeat["mb_per_s"] for repeat in client["repeats"])
        self.assertEqual([client["mb_per_s"][k] for k in ("min", "median", "max")], rates)

    def test_latency_says_what_it_is(self):
        for op in PINGS:
            with self.subTest(op):
                client, _ = self.documents(self.said["pings"][op])
                latency = client["latency_us"]
                whole = op == "read"
                self.assertEqual(latency["of"], "round_trip" if whole else "half_round_trip")
                medians = [latency[k]["median"] for k in ("min", "p50", "p99", "p99_9", "max")]
                self.assertEqual(medians, sorted(medians))
                self.assertGreater(medians[0], 1)
                for repeat in client["repeats"]:
                    self.assertEqual(repeat["messages"] + repeat["lost"],
                                     30)
                    # The sum of the round trips fits into the time that the repeat took.
                    mean = latency["mean"]["min"] * (1 if whole else 2)
                    self.assertLess(mean * 1e-6 * repeat["messages"], 1.01 * max(
                        r["seconds"] for r in client["repeats"]))

    def test_ends_with_other_flags_refuse_by_name(self):
        ends = self.said["other flags"]
        for end in ends.values():
            self.one_line(end, 2, "--size is 64 at the server and 128 at the client")

    def test_what_the_device_cannot_is_one_line(self):
        self.one_line(self.said["pacing"]["client"], 3, "--rate-limit", "cannot pace")
        self.one_line(self.said["pacing"]["server"], 1, "the client gave up", "cannot pace")
        self.one_line(self.said["alone"]["no such device"], 2, "rxe9", "rxe0, rxe1")
        self.one_line(self.said["alone"]["long datagram"], 2, "--size 5000", "4096")

    def test_nobody_there(self):
        self.one_line(self.said["alone"]["nobody"], 1, "no client came", "1.0 s")
        self.one_line(self.said["alone"]["no server"], 1, "no server listens", "18600")

    def test_mckey_and_we_hear_each_other(self):
        said = self.said["mckey"]
        if said is None:
            self.skipTest("no mckey (Debian package rdmacm-utils)")
        for who, end in said.items():
            self.assertEqual(end["status"], 0, (who, end))
        self.assertIn("data transfers complete", said["mckey hears"]["out"])
        heard = json.loads(said["ours hears"]["out"])
        self.assertEqual((heard["role"], heard["messages"], heard["lost"]), ("receiver", 20, 0))


class Refusals(unittest.TestCase):
    """Nothing is started: needs no device."""

    def test_flags_that_cannot_be(self):
        for flags, words in (
                (("--op", "push"), ("--op 'push'", "write-imm")),
                (("--size", "0"), ("--size", "1..")),
                (("--size", "-1"), ("-1", "negative")),
                (("--op", "atomic", "--size", "16"), ("--size 8",)),
                (("--op", "multicast", "--latency", "--size", "8"), ("--op ud",)),
                (("--op", "ud", "--queue-pairs", "2"), ("--queue-pairs",)),
                (("--depth", "4", "--post-list", "8"), ("--post-list", "1..4")),
                (("--depth", "16", "--post-list", "8", "--signal-every", "16"), ("at most 9",)),
                (("--latency", "--events"), ("write wakes nobody",)),
                (("--op", "multicast", "--group", "10.0.0.1"), ("--group",)),
                (("--op", "multicast", "--group", "x"), ("--group", "'x'")),
                (("--alone", "send"), ("--op multicast",)),
                (("--op", "multicast", "--alone", "send"), ("--iterations",)),
                (("--duration", "0"), ("--duration",)),
                (("--timeout", "nan"), ("--timeout",)),
                (("--port", "70000"), ("--port", "65535")),
                (("--transport", "shm"), ("verbs", "selmcast probe")),
                (("--device", ":2"), ("--device",))):
            with self.subTest(flags):
                done = subprocess.run([PROGRAM, "perf", *flags], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=30, check=False)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_a_machine_without_devices(self):
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("this machine has RDMA devices")
        done = subprocess.run([PROGRAM, "perf"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=30, check=False)
        self.assertEqual((done.returncode, done.stdout), (3, ""), done)
        self.assertRegex(done.stderr, r"\Aselmcast: verbs: this machine has no RDMA device.*\n\Z")


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        inside()
    else:
        guests.require()
        unittest.main(verbosity=2)
