"""Equal views give equal plans whatever compiled them, and on whatever instruction set.

    plan_hash_test.py VIEWS

Exit status 77 when clang++ is absent.
"""

import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDS = [
    ["g++", "-O0"],
    ["g++", "-O3", "-march=native"],
    # Without vectors, and with those of SSE4, which cannot multiply and add in one step.
    ["g++", "-O2", "-ffp-contract=off", "-DHWY_COMPILE_ONLY_SCALAR"],
    ["g++", "-O2", "-DHWY_DISABLED_TARGETS=(HWY_AVX2|HWY_AVX3|HWY_AVX3_DL)"],
    ["clang++", "-O2"],
]


def sources():
    return [ROOT / "tests/portable/plan_hash.cc", ROOT / "base/check.cc",
            *sorted((ROOT / "sync/select").glob("*.cc"))]


def compile_source(job):
    build, source, target = job
    command = [*build, "-std=c++20", f"-I{ROOT}", f"-I{ROOT}/include", "-c", str(source), "-o",
               str(target)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return target


def main():
    views = sys.argv[1] if len(sys.argv) > 1 else "1000"
    if shutil.which("clang++") is None:
        print("clang++ is not installed (package clang)")
        return 77
    hashes = {}
    with tempfile.TemporaryDirectory(prefix="selmcast-hash-") as folder:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for number, build in enumerate(BUILDS):
                jobs = [(build, s, pathlib.Path(folder) / f"{number}-{s.stem}.o")
                        for s in sources()]
                objects = [str(o) for o in pool.map(compile_source, jobs)]
                program = f"{folder}/plan_hash_{number}"
                subprocess.run([build[0], *objects, "-lhwy", "-o", program], check=True)
                done = subprocess.run([program, views], check=True, capture_output=True, text=True)
                hashes[" ".join(build)] = done.stdout.strip()
                print(f"{' '.join(build)} {views} views: {done.stdout.strip()}", flush=True)
    if len(set(hashes.values())) != 1:
        print("the plans differ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
