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
COMPILERS = [
    ["g++", "-O0"],
    ["g++", "-O3", "-march=native"],
    ["clang++", "-O2"],
]
# The vector loops once more: without vectors, and with those of SSE4, which cannot multiply and
# add in one step. The other objects are those of the second compiler, which are the fastest.
LOOPS = [
    ["g++", "-O2", "-ffp-contract=off", "-DHWY_COMPILE_ONLY_SCALAR"],
    ["g++", "-O2", "-DHWY_DISABLED_TARGETS=(HWY_AVX2|HWY_AVX3|HWY_AVX3_DL)"],
]


# What no plan of a view goes through.
ELSEWHERE = {"published_ssp"}


def sources():
    return [ROOT / "tests/portable/plan_hash.cc", ROOT / "base/check.cc",
            *(f for f in sorted((ROOT / "plan/select").glob("*.cc")) if f.stem not in ELSEWHERE)]


def compile_source(job):
    build, source, target = job
    command = [*build, "-std=c++20", f"-I{ROOT}", f"-I{ROOT}/include", "-c", str(source), "-o",
               str(target)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return target


def compile_all(pool, build, number, folder, files):
    jobs = [(build, f, pathlib.Path(folder) / f"{number}-{f.stem}.o") for f in files]
    return [str(o) for o in pool.map(compile_source, jobs)]


def link(objects, program):
    subprocess.run(["g++", *objects, "-lhwy", "-o", program], check=True)
    return program


def hash_of(job):
    name, program, views = job
    done = subprocess.run([program, views], check=True, capture_output=True, text=True)
    print(f"{' '.join(name)}: {views} views, {done.stdout.strip()}", flush=True)
    return done.stdout.strip()


def main():
    views = sys.argv[1] if len(sys.argv) > 1 else "1000"
    if shutil.which("clang++") is None:
        print("clang++ is not installed (package clang)")
        return 77
    kernels = ROOT / "plan/select/slot_kernels.cc"
    with tempfile.TemporaryDirectory(prefix="selmcast-hash-") as folder, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        programs = []
        for number, build in enumerate(COMPILERS):
            objects = compile_all(pool, build, number, folder, sources())
            programs.append((build, link(objects, f"{folder}/{number}"), views))
        others = [str(o) for o in pathlib.Path(folder).glob("1-*.o")
                  if o.name != f"1-{kernels.stem}.o"]
        for number, build in enumerate(LOOPS):
            loops = compile_source((build, kernels, pathlib.Path(folder) / f"loops-{number}.o"))
            programs.append((build, link([*others, str(loops)], f"{folder}/loops-{number}"), views))
        hashes = set(pool.map(hash_of, programs))
    if len(hashes) != 1:
        print("the plans differ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
