#!/usr/bin/env python3
"""Bad input to run, worker and plan: one line that says what and where, exit 2 (or 1, 3 as stated),
nothing left running."""

import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = os.environ.get("SELMCAST", "build/release/selmcast")
BYTES = ["--params-bytes", "4000"]


def selmcast(*arguments, text="", timeout=60):
    return subprocess.run([PROGRAM, *arguments], input=text, capture_output=True, text=True,
                          timeout=timeout, check=False)


class BadInput(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="selmcast-bad-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refuse(self, arguments, *words, status=2, text=""):
        done = selmcast(*arguments, text=text)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        lines = [l for l in done.stderr.splitlines() if not l.startswith("selmcast: note:")]
        self.assertEqual(len(lines), 1, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def run_with(self, *arguments):
        return ["run", "--workers", "4", *arguments]

    def test_policies(self):
        for policy, words in {
            "select=selmcast:4": ("p = 4", "3 others"),
            "select=selmcast:0": ("select",),
            "select=nearest": ("nearest", "all, selmcast:p"),
            "select=all select=all": ("select",),
            "colour=red": ("colour", "axes"),
            "route=ring": ("route", "later"),
            "pace=stages": ("pace=stages", "osp2"),
            "route=ps:9": ("route=ps:9", "4 workers"),
            "order=priority": ("order=priority", "mix=sgd"),
            "pace=ssp:2": ("pace=ssp", "selmcast train"),
            "pace=async": ("async", "selmcast train"),
            "pace=ssp": ("number of steps", "pace=ssp:2"),
            "select=selmcast:2 mix=sgd": ("sgd",),
        }.items():
            with self.subTest(policy=policy):
                self.refuse(self.run_with(*BYTES, "--policy", policy), *words)

    def test_numbers(self):
        for arguments, words in (
            (["--params-bytes", "4001"], ("--params-bytes", "4001")),
            (["--params-bytes", "-4"], ("--params-bytes",)),
            (["--params-bytes", "17179869180", "--policy", "losp"],
             ("mix=compensate", "4294967294 elements")),
            ([*BYTES, "--rounds", "0"], ("--rounds",)),
            ([*BYTES, "--rounds", "many"], ("--rounds",)),
            ([*BYTES, "--loss", "1.5"], ("--loss", "1.5")),
            ([*BYTES, "--loss", "nan"], ("--loss",)),
            ([*BYTES, "--timeout", "-1"], ("--timeout", "-1")),
            ([*BYTES, "--mtu", "10"], ("--mtu", "10")),
            ([*BYTES, "--init", "seed:x"], ("--init", "seed:S")),
            (["--model", "resnet51"], ("resnet51", "resnet50")),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(self.run_with(*arguments), *words)
        self.refuse(["run", "--workers", "0", *BYTES], "--workers", "0")

    def test_counts_are_not_negative(self):
        worker = self.worker(0, 1, f"file:{self.folder}/store")
        for command, option in (
            (["run", *BYTES], "--seed"), (["run", *BYTES], "--rounds"), (["run"], "--params-bytes"),
            (["run", *BYTES], "--workers"), (["run", *BYTES], "--mtu"), (worker, "--seed"),
            (["train"], "--seed"), (["train"], "--epochs"), (["train"], "--batch"),
            (["train"], "--workers"), (["train"], "--hidden"), (["train"], "--curve-steps"),
            (["train"], "--mtu"), (["probe"], "--workers"), (["sim"], "--seed"),
        ):
            with self.subTest(command=command[0], option=option):
                self.refuse([*command, option, "-5"], option, "-5", "negative")
        self.refuse(["train", "--seed", "18446744073709551616"], "--seed", "64 bits")

    def test_an_option_is_not_the_value_of_another(self):
        for command, option in (("run", "--json"), ("train", "--plot"), ("worker", "--dump"),
                                ("perf", "--device")):
            with self.subTest(command=command):
                self.refuse([command, option, "--policy", "select=all"], option, "--policy",
                            "a value is missing")
        self.assertFalse(os.path.exists("--policy"))

    def test_files_that_clash(self):
        here = str(self.folder / "same")
        other = f"{self.folder}/./same"
        self.refuse(["train", "--json", here, "--plot", other], "--json, --plot", "two files")
        self.refuse(["train", "--plot", here, "--write-trace", here], "--plot, --write-trace")
        self.file("same", "of an earlier run")
        os.symlink(here, self.folder / "link")
        self.refuse(["train", "--json", here, "--write-trace", f"{self.folder}/link"],
                    "--json, --write-trace")
        trace = self.file("trace.csv", "rank,step,compute_ms\n0,0,1\n1,0,1\n")
        os.link(trace, self.folder / "hard")
        self.refuse(["train", "--workers", "2", "--policy", "select=all", "--compute-trace", trace,
                     "--write-trace",
                     f"{self.folder}/hard"], "--write-trace", "--compute-trace")
        self.assertTrue(os.path.getsize(trace))
        links = self.file("links.json", '{"tx_kbps":[9,9],"rx_kbps":[9,9]}')
        self.refuse(["run", "--workers", "2", *BYTES, "--links", links, "--json", links,
                     "--policy", "select=all"], "--json", "--links")
        self.refuse(["probe", "--workers", "2", "--links", here, "--json", here],
                    "--json, --links")
        self.refuse(["sim", "--experiment", "bsp", "--csv", here, "--svg", other], "--csv, --svg")
        self.refuse(["train", "--json", "-", "--plot", "-"], "standard output")

    def test_training(self):
        for arguments, words in (
            (["--model", "resnet50"], ("--model", "mlp, softmax or cnn")),
            (["--data", "generated:12"], ("--data", "1000..1000000")),
            (["--data", "/nonexistent"], ("/nonexistent",)),
            (["--hidden", "0"], ("--hidden",)),
            (["--slowdown", "1,2"], ("--slowdown", "2 factors")),
            (["--compute-ms", "nan"], ("--compute-ms",)),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(["train", *arguments], *words)
        for content, words in {
            "": ("line 1", "header"),
            "rank,step\n0,0\n": ("line 1", "header"),
            "rank,step,compute_ms\n0,0,-1\n": ("line 2", "compute_ms", "-1", "0..60000"),
            "rank,step,compute_ms\n0,0,1\n9,0,1\n": ("line 3", "rank", "0..1"),
            "rank,step,compute_ms\n0,0,1\n": ("rank 1",),
            b"rank,step,compute_ms\n0,0,\xff\x00\n": ("line 2", "compute_ms"),
        }.items():
            with self.subTest(content=content):
                path = self.file("trace.csv", content)
                self.refuse(["train", "--workers", "2", "--compute-trace", path], "trace.csv",
                            *words)
        path = self.file("trace.csv", "rank,step,compute_ms\n0,0,1\n1,0,1\n")
        self.refuse(["train", "--workers", "2", "--compute-trace", path, "--compute-ms", "1"],
                    "--compute-ms, --compute-trace")
        self.refuse(["train", "--workers", "2", "--compute-trace", str(self.folder)], "folder")

    def test_links(self):
        for content, words in {
            '{"tx_kbps":[1,2,NaN,4],"rx_kbps":[1,2,3,4]}': ("JSON",),
            '{"tx_kbps":[1,2,-3,4],"rx_kbps":[1,2,3,4]}': ("tx_kbps[2]", "-3"),
            '{"tx_kbps":[1,2,3.5,4],"rx_kbps":[1,2,3,4]}': ("tx_kbps[2]", "3.5"),
            '{"tx_kbps":[1,2,3],"rx_kbps":[1,2,3,4]}': ("tx_kbps",),
            '{"tx_kbps":[1e300,2,3,4],"rx_kbps":[1,2,3,4]}': ("tx_kbps[0]",),
            '{"rx_kbps":[1,2,3,4]}': ("tx_kbps",),
            '{"tx_kbps":[0,9,9,9],"rx_kbps":[9,9,9,9]}': ("rank 0", "transmit"),
            "": ("JSON",),
        }.items():
            with self.subTest(content=content):
                path = self.file("links.json", content)
                self.refuse(self.run_with(*BYTES, "--links", path), "links.json", *words)
        self.refuse(self.run_with(*BYTES, "--links", "/nonexistent"), "/nonexistent")

    def test_safetensors(self):
        def image(header, data=b"", length=None):
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            return (len(text) if length is None else length).to_bytes(8, "little") + text + data

        tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for name, content in {
            "short": b"1234567",
            "truncated header": image({"a": tensor}, length=4000),
            "huge header": image({"a": tensor}, length=1 << 62),
            "data missing": image({"a": tensor}, b"1234"),
            "lying shape": image({"a": {**tensor, "shape": [3]}}, b"12345678"),
            "overflow": image({"a": {**tensor, "shape": [1 << 40, 1 << 40]}}, b"12345678"),
            "overlap": image({"a": tensor, "b": tensor}, b"12345678"),
            "negative": image({"a": {**tensor, "data_offsets": [-8, 8]}}, b"12345678"),
            "deep": image(b"[" * 100_000),
            "not JSON": image(b"hello"),
        }.items():
            with self.subTest(name):
                path = self.file("x.safetensors", content)
                self.refuse(self.run_with("--params", path), "x.safetensors")

    def test_transport_and_interface(self):
        self.refuse(self.run_with(*BYTES, "--transport", "tcp"), "tcp",
                    "auto, shm, uring, verbs, sim")
        worker = self.worker(0, 1, f"file:{self.folder}/store")[1:-2]
        for command in (["probe"], worker):
            with self.subTest(command=command[0]):
                self.refuse([*command, "--transport", "sim"], "sim", "auto", "shm", "uring")
                self.refuse([*command, "--transport", "tcp"], "tcp", "auto, shm, uring, verbs")
                self.assertNotIn("sim", selmcast(*command, "--transport", "tcp").stderr)
        self.refuse(self.run_with(*BYTES, "--interface", "nope0"), "nope0", "lo")
        self.refuse(self.run_with(*BYTES, "--json", "/nonexistent/x"), "/nonexistent/x")
        self.refuse(["run", "--workers", "2", *BYTES, "--transport", "sim", "--policy", "losp"],
                    "mix=compensate", "shm or uring")
        self.refuse(["train", "--compute-ms", "-1"], "--compute-ms", "0..60000")
        self.refuse(["train", "--lr-decay", "1.5"], "--lr-decay", "0 to 1")

    def test_interface_that_would_do_nothing(self):
        for transport, command in (("shm", self.run_with(*BYTES)), ("sim", self.run_with(*BYTES)),
                                   ("shm", ["probe"]), ("shm", ["train"]),
                                   ("shm", self.worker(0, 1, f"file:{self.folder}/x")[1:-2])):
            with self.subTest(command=command[0], transport=transport):
                command = [*command, "--transport", transport]
                self.refuse([*command, "--interface", "lo"], "--interface", "lo", transport)
        done = selmcast("run", "--workers", "2", *BYTES, "--policy", "select=all", "--rounds", "1",
                        "--transport", "auto", "--interface", "lo")
        self.assertIn(done.returncode, (0, 3), done.stderr)

    def test_probe(self):
        self.refuse(["probe", "--json", "-", "--links", "-"], "--json", "--links")
        self.refuse(["probe", "--workers", "1"], "--workers", "1")
        self.refuse(["probe", "--transport", "sim"], "sim")
        for transport in ("auto", "shm", "uring"):
            self.refuse(["probe", "--transport", transport, "--timestamps"],
                        "--timestamps", "--transport verbs")

    def test_plan(self):
        good = {"p": 2, "tx_kbps": [9, 9, 9], "rx_kbps": [9, 9, 9]}
        for change, words in (
            ({"p": 3}, ("p",)), ({"p": [2, 2]}, ("p",)), ({"tx_kbps": [9, -1, 9]}, ("tx_kbps",)),
            ({"fanout": "broadcast"}, ("fanout",)), ({"speed": 1}, ("speed",)),
            ({"forced": [[0, 0]]}, ("forced",)),
            ({"forbidden": [[0, 1]]}, ("sender 0", "forbidden")),
            ({"p": 1, "forced": [[0, 1]], "forbidden": [[0, 1]]}, ("forbidden[0]", "forced")),
            ({"rx_kbps": [0, 0, 0]}, ()),
        ):
            with self.subTest(change=change):
                self.refuse(["plan"], *words, text=json.dumps({**good, **change}))
        self.refuse(["plan"], text="{")

    def worker(self, rank, world, address, *extra):
        return [PROGRAM, "worker", "--rank", str(rank), "--world", str(world), "--rendezvous",
                address, *BYTES, "--timeout", "3", "--transport", "shm", *extra]

    def test_worker_alone(self):
        self.refuse(self.worker(4, 4, "file:/tmp/x")[1:], "--rank", "4")
        self.refuse(self.worker(1, 4, "udp://x")[1:], "udp://x", "tcp://")
        begin = time.monotonic()
        self.refuse(self.worker(1, 4, f"file:{self.folder}/none")[1:], "rank 1", status=1)
        self.assertLess(time.monotonic() - begin, 6)

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.refuse(self.worker(0, 2, f"tcp://127.0.0.1:{port}", "--policy", "select=all")[1:],
                        str(port), "in use", "--external-store")
            self.refuse(["store", f"tcp://127.0.0.1:{port}", "--world", "2"], str(port), "in use")

    def test_store(self):
        self.refuse(["store", "--world", "2"], "address")
        self.refuse(["store", "udp://x", "--world", "2"], "udp://x", "tcp://")
        self.refuse(["store", f"file:{self.folder}/x", "--world", "0"], "0")
        self.refuse(self.worker(0, 2, f"file:{self.folder}/x", "--policy", "select=all",
                                "--external-store", "--json", "-")[1:], "--json", "store")

    def pair(self, first, second):
        """Starts both; returns their (status, last line)."""
        processes = [subprocess.Popen(c, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True) for c in (first, second)]
        ends = []
        for process in processes:
            _, errors = process.communicate(timeout=30)
            ends.append((process.returncode, errors.strip().splitlines()[-1] if errors else ""))
        return ends

    def test_ranks_that_disagree(self):
        address = f"file:{self.folder}/store"
        policy = ["--policy", "select=all"]
        for extra, words in (
            (["--policy", "select=selmcast:1"], ("policy",)),
            (policy + ["--params-bytes", "8000"], ("8000", "4000")),
        ):
            with self.subTest(extra=extra):
                second = self.worker(1, 2, address, *extra)
                if "--params-bytes" in extra:
                    del second[second.index("--params-bytes"):second.index("--params-bytes") + 2]
                ends = self.pair(self.worker(0, 2, address, *policy), second)
                self.assertTrue(all(status in (1, 2) for status, _ in ends), ends)
                self.assertTrue(any(status == 2 and all(w in line for w in words)
                                    for status, line in ends), ends)

    def test_world_size_that_does_not_match(self):
        address = f"file:{self.folder}/store"
        ends = self.pair(self.worker(0, 2, address, "--policy", "select=all"),
                         self.worker(1, 3, address, "--policy", "select=all"))
        self.assertEqual(ends[1][0], 2, ends)
        self.assertIn("3", ends[1][1])
        self.assertIn("2", ends[1][1])
        self.assertEqual(ends[0][0], 1, ends)
        self.assertIn("rank 1", ends[0][1])

    def test_a_failed_job_leaves_no_old_result(self):
        """A dump that cannot be written fails the job at its end; bad input starts nothing."""
        result = pathlib.Path(self.file("result.json", "{}"))
        (self.folder / "rank-0.f32.partial").mkdir()
        dump = ["--dump", str(self.folder), "--policy", "select=all"]
        run = ["run", "--workers", "1", *BYTES, "--transport", "shm", *dump,
               "--json", str(result)]
        worker = self.worker(0, 1, f"file:{self.folder}/store", *dump, "--json", str(result))[1:]
        for job in (run, worker):
            with self.subTest(job[0]):
                result.write_text("{}")
                done = selmcast(*job, "--rounds", "0")
                self.assertEqual((done.returncode, result.read_text()), (2, "{}"), done.stderr)
                done = selmcast(*job)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("--dump", done.stderr)
                self.assertEqual(list(self.folder.glob("result.json*")), [])
        (self.folder / "rank-0.f32.partial").rmdir()
        self.assertEqual(selmcast(*run).returncode, 0)
        self.assertEqual(json.loads(result.read_text())["schema"], 1)

    def test_more_than_the_memory(self):
        """The whole machine's, refused before anything starts; then that which a limit leaves."""
        name = ["--dump", str(self.folder / "dump")]
        huge = ["--params-bytes", "10000000000000", *name]
        self.refuse(["run", "--workers", "8", *huge], "10000000000000 bytes", "8 ranks", status=3)
        self.refuse(["run", "--workers", "8", "--transport", "sim", *huge], "8 ranks", status=3)
        for size in (2_000_000_000, 600_000_000):  # No parameters; no accumulator beside them.
            for start in (["run", "--workers", "1"],
                          ["worker", "--rank", "0", "--world", "1", "--rendezvous",
                           f"file:{self.folder}/store"]):
                with self.subTest(size=size, start=start[0]):
                    done = subprocess.run(
                        [PROGRAM, *start, "--policy", "select=all", "--transport", "shm",
                         "--params-bytes", str(size), *name],
                        capture_output=True, text=True, timeout=60, check=False,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2))
                    self.assertEqual(done.returncode, 3, done.stderr)
                    last = done.stderr.splitlines()[-1]
                    self.assertTrue(last.startswith("selmcast: "), last)
                    self.assertIn(f"{size} bytes", last)
        left = subprocess.run(["pgrep", "-f", name[1]], stdout=subprocess.PIPE, check=False).stdout
        self.assertEqual(left, b"")

    def test_rank_0_that_fails_by_itself(self):
        """It says why. The other one may have been done a moment before the store went."""
        (self.folder / "rank-0.f32.partial").mkdir()
        address = f"file:{self.folder}/store"
        job = ["--policy", "select=all", "--dump", str(self.folder)]
        first, second = self.pair(self.worker(0, 2, address, *job),
                                  self.worker(1, 2, address, *job))
        self.assertEqual(first[0], 1, (first, second))
        self.assertIn("--dump", first[1])
        self.assertIn("rank-0.f32", first[1])
        self.assertNotIn("--dump", second[1])
        if second[0] != 0:
            self.assertIn("rank 0", second[1])

    def test_the_store_that_went_with_rank_0(self):
        ranks = []
        for rank in (0, 1):
            job = ["--policy", "select=all", "--rounds", "1000000"]
            command = self.worker(rank, 2, f"file:{self.folder}/store", *job)
            command[command.index("4000")] = "8000000"
            ranks.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        time.sleep(2.0)
        self.assertEqual([rank.poll() for rank in ranks], [None, None])
        ranks[0].kill()
        ranks[0].communicate(timeout=20)
        _, errors = ranks[1].communicate(timeout=20)
        self.assertEqual(ranks[1].returncode, 1, errors)
        for words in ("rank 1", "store", "rank 0", "its own message"):
            self.assertIn(words, errors.splitlines()[-1])

    def test_worker_of_another_version(self):
        """A store that answers in another protocol version."""
        path = f"{self.folder}/store"
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()
        server.settimeout(20)

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"\x05\x00\x00\x00HTTP/1.1 400")

        thread = threading.Thread(target=answer)
        thread.start()
        done = selmcast(*self.worker(1, 2, f"file:{path}", "--policy", "select=all")[1:])
        thread.join()
        server.close()
        self.assertIn(done.returncode, (1, 2), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
