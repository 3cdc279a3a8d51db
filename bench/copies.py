#!/usr/bin/env python3
"""What selmcast itself copies of what it receives, by valgrind's callgrind.

    bench/copies.py            in a guest with Soft-RoCE (scripts/rxe-vm); needs valgrind

Two ranks on two devices; one of them runs under callgrind, which counts the instructions of that
process (not the kernel's, where Soft-RoCE does a NIC's work). A job of few rounds is compared with
one of more: what set-up costs is the same in both and falls out of the difference. Printed per byte
of payload received by that rank in the rounds between:

  copying    instructions in memcpy, memmove and mempcpy that selmcast's functions called; copying
             every byte once would cost 1/32 (vector loop) to 1 (rep movsb, which callgrind counts
             by bytes)
  all        instructions of the whole process: checksum, digest, arithmetic, posting, polling

Instructions do not depend on how busy the machine is, but for the loops that poll.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build" / "release" / "selmcast"
POLICY = "select=all mix=average"
FEW, MORE = 2, 6


def worker(rank, rounds, port, count):
    return (f"{PROGRAM} worker --rank {rank} --world 2 --rendezvous tcp://g0:{port} "
            f"--device rxe{rank} --params-bytes {4 * count} --rounds {rounds} --transport verbs "
            f"--mtu 1076 --timeout 90 --links $RXE_XCHG/links.json --init seed:5 "
            f"--policy '{POLICY}'")


def guest_script(count):
    lines = []
    for rounds in (FEW, MORE):
        name, port = f"$RXE_XCHG/{rounds}", 7000 + rounds
        lines.append(
            f"echo '{POLICY}: {rounds} rounds' >&2\n"
            f"{worker(0, rounds, port, count)} --json {name}.json > {name}.peer 2>&1 & peer=$!\n"
            f"valgrind --tool=callgrind --callgrind-out-file={name}.callgrind "
            f"{worker(1, rounds, port, count)} > {name}.out 2>&1\n"
            f"status=$?; wait $peer && [ $status = 0 ] || {{ cat {name}.*; exit 1; }}\n")
    return "".join(lines)


def instructions(path):
    """(all, those of copying functions called by selmcast's functions)"""
    text = subprocess.run(
        ["callgrind_annotate", "--tree=caller", "--inclusive=yes", "--threshold=100", str(path)],
        capture_output=True, text=True, check=True).stdout
    line = re.compile(r"^ *([\d,]+) \([ \d.]+%\) +([<*]) +(.*)$", re.MULTILINE)
    every = int(re.search(r"^ *([\d,]+) .*PROGRAM TOTALS", text, re.MULTILINE)[1].replace(",", ""))
    copying, callers = 0, []
    for number, kind, what in line.findall(text):
        if kind == "<":
            callers.append((int(number.replace(",", "")), what))
            continue
        if re.search(r":(__)?(memcpy|memmove|mempcpy)", what):
            copying += sum(count for count, caller in callers if "selmcast::" in caller)
        callers = []
    return every, copying


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=200_003)
    parser.add_argument("--limit", type=int, default=900, help="seconds for all of it")
    options = parser.parse_args()
    for needed in ("valgrind", "callgrind_annotate"):
        if shutil.which(needed) is None:
            sys.exit(f"copies.py: no {needed}: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="selmcast-copies-") as temporary:
        folder = pathlib.Path(temporary)
        links = {"tx_kbps": [200_000] * 2, "rx_kbps": [200_000] * 2}
        (folder / "links.json").write_text(json.dumps(links), encoding="utf-8")
        done = subprocess.run(
            [ROOT / "scripts" / "rxe-vm", "--devs", "2", "--timeout", str(options.limit),
             "--exchange", folder, "--", "bash", "-c", guest_script(options.elements)],
            stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            sys.exit(f"copies.py: rxe-vm ended with status {done.returncode}")
        print("Soft-RoCE in an emulated guest; no NIC. Per byte received, between "
              f"{FEW} and {MORE} rounds of {4 * options.elements} bytes:")
        end = {}
        for rounds in (FEW, MORE):
            document = json.loads((folder / f"{rounds}.json").read_text(encoding="utf-8"))
            assert document["verified"]
            every, copying = instructions(folder / f"{rounds}.callgrind")
            received = sum(one["rx_payload_bytes"][1] for one in document["rounds"])
            end[rounds] = (received, copying, every)
        received, copying, every = (more - few for few, more in zip(end[FEW], end[MORE]))
        print(f"{received} bytes, copying {copying / received:.5f}, all {every / received:.2f}")


if __name__ == "__main__":
    main()
