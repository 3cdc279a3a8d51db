#!/usr/bin/env python3
"""`selmcast perf` beside perftest: same devices, MTU, depth, post list, iterations, in turns.

    bench/verbs_perf.py                          in a guest with Soft-RoCE (scripts/rxe-vm)
    bench/verbs_perf.py --here DEV,DEV [--server HOST]   two devices (or ports) of this machine
    bench/verbs_perf.py --pairs 31 --rows write-4096,send-lat

A pair is one run of each program; which goes first alternates, so that what else the machine does
hits both alike. A row shows the medians of both programs and the median over pairs of the ratio
ours / perftest, with the interval that holds the true median with at least 95 % (order statistics,
no assumption about the distribution). Server and client are pinned to a core each, in both
programs. perftest does not warm up, so ours does not either (--no-warm-up); it ignores retries, so
here we do.

Soft-RoCE's senders time out when a virtual CPU does not get its share of the host (counter
completer_retry_err): each costs 70 ms or more, a run of one second then varies tenfold. Leave the
machine alone meanwhile; an interval from .2 to 2 says only that it was not.

Neither figure is a statement about RDMA NICs where the guest is emulated: see README.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("SELMCAST", str(ROOT / "build" / "release" / "selmcast"))

# name: perftest program, our flags, size, iterations, depth, post list, completions every, field.
BW, RATE, LAT = "MB/s", "messages/s", "us"
ROWS = {
    "write-4096": ("ib_write_bw", "write", 4096, 1200, 32, 1, 16, BW),
    "write-65536": ("ib_write_bw", "write", 65536, 120, 32, 1, 16, BW),
    "write-1048576": ("ib_write_bw", "write", 1048576, 10, 8, 1, 4, BW),
    "send-4096": ("ib_send_bw", "send", 4096, 1200, 32, 1, 16, BW),
    "send-65536": ("ib_send_bw", "send", 65536, 120, 32, 1, 16, BW),
    "send-1048576": ("ib_send_bw", "send", 1048576, 10, 8, 1, 4, BW),
    "write-rate-64": ("ib_write_bw", "write", 64, 4000, 64, 16, 16, RATE),
    "send-rate-64": ("ib_send_bw", "send", 64, 4000, 64, 16, 16, RATE),
    "write-lat-8": ("ib_write_lat", "write", 8, 600, 0, 1, 0, LAT),
    "send-lat-8": ("ib_send_lat", "send", 8, 600, 0, 1, 0, LAT),
}
TARGETS = {BW: (">=", 0.95), RATE: (">=", 1.0), LAT: ("<=", 1.1)}


def pinned(core, words):
    return ["taskset", "-c", str(core % os.cpu_count()), *map(str, words)]


def pair_of(server, client, timeout=60):
    """Runs a server and a client to their ends; the client's output. perftest's client does not
    wait for its server, so it is tried again."""
    with subprocess.Popen(pinned(0, server), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        try:
            for _ in range(40):
                time.sleep(0.25)
                done = subprocess.run(pinned(1, client), capture_output=True, text=True,
                                      timeout=timeout, check=False)
                if done.returncode == 0 or process.poll() is not None:
                    break
            said = process.communicate(timeout=timeout)[0]
        finally:
            process.kill()
    if done.returncode != 0 or process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, client))}: {done.stdout}{done.stderr}{said}")
    return done.stdout


@functools.cache
def gid_index(device):
    """Of the device's first RoCE v2 GID of an IPv4 address; 0 on InfiniBand."""
    port = pathlib.Path(f"/sys/class/infiniband/{device}/ports/1")
    for path in sorted((port / "gids").iterdir(), key=lambda p: int(p.name)):
        if path.read_text().startswith("0000:0000:0000:0000:0000:ffff:"):
            kind = port / "gid_attrs" / "types" / path.name
            if "v2" in kind.read_text():
                return path.name
    return "0"


@functools.cache
def mtu(device):
    """Of the device's port; perftest is told, since its own choice differs between versions."""
    said = subprocess.run(["ibv_devinfo", "-d", device], capture_output=True, text=True,
                          check=True).stdout
    return re.search(r"active_mtu:\s+(\d+)", said).group(1)


def perftest(row, devices, host):
    program, _, size, iterations, depth, post_list, every, unit = row
    words = [[program, "-d", d, "-x", gid_index(d), "-s", size, "-n", iterations, "-F",
              "-m", min(mtu(device) for device in devices)] for d in devices]
    for one in words:
        one += ["-I", 0] if unit == LAT else ["-t", depth, "-Q", every, "-N"]
        one += ["-l", post_list] if post_list > 1 else []
    out = pair_of(words[0], [*words[1], host])
    numbers = re.findall(rf"^\s*{size}\s+{iterations}\s+(.*)$", out, re.MULTILINE)
    if not numbers:
        raise RuntimeError(f"{program} printed no figure: {out}")
    fields = [float(field) for field in numbers[0].split()]
    # lat: min, max, typical (the median), ...; bw: peak, average in MiB/s, million messages/s.
    return {LAT: lambda: fields[2], BW: lambda: fields[1] * 1.048576,
            RATE: lambda: fields[2] * 1e6}[unit]()


