#!/usr/bin/env python3
"""What selmcast itself copies of what it receives, by its own counters and by valgrind's callgrind.

    bench/copies.py            in a guest with Soft-RoCE (scripts/rxe-vm); needs valgrind

Two ranks on two devices; one of them runs under callgrind, which counts the instructions of that
process (not the kernel's, where Soft-RoCE does a NIC's work). A row is a job of few and one of more
rounds: what set-up costs is the same in both and falls out of the difference. Columns, per byte of
payload received by that rank in the rounds between:

  in place   share that the device put in place (counter landed_bytes)
  copied     copied by selmcast (counter copied_bytes)
  copying    instructions in memcpy, memmove and mempcpy that selmcast's functions called; copying a
             byte costs 1/32 of one (vector loop) to 1 (rep movsb, which callgrind counts by bytes)
  all        instructions of the whole process: checksum, digest, arithmetic, posting, polling

The last row copies everything and shows that the columns would tell. Instructions do not depend on
how busy the machine is, but for the loops that poll.
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
ROWS = {
    "put in place": "select=all mix=cumulative",
    "added to the sum": "select=all mix=average",
    "copied into place": "select=all mix=cumulative route=unicast",
}
FEW, MORE = 2, 6


def worker(rank, policy, rounds, port, count):
    return (f"{PROGRAM} worker --rank {rank} --world 2 --rendezvous tcp://g0:{port} "
            f"--device rxe{rank} --params-bytes {4 * count} --rounds {rounds} --transport verbs "
            f"--mtu 1076 --timeout 90 --links $RXE_XCHG/links.json --init seed:5 "
            f"--policy '{policy}'")


def guest_script(count):
    lines = []
    for row, policy in enumerate(ROWS.values()):
        for rounds in (FEW, MORE):
            name, port = f"$RXE_XCHG/{row}-{rounds}", 7000 + 10 * row + rounds
            lines.append(
                f"echo '{policy}: {rounds} rounds' >&2\n"
                f"{worker(0, policy, rounds, port, count)} --json {name}.json "
                f"> {name}.peer 2>&1 & peer=$!\n"
                f"valgrind --tool=callgrind --callgrind-out-file={name}.callgrind "
                f"{worker(1, policy, rounds, port, count)} > {name}.out 2>&1\n"
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
        print(f"{'':18} {'bytes':>9} {'in place':>9} {'copied':>7} {'copying':>8} {'all':>6}")
        for row, name in enumerate(ROWS):
            end = {}
            for rounds in (FEW, MORE):
                document = json.loads((folder / f"{row}-{rounds}.json").read_text(encoding="utf-8"))
                assert document["verified"]
                every, copying = instructions(folder / f"{row}-{rounds}.callgrind")
                counted = [sum(one[key][1] for one in document["rounds"]) for key in
                           ("rx_payload_bytes", "landed_bytes", "copied_bytes")]
                end[rounds] = [*counted, copying, every]
            received, landed, copied, copying, every = (
                more - few for few, more in zip(end[FEW], end[MORE]))
            print(f"{name:18} {received:9} {landed / received:9.4f} {copied / received:7.4f} "
                  f"{copying / received:8.5f} {every / received:6.2f}")


if __name__ == "__main__":
    main()
