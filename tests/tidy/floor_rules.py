"""The rules of rules.py about which folder may include which, and how large each may grow."""

import re

from source_tree import FOLDERS

# What each folder may include beside itself and its sub-folders; `selmcast` is include/selmcast,
# the public face. The longest name that fits a file's path counts.
_LOWER = {
    "base": "",
    "hwconf": "base",
    "store": "base",
    "plan": "base",
    "transport": "base hwconf",
    "transport/backends": "base hwconf store transport",
    "multicast": "base hwconf transport",
    "probes": "base hwconf store transport",
    "sync": "base hwconf store plan transport multicast probes selmcast",
    "simulate": "base hwconf store plan transport multicast probes sync selmcast",
    "train": "base selmcast",
    "tools/papers": "base plan",
    "tools/perf": "base hwconf store transport",
    "cli": "base hwconf store plan transport multicast probes sync simulate train tools selmcast",
    "plugins": "base selmcast",
    "include": "base selmcast",
}
_PROJECT_FOLDERS = {folder.split("/")[0] for folder in FOLDERS} | {"selmcast"}

# Lines of .h and .cc files that lie in a folder, its sub-folders not counted. A number may be
# raised only by a commit that says why the folder needs the lines.
BUDGETS = {
    "base": 1200,
    "cli": 5340,
    "hwconf": 600,
    "include/selmcast": 200,
    "multicast": 2800,
    "plan": 1100,
    "plan/axes": 1700,
    "plan/online": 500,
    "plan/select": 4240,
    "probes": 2000,
    "simulate": 700,
    "store": 1740,
    "sync": 2300,
    "sync/free": 1400,
    "sync/mix": 1000,
    "sync/rounds": 1800,
    "sync/steps": 1310,
    "tools/papers": 1500,
    "tools/perf": 2600,
    "train": 3900,
    "transport": 900,
    "transport/backends": 600,
    "transport/shm": 1900,
    "transport/sim": 1100,
    "transport/uring": 1500,
    "transport/verbs": 5100,
}


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]')


def _includes(tree, path):
    """(line, whether in quotes, target) of each include."""
    for number, line in enumerate(tree.text(path).splitlines(), 1):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def _floor_of(path):
    """The key of _LOWER that a file obeys, or None."""
    parts = path.split("/")[:-1]
    while parts and "/".join(parts) not in _LOWER:
        parts.pop()
    return "/".join(parts) or None


def floors(tree):
    """A file includes its own folder and lower floors only, by its path from the root; a test may
    name a helper beside it."""
    for path in tree.cpp_files():
        floor = _floor_of(path)
        allowed = [floor, *_LOWER[floor].split()] if floor else []
        for number, quoted, target in _includes(tree, path):
            folder = target.split("/")[0] if "/" in target else ""
            if not quoted and folder not in _PROJECT_FOLDERS:
                continue
            where = f"{path}:{number}: includes {target}"
            if folder not in _PROJECT_FOLDERS:
                beside = path.rsplit("/", 1)[0] + "/" + target
                if path.split("/")[0] != "tests" or not tree.exists(beside):
                    yield f"{where}: not a path from the root"
                continue
            if not (tree.exists(target) or tree.exists("include/" + target)):
                yield f"{where}: no such file"
            if floor and not any(target.startswith(name + "/") for name in allowed):
                yield f"{where}: {floor}/ may include only {' '.join(allowed)}"


def cycles(tree):
    """No two folders, sub-folders too, include each other, directly or by way of others."""
    edges = {}  # folder -> {folder it includes: first place}
    for path in tree.cpp_files():
        own = path.rpartition("/")[0]
        for number, _, target in _includes(tree, path):
            if tree.exists("include/" + target):
                target = "include/" + target
            folder = target.rpartition("/")[0]
            if folder and folder != own and tree.exists(target):
                edges.setdefault(own, {}).setdefault(folder, f"{path}:{number}")

    def reached(folder):
        seen, open_folders = set(), [folder]
        while open_folders:
            for following in edges.get(open_folders.pop(), {}):
                if following not in seen:
                    seen.add(following)
                    open_folders.append(following)
        return seen

    for own, included in sorted(edges.items()):
        for folder, place in sorted(included.items()):
            if own in reached(folder):
                yield f"{place}: {own}/ includes {folder}/, which depends on {own}/"


def budgets(tree):
    """No folder grows beyond its budget of lines."""
    lines = {}
    for path in tree.cpp_files():
        folder = path.rpartition("/")[0]
        if folder.split("/")[0] not in ("tests", "bench"):
            lines[folder] = lines.get(folder, 0) + len(tree.text(path).splitlines())
    for folder, count in sorted(lines.items()):
        if folder not in BUDGETS:
            yield f"{folder}: no budget of lines in tests/tidy/floor_rules.py"
        elif count > BUDGETS[folder]:
            yield f"{folder}: {count} lines, its budget is {BUDGETS[folder]}"