def ours(row, devices, host):
    _, op, size, iterations, depth, post_list, every, unit = row
    flags = ["--op", op, "--size", size, "--timeout", 30, "--accept-counters"]
    flags += ["--latency"] if unit == LAT else ["--depth", depth]
    client = ["--iterations", iterations, "--repeats", 1, "--no-warm-up", "--json", "-"]
    client += [] if unit == LAT else ["--post-list", post_list, "--signal-every", every]
    out = pair_of([PROGRAM, "perf", "--device", devices[0], *flags],
                  [PROGRAM, "perf", host, "--device", devices[1], *flags, *client])
    result = json.loads(out)
    at = {LAT: lambda: result["latency_us"]["p50"], BW: lambda: result["mb_per_s"],
          RATE: lambda: result["messages_per_s"]}[unit]()
    return at["median"], result["clean"]


def inside(options):
    """Where the devices are: prints a line of JSON per pair."""
    devices = options.here.split(",")
    for number in range(options.pairs):  # A pair of each row in turn: a time limit cuts evenly.
        for name in options.rows.split(","):
            turns = {}
            for who in ("perftest", "ours") if number % 2 else ("ours", "perftest"):
                try:
                    if who == "ours":
                        turns[who], turns["clean"] = ours(ROWS[name], devices, options.server)
                    else:
                        turns[who] = perftest(ROWS[name], devices, options.server)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    turns["failed"] = who
                    print(f"{name}, pair {number}: {error}", file=sys.stderr, flush=True)
            print(json.dumps({"row": name, **turns}), flush=True)


def median_interval(values, confidence=0.95):
    """Order statistics around the median that hold it with at least `confidence`: the binomial
    distribution of how many values lie below the true median."""
    values = sorted(values)
    n = len(values)
    outside = 0.0
    cut = 0
    while cut < n // 2:
        outside += 2 * math.comb(n, cut) / 2 ** n
        if outside > 1 - confidence:
            break
        cut += 1
    return (values[cut - 1], values[n - cut]) if cut > 0 else (values[0], values[-1])


def in_guest(options):
    script = [ROOT / "scripts" / "rxe-vm", "--devs", 2, "--cpus", 2, "--timeout", options.limit,
              "--", sys.executable, "-B", __file__, "--here", options.guest_devices,
              "--pairs", options.pairs, "--rows", options.rows, "--raw"]
    done = subprocess.run([str(word) for word in script], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"rxe-vm: status {done.returncode}", file=sys.stderr)
    return done.stdout


def facts(where):
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    load = os.getloadavg()
    return (f"{where}; {model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, "
            f"Linux {platform.release()}, load {load[0]:.1f} {load[1]:.1f} {load[2]:.1f}")


def table(lines, where):
    pairs = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    print(facts(where) + "\n")
    print("| row | ours | perftest | unit | pairs (failed, with retries) | ours / perftest, "
          "median [interval] | target |")
    print("|---|---|---|---|---|---|---|")
    for name in ROWS:
        of_row = [p for p in pairs if p["row"] == name]
        # perftest prints two decimals: a run that stalled is 0.00.
        good = [p for p in of_row if "failed" not in p and p["perftest"] > 0]
        if not good:
            continue
        unit = ROWS[name][-1]
        ratios = [p["ours"] / p["perftest"] for p in good]
        middle = statistics.median(ratios)
        low, high = median_interval(ratios)
        sign, bound = TARGETS[unit]
        met = middle >= bound if sign == ">=" else middle <= bound
        print(f"| {name} | {statistics.median(p['ours'] for p in good):.4g} | "
              f"{statistics.median(p['perftest'] for p in good):.4g} | {unit} | {len(good)} "
              f"({len(of_row) - len(good)}, {sum(not p['clean'] for p in good)}) | "
              f"{middle:.3f} [{low:.3f}, {high:.3f}] | {sign} {bound}: "
              f"{'met' if met else 'missed'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--rows", default=",".join(ROWS), help="default: all")
    parser.add_argument("--here", help="devices of server and client; default: a guest's")
    parser.add_argument("--guest-devices", default="rxe0,rxe0", help="or rxe0,rxe1: over a link, "
                        "where Soft-RoCE loses packets and both programs may stall")
    parser.add_argument("--server", default="127.0.0.1", help="with --here, TCP address")
    parser.add_argument("--limit", type=int, default=1500, help="seconds, of the guest")
    parser.add_argument("--raw", action="store_true", help="pairs as lines of JSON")
    options = parser.parse_args()
    unknown = set(options.rows.split(",")) - set(ROWS)
    if unknown:
        parser.error(f"unknown rows {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if options.raw:
        inside(options)
        return
    if options.here:
        lines = subprocess.run([sys.executable, "-B", __file__, *sys.argv[1:], "--raw"],
                               stdout=subprocess.PIPE, text=True, check=True).stdout
        table(lines, f"devices {options.here}")
    else:
        table(in_guest(options), "Soft-RoCE in an emulated guest of 2 virtual CPUs")


if __name__ == "__main__":
    main()
