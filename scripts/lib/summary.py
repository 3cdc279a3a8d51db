#!/usr/bin/env python3
"""Adds up JUnit files that CTest wrote and closes with `N passed, N failed, N skipped`.

usage: summary.py [--broken STEP]... [--times TEXT] NAME=FILE...
TEXT, and what each failed test said, stand next to the last line, where a log that was cut off
still shows them. A broken step (a build that failed, a run that wrote no file) counts as one
failed test. The exit status is 0 only when something passed and nothing failed.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(case):
    """Why a test skipped itself: what GTEST_SKIP() or the last line of a script said."""
    output = case.findtext("system-out") or ""
    found = re.search(r"^.+:\d+: Skipped\n((?:(?!\[ ).+\n)*)", output, re.MULTILINE)
    if found and found.group(1).strip():
        return " ".join(found.group(1).split())
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("[")]
    return lines[-1] if lines else "no reason given"


def said(case, lines=8, columns=160):
    """What a failed test printed that tells why: at most so much, the end where nothing does."""
    output = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
    output = [line for line in output if line]
    failure = case.find("failure")
    message = failure.get("message", "") if failure is not None else ""
    found = []
    for number, line in enumerate(output):
        if re.match(r"(FAIL|ERROR): |\w*(Error|Exception)\b|\[  TIMEOUT", line):
            found.append(line)
        elif line.endswith(": Failure"):
            found.append(" ".join(output[number:number + 4]))
        elif "Sanitizer" in line or "runtime error:" in line:
            found.append(line)
    if "imeout" in message:
        found += [message, *output[-3:]]
    return [line[:columns] for line in (found or output[-lines:])[:lines]]


def outcome(case):
    """passed, failed or skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    status = case.get("status", "")
    # CTest writes status "notrun" for tests that skipped themselves, and for tests whose program
    # does not exist; only the first kind says so in the message.
    skipped = case.find("skipped")
    if skipped is not None or status in ("notrun", "disabled"):
        message = skipped.get("message", "") if skipped is not None else ""
        output = case.findtext("system-out") or ""
        # CTest lets the word "SKIPPED" win over a failure of the same test.
        broken = "[  FAILED  ]" in output or "Sanitizer" in output
        if not broken and (status == "disabled" or message.startswith("SKIP_")):
            return "skipped"
        return "failed"
    return "passed" if status == "run" else "failed"


def add_up(runs, broken):
    """Returns (counts, skips, failures) where skips maps a reason to the tests that gave it, and
    failures holds pairs of a test and the lines it said."""
    counts = {"passed": 0, "failed": len(broken), "skipped": 0}
    skips = {}
    failures = [(f"{step}: did not finish", []) for step in broken]
    for name, path in runs:
        try:
            cases = list(ElementTree.parse(path).getroot().iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            if name not in broken:
                counts["failed"] += 1
                failures.append((f"{name}: no result file ({error})", []))
            continue
        for case in cases:
            result = outcome(case)
            counts[result] += 1
            test = f"{name}: {case.get('name')}"
            if result == "failed":
                failures.append((test, said(case)))
            elif result == "skipped":
                skips.setdefault(skip_reason(case), []).append(test)
    return counts, skips, failures


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broken", action="append", default=[])
    parser.add_argument("--times", default="")
    parser.add_argument("runs", nargs="*", type=lambda text: tuple(text.split("=", 1)))
    options = parser.parse_args(arguments)
    counts, skips, failures = add_up(options.runs, options.broken)
    for reason, tests in sorted(skips.items()):
        print(f"skipped: {reason}")
        for test in tests:
            print(f"    {test}")
    if options.times:
        print(options.times)
    for test, lines in failures:
        print(f"FAILED: {test}")
        for line in lines:
            print(f"    {line}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 0 if counts["passed"] > 0 and counts["failed"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
