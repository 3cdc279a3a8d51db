#!/usr/bin/env python3
"""What an exchange costs the processor, and how long it takes: two builds, and gloo, in turns.

    bench/exchange_cost.py [--before OTHER/selmcast] [--gloo]

All ranks are processes of this host. Each row is one transport, number of ranks and policy; each
repeat runs every build once with few and once with more rounds, in an order that turns, and what is
counted is the difference, so that start-up falls out. Columns:

  CPU s/GB   processor time of all processes (user and system, from wait4) per GB of payload that
             was received, summed over the ranks; of gloo: per GB that our policy would deliver
  ms         a round's time, the median of its rounds (the slowest rank's, rounds after the first)
  ratio      to --before's in the same repeat, median over the repeats; with gloo: to gloo's

in brackets the least and the most over the repeats. Processor time is the thread's own, but what
others do to shared caches and memory is in it; times depend on idle cores. --gloo needs Debian's
python3-torch (torch.distributed, backend gloo, all_reduce of the same bytes over loopback).
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FEW = 2
POLICIES = {
    "average": "select=all mix=average",
    "sgd": "select=all mix=sgd",
    "sgd-sharded": "select=all mix=sgd route=ps:{ranks}",
}
KBPS = 100_000_000  # Links that bound nothing.

GLOO = """
import sys, time, torch, torch.distributed as dist
rank, world, elements, rounds = (int(a) for a in sys.argv[1:5])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[5], rank=rank, world_size=world)
data = torch.full((elements,), 1.0 + rank)
took = []
for _ in range(rounds):
    dist.barrier()
    begin = time.monotonic()
    dist.all_reduce(data)
    data /= world
    took.append(1e3 * (time.monotonic() - begin))
if rank == 0:
    print(*took)
"""


def machine():
    model = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, load {load}"


def children(commands, environment=None):
    """Runs them side by side; (processor seconds of all, output of the first)."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment) for command in commands]
    before = os.times()
    outputs = [process.communicate() for process in running]
    after = os.times()
    for process, (out, err) in zip(running, outputs):
        if process.returncode != 0:
            sys.exit(f"{process.args}: status {process.returncode}\n{out}{err}")
    cpu = (after.children_user - before.children_user
           + after.children_system - before.children_system)
    return cpu, outputs[0][0]


def selmcast(program, folder, row, rounds, options):
    transport, ranks, name = row
    links = folder / f"links-{ranks}.json"
    links.write_text(json.dumps({"tx_kbps": [KBPS] * ranks, "rx_kbps": [KBPS] * ranks}),
                     encoding="utf-8")
    result = folder / "result.json"
    cpu, _ = children([[program, "run", "--workers", str(ranks), "--transport", transport,
                        "--params-bytes", str(options.mib << 20), "--rounds", str(rounds),
                        "--links", str(links), "--timeout", "60", "--json", str(result),
                        "--policy", POLICIES[name].format(ranks=ranks)]])
    document = json.loads(result.read_text(encoding="utf-8"))
    if not document["verified"]:
        sys.exit(f"{program}: {row}: not verified")
    delivered = sum(sum(one["rx_payload_bytes"]) for one in document["rounds"])
    return cpu, delivered, [one["ms"] for one in document["rounds"][1:]]


def gloo(folder, ranks, rounds, options):
    store = folder / f"gloo-{time.monotonic_ns()}"
    commands = [["/usr/bin/python3", "-c", GLOO, str(rank), str(ranks), str(options.mib << 18),
                 str(rounds), str(store)] for rank in range(ranks)]
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo")
    cpu, output = children(commands, environment)
    return cpu, 0, [float(x) for x in output.split()][1:]


def cost(run, more):
    """(CPU seconds per GB or, without bytes, in all; ms of a round; bytes of a round)"""
    few_cpu, few_bytes, _ = run(FEW)
    cpu, delivered, took = run(FEW + more)
    gained = delivered - few_bytes
    return (cpu - few_cpu) / (gained / 1e9 if gained else 1), statistics.median(took), gained / more


def spread(values, digits):
    middle = statistics.median(values)
    return f"{middle:.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def measure(row, folder, options):
    transport, ranks, name = row
    runs = {}
    if options.before:
        runs["before"] = lambda rounds: selmcast(options.before, folder, row, rounds, options)
    runs["now"] = lambda rounds: selmcast(options.program, folder, row, rounds, options)
    if options.gloo and name.startswith("sgd"):
        runs["gloo"] = lambda rounds: gloo(folder, ranks, rounds, options)
    seen = {who: [] for who in runs}
    for repeat in range(options.repeats + 1):
        order = list(runs) if repeat % 2 == 0 else list(reversed(runs))
        for who in order:
            got = cost(runs[who], options.rounds)
            if repeat > 0:  # The first warms up.
                seen[who].append(got)
    delivered = seen["now"][0][2]
    for who, values in seen.items():
        cpu = [v[0] if who != "gloo" else v[0] / (options.rounds * delivered / 1e9) for v in values]
        line = (f"{transport:6} {ranks:2} {name:12} {who:7} {spread(cpu, 3):>24} "
                f"{spread([v[1] for v in values], 0):>20}")
        if who == "now" and "before" in seen:
            pairs = list(zip(values, seen["before"]))
            line += (f"  CPU {spread([n[0] / b[0] for n, b in pairs], 2)}"
                     f"  ms {spread([n[1] / b[1] for n, b in pairs], 2)}")
        if who == "now" and "gloo" in seen:
            line += f"  gloo {spread([n[1] / g[1] for n, g in zip(values, seen['gloo'])], 2)}"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "selmcast"))
    parser.add_argument("--before", help="another build's program, to compare with")
    parser.add_argument("--gloo", action="store_true", help="compare mix=sgd with it")
    parser.add_argument("--transports", default="shm,uring")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--policies", default="average,sgd,sgd-sharded")
    parser.add_argument("--mib", type=int, default=64, help="parameters of each rank")
    parser.add_argument("--rounds", type=int, default=8, help="counted in a run")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{machine()}; {options.mib} MiB a rank; {options.rounds} rounds, "
          f"{options.repeats} repeats after one that warms up")
    print(f"{'':30} {'CPU s/GB':>24} {'ms':>20}  ratio")
    with tempfile.TemporaryDirectory(prefix="selmcast-cost-") as temporary:
        for ranks in (int(r) for r in options.ranks.split(",")):
            for transport in options.transports.split(","):
                for name in options.policies.split(","):
                    measure((transport, ranks, name), pathlib.Path(temporary), options)


if __name__ == "__main__":
    main()
