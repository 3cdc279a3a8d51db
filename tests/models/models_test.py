#!/usr/bin/env python3
"""Every order of steps of the objects that threads and processes share, by the checker spin.

A model (*.pml) says in its head what it shows, and lists as `broken: NAME` the mistakes that it
must find. It is checked as it stands: no assertion may fail, nobody may be stuck, and every
statement must be reached. And it is checked once with each mistake defined, where something must.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def check(model, mistake=None):
    """What the verifier says about all states of a model."""
    with tempfile.TemporaryDirectory() as folder:
        for file in HERE.glob("*.inc"):
            shutil.copy(file, folder)
        shutil.copy(model, folder)
        define = [f"-D{mistake}"] if mistake else []
        # -o3: statements are not merged, so that those never reached are told apart.
        run(["spin", *define, "-o3", "-a", model.name], folder)
        # All states, not only up to the first error of the sound model; safety properties alone.
        run(["cc", "-O1", "-w", "-DSAFETY", "-DMEMLIM=1024", "-o", "pan", "pan.c"], folder)
        return run(["./pan", "-m200000"], folder)


def errors(report):
    return int(re.search(r"errors: (\d+)", report)[1])


def unreached(report):
    """Statements of the sound model that no order reaches: it would show less than it says."""
    parts = re.split(r"unreached in (?:proctype|init) ?", report)[1:]
    return [part.strip() for part in parts if "(0 of " not in part.split("\n\n")[0]]


def main():
    if shutil.which("spin") is None or shutil.which("cc") is None:
        print("spin and a C compiler are needed (package spin)")
        sys.exit(77)
    wrong = 0
    for model in sorted(HERE.glob("*.pml")):
        report = check(model)
        states = re.search(r"(\d+) states, stored", report)
        dead = unreached(report)
        good = errors(report) == 0 and not dead and "too small" not in report
        print(f"{model.name}: {states[1]} states, {errors(report)} errors")
        if not good:
            wrong += 1
            print(report)
        mistakes = re.findall(r"broken: (\w+)", model.read_text(encoding="utf-8"))
        if not mistakes:
            wrong += 1
            print(f"{model.name}: names no mistake that it finds")
        for mistake in mistakes:
            report = check(model, mistake)
            wrong += errors(report) == 0
            how = re.search(r"pan:1: (.*?) \(at depth", report)
            print(f"  {mistake}: {how[1] if how else 'NOT FOUND'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
