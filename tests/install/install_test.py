#!/usr/bin/env python3
"""Installs the build into a folder, moves it, and builds and runs a project against it.

usage: install_test.py BUILD_FOLDER CXX [CMake flag]...
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"


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


def consumer_by_cmake(prefix, folder, compiler):
    run(
        "cmake", "-G", "Ninja", "-S", CONSUMER, "-B", folder,
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
    print("passed")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
