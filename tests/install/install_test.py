#!/usr/bin/env python3
"""Installs the build into a folder, moves it, and builds and runs a project against it, and so the
program that README.md shows.

usage: install_test.py BUILD_FOLDER CXX [CMake flag]...
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"
README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def run(*command, **options):
    """Runs and returns what the command printed; its failure ends the test."""
    done = subprocess.run(
        [str(part) for part in command],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=200,
        check=False,
        **options,
    )
    if done.returncode != 0:
        print(" ".join(str(part) for part in command), "->", done.returncode)
        print(done.stdout)
        sys.exit(1)
    return done.stdout


def check(condition, what):
    if not condition:
        print("failed:", what)
        sys.exit(1)


def consumer_by_cmake(prefix, folder, compiler, project=CONSUMER):
    run(
        "cmake", "-G", "Ninja", "-S", project, "-B", folder,
        f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}",
    )  # fmt: skip
    run("cmake", "--build", folder)
    return folder / "consumer"


def consumer_by_pkg_config(prefix, folder, compiler):
    packages = next(prefix.glob("lib*/**/pkgconfig"))
    environment = {**os.environ, "PKG_CONFIG_PATH": str(packages)}
    flags = run("pkg-config", "--cflags", "--libs", "selmcast", env=environment).split()
    program = folder / "consumer-by-pkg-config"
    run(compiler, "-std=c++20", CONSUMER / "consumer.cc", *flags, "-o", program)
    return program


def program_of_readme(prefix, folder, compiler):
    """Builds what stands under "Link it", in the place of the consumer's own source."""
    section = README.read_text(encoding="utf-8").split("\n## Link it\n", 1)[1]
    programs = re.findall(r"^```cpp\n(.*?)^```$", section.split("\n## ", 1)[0], re.M | re.S)
    check(len(programs) == 1, f"README.md, Link it: {len(programs)} C++ programs instead of one")
    project = folder / "project"
    shutil.copytree(CONSUMER, project)
    (project / "consumer.cc").write_text(programs[0], encoding="utf-8")
    return consumer_by_cmake(prefix, folder / "build", compiler, project)


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def start_rank(program, rank, world, address):
    return subprocess.Popen(
        [program, str(rank), str(world), address],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run_job(program, world):
    """Rank r starts from r, so the mean that all of them end with is (world - 1) / 2. Rank 0, which
    serves the rendezvous, comes last: the others wait for it."""
    address = free_address()
    ranks = {}
    try:
        for rank in reversed(range(world)):
            ranks[rank] = start_rank(program, rank, world, address)
            time.sleep(0.3)
        for rank, process in ranks.items():
            printed, errors = process.communicate(timeout=60)
            check(process.returncode == 0, f"{rank} of {world}: {process.returncode}: {errors}")
            wanted = f"rank {rank} of {world}: {(world - 1) / 2:g}\n"
            check(printed == wanted, f"{rank} of {world} printed {printed!r}, not {wanted!r}")
    finally:
        for process in ranks.values():
            process.kill()
            process.communicate()


def refuse_a_served_address(prefix, program):
    """Rank 0 says that somebody serves the address already, and what to set if that is meant."""
    with subprocess.Popen(
        [prefix / "bin/selmcast", "store", "tcp://127.0.0.1:0", "--world", "1"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as store:  # fmt: skip
        try:
            address = store.stdout.readline().split()[2]
            process = start_rank(program, 0, 1, address)
            _, errors = process.communicate(timeout=60)
            check(process.returncode == 1, f"on a served address: {process.returncode}: {errors}")
            for words in (address, "in use", "host_store = false"):
                check(words in errors, f"on a served address: {words!r} is not in {errors!r}")
            check(errors.count("\n") == 1, f"on a served address: more than a line: {errors!r}")
        finally:
            store.kill()


def main(build_folder, compiler):
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        run("cmake", "--install", build_folder, "--prefix", work / "first")
        prefix = work / "moved"
        shutil.move(work / "first", prefix)

        version = run(prefix / "bin/selmcast", "--version")
        check(version.startswith("selmcast "), f"--version printed {version!r}")
        for build in (consumer_by_cmake, consumer_by_pkg_config):
            folder = work / build.__name__
            folder.mkdir()
            printed = run(build(prefix, folder, compiler))
            check("nonsense:where" in printed, f"{build.__name__}: printed {printed!r}")

        folder = work / "readme"
        folder.mkdir()
        program = program_of_readme(prefix, folder, compiler)
        for world in (2, 3):
            run_job(program, world)
        refuse_a_served_address(prefix, program)
    print("passed")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
