#!/usr/bin/env python3
"""Checks one rule about the sources, after the rule has found violations planted for it.

usage: tidy_test.py RULE [ROOT]
Exit status: 0 clean, 1 violations (one line each), 2 usage, 77 the machine lacks a tool.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import planted
import rules
from source_tree import SourceTree


def main(arguments):
    known = {rule.__name__: rule for rule in rules.RULES}
    if len(arguments) not in (1, 2) or arguments[0] not in known:
        print(f"usage: tidy_test.py RULE [ROOT]; rules: {', '.join(known)}", file=sys.stderr)
        return 2
    rule = known[arguments[0]]
    root = arguments[1] if len(arguments) == 2 else pathlib.Path(__file__).resolve().parents[2]
    try:
        blind = list(planted.unseen_violations(rule))
        for line in blind:
            print(f"the rule itself is broken: {line}")
        violations = list(rule(SourceTree(root)))
    except rules.Skipped as reason:
        print(reason)
        return 77
    for line in violations:
        print(line)
    print(f"{rule.__name__}: {len(violations)} violations")
    return 1 if violations or blind else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
