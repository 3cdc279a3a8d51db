"""Jobs of `selmcast` over verbs in guests: commands for bash, and what became of them.

A job writes its document to $RXE_XCHG/NAME.json and its parameters to $RXE_XCHG/NAME/rank-I.f32.
"""

import json
import os
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import jobs
import resnet50

PROGRAM = str(pathlib.Path(jobs.PROGRAM).resolve())
TESTS = os.environ.get("SELMCAST_GUEST_TESTS", "build/release/tests/guest_tests")
HOT_PATH = str(pathlib.Path(TESTS).with_name("guest_hot_path"))
UNIT_TESTS = str(pathlib.Path(TESTS).with_name("test_unit_base"))
SEED = 5


def links(folder, ranks, kbps):
    """A links file in which every rank has `kbps` both ways; emulated devices are slow, and probing
    them takes longer than a job."""
    path = pathlib.Path(folder) / f"links-{ranks}-{kbps}.json"
    path.write_text(json.dumps({"tx_kbps": [kbps] * ranks, "rx_kbps": [kbps] * ranks}),
                    encoding="utf-8")
    return f"$RXE_XCHG/{path.name}"


def resnet50_file(folder, scale):
    """ResNet-50, widths divided by `scale`: what a job takes as its `count`, and its elements."""
    count = resnet50.write(pathlib.Path(folder) / "resnet50.safetensors", scale)
    return "$RXE_XCHG/resnet50.safetensors", count


def job(name, count, rounds, links_file, arguments, ranks):
    """The words that every rank of a job is given, by whatever starts it. `count`: elements, or a
    .safetensors file."""
    what = f"--params {count}" if isinstance(count, str) else f"--params-bytes {4 * count}"
    words = [f"{what} --rounds {rounds} --transport verbs --links {links_file}",
             f"--init seed:{SEED} --dump $RXE_XCHG/{name}"]
    return " ".join(words + [shlex.quote(a) for a in arguments]), ranks


def launched(name, count, rounds, links_file, arguments, ranks, devices):
    """`selmcast run`: all ranks in one guest."""
    words, ranks = job(name, count, rounds, links_file, arguments, ranks)
    out = f"$RXE_XCHG/{name}"
    return (f"mkdir -p {out}; {PROGRAM} run --workers {ranks} --devices {devices} {words} "
            f"--json {out}.json > {out}.out 2> {out}.err; echo $? > {out}.status\n")


def by_hand(name, count, rounds, links_file, arguments, rank, ranks, device="rxe0", port=7000):
    """`selmcast worker`: this guest's rank of a job over several guests."""
    words, ranks = job(name, count, rounds, links_file, arguments, ranks)
    return (f"mkdir -p $RXE_XCHG/{name}; {PROGRAM} worker --rank {rank} --world {ranks} "
            f"--rendezvous tcp://g0:{port} --device {device} {words} "
            f"{f'--json $RXE_XCHG/{name}.json' if rank == 0 else ''} "
            f"2> $RXE_XCHG/{name}.err.{rank}; echo $? > $RXE_XCHG/{name}.status.{rank}\n")


def text(folder, name):
    path = pathlib.Path(folder) / name
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""


def document(folder, name):
    return json.loads(text(folder, f"{name}.json"))


def worst_difference(folder, name, count):
    return jobs.worst_difference(document(folder, name), pathlib.Path(folder) / name, count, SEED)


def total(one, key):
    """Of a field over the rounds of a document."""
    return sum(sum(r[key]) if isinstance(r[key], list) else r[key] for r in one["rounds"])
