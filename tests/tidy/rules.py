"""The rules. Each takes a SourceTree and yields violations, one line each."""

import concurrent.futures
import os
import re
import shutil
import subprocess

from floor_rules import budgets, cycles, floors
from source_tree import (
    CPP_SUFFIXES,
    FOLDERS,
    TEXT_SUFFIXES,
    UnbalancedBraces,
    classes,
    functions,
    without_comments,
)

MAX_FILE_LINES = 500
MAX_HEADER_LINES = 250
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100
MAX_MARKDOWN_COLUMNS = 120
MAX_TABLE_COLUMNS = 240  # A row of a Markdown table cannot be broken.
MAX_MEMBERS = 25
MAX_DECISION_LINES = 15
# Classes that were larger when the rule came. These numbers may only fall.
LARGE_CLASSES = {
    "FramePort": 27,
    "ReceiveSession": 26,
    "UringTransport": 26,
    "VerbsTransport": 28,
    "Ping": 29,
}
MAX_README_LINES = 60

class Skipped(Exception):
    """The machine lacks what a rule needs."""


def members(tree):
    """No class has more data members than a reader can keep in mind."""
    for path in tree.cpp_files():
        if path.startswith("tests/"):
            continue
        try:
            for found in classes(tree.text(path)):
                most = LARGE_CLASSES.get(found.name, MAX_MEMBERS)
                if len(found.members) > most:
                    yield (
                        f"{path}:{found.line}: {found.name} has {len(found.members)} data members, "
                        f"at most {most}"
                    )
        except UnbalancedBraces as error:
            yield f"{path}: cannot find the classes: {error}"


def sizes(tree):
    """Files, headers, functions and lines stay short."""
    for path in tree.files(CPP_SUFFIXES + (".py", ".sh")):
        text = tree.text(path)
        lines = text.splitlines()
        limit = MAX_HEADER_LINES if path.endswith(".h") else MAX_FILE_LINES
        if len(lines) > limit:
            yield f"{path}: {len(lines)} lines, at most {limit}"
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS:
                yield f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}"
        if not path.endswith(CPP_SUFFIXES) or path.startswith("tests/"):
            continue
        try:
            for function in functions(text):
                if function.lines > MAX_FUNCTION_LINES:
                    yield (
                        f"{path}:{function.first_line}: function of {function.lines} lines, "
                        f"at most {MAX_FUNCTION_LINES}: {function.header[:60]}"
                    )
        except UnbalancedBraces as error:
            yield f"{path}: cannot find the functions: {error}"
    for path in tree.files((".md",)):
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            most = MAX_TABLE_COLUMNS if line.startswith("|") else MAX_MARKDOWN_COLUMNS
            if len(line) > most:
                yield f"{path}:{number}: {len(line)} columns, at most {most}"


def _included_first(tree, header):
    """Whether the build proves the header: its own source includes it before anything else."""
    source = header[: -len(".h")] + ".cc"
    if not tree.exists(source):
        return False
    first = re.search(r"^[ \t]*#[ \t]*include[ \t]*(\S+)", tree.text(source), re.MULTILINE)
    return first is not None and first.group(1) == f'"{header}"'


def headers(tree):
    """Every header compiles alone."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Skipped(f"no compiler {compiler}")
    flags = ["-std=c++20", "-fsyntax-only", "-x", "c++", "-isystem/usr/include/eigen3"]
    flags += ["-I", str(tree.root), "-I", str(tree.root / "include")]

    def compile_alone(path):
        done = subprocess.run(
            [compiler, *flags, "-"],
            input=f'#include "{path}"\n',
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return None
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        return f"{path}: does not compile alone: {(errors or [done.stderr])[0]}"

    paths = [path for path in tree.files((".h",)) if not _included_first(tree, path)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        yield from filter(None, pool.map(compile_alone, paths))


_DATA_PATH = re.compile(
    r"""^(?: .*_datapath\.cc
      | multicast/.*\.cc
      | sync/(?:mix|free)/.*\.cc
      | sync/rounds/(?:lock_step|round_memory|round_reports|hand_over|driver_mail)\.cc
      | sync/driver\.cc
      | sync/mix/kernel_elements\.h
      | base/(?:checksum|fixed_stack|ring)[^/]*\.(?:cc|h)
      )$""",
    re.VERBOSE,
)
_GROWTH = "(?:push|emplace)_(?:back|front)|resize|reserve|emplace|insert|assign|append"
_OWNERS = "string|to_string|function|map|unordered_map|set|deque|list"
_BANNED = [
    ("allocates", r"\b(?:malloc|calloc|realloc|aligned_alloc|strdup|make_unique|make_shared)\b"),
    ("allocates", r"(?<!operator )\bnew\b"),
    # FrameBitmap::insert() sets a bit.
    ("may allocate", rf"(?<!bitmap)(?:\.|->)(?:{_GROWTH})\s*\("),
    ("may allocate", rf"\bstd::(?:{_OWNERS})\b(?!_view)"),
    ("locks", r"\b(?:mutex|lock_guard|unique_lock|scoped_lock|condition_variable|call_once)\b"),
    ("throws", r"\bthrow\b"),
    ("writes text", r"\b(?:v?f?printf|puts|fputs|fwrite|cout|cerr|clog|syslog|perror)\b"),
    ("sleeps", r"\b(?:sleep|usleep|nanosleep|clock_nanosleep|sleep_for|sleep_until)\b"),
    ("leaves the memory order unsaid", r"(?:\.|->)(?:load|test)\s*\(\s*\)"),
]
_BANNED = [(what, re.compile(pattern)) for what, pattern in _BANNED]
# `// set-up: why` and `// failure: why` mark what the rule does not hold for: what runs before the
# first round, and what runs once because the job has failed.
_MARK = re.compile(r"// (?:set-up|failure):")


def _marked_lines(text):
    """Statements with a mark on their first line or right above it; where that is the signature of
    a function, the whole function."""
    lines = text.splitlines()
    code = without_comments(text).splitlines()
    marked = set()
    for number, line in enumerate(lines, 1):
        if not _MARK.search(line):
            continue
        while number < len(lines) and not code[number - 1].strip():
            number += 1
        marked.add(number)
        while number < len(lines) and not code[number - 1].rstrip().endswith((";", "{", "}")):
            number += 1
            marked.add(number)
    for function in functions(text):
        if function.first_line in marked:
            marked.update(range(function.first_line, function.last_line + 1))
    return marked


def data_path(tree):
    """After set-up no allocation, lock, exception, log or sleep; memory orders are written out."""
    for path in tree.cpp_files():
        if path.startswith("tests/") or not _DATA_PATH.match(path):
            continue
        text = tree.text(path)
        try:
            marked = _marked_lines(text)
        except UnbalancedBraces as error:
            yield f"{path}: cannot find the functions: {error}"
            continue
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            if number in marked or line.lstrip().startswith("#"):
                continue
            for what, pattern in _BANNED:
                match = pattern.search(line)
                if match:
                    yield (
                        f"{path}:{number}: {what} on the data path: {match.group(0)} "
                        "(mark with `// set-up: why` what runs in set-up only)"
                    )


def folders(tree):
    """Every folder of the design has a README, no README but the project's is longer than a page;
    decisions are short and numbered; the licence and what an outsider looks for are there."""
    for folder in FOLDERS:
        if not tree.exists(f"{folder}/README.md"):
            yield f"{folder}/README.md: missing"
    for path in tree.files((".md",)):
        lines = len(tree.text(path).splitlines())
        if path.endswith("/README.md") and not 3 <= lines <= MAX_README_LINES:
            yield f"{path}: not between 3 and {MAX_README_LINES} lines"
        if path.startswith("docs/decisions/"):
            if not re.fullmatch(r"docs/decisions/\d{4}-[a-z0-9-]+\.md", path):
                yield f"{path}: not named NUMBER-what-was-decided.md"
            if lines > MAX_DECISION_LINES:
                yield f"{path}: {lines} lines, at most {MAX_DECISION_LINES}"
    numbers = {}
    for path in tree.files((".md",)):
        if path.startswith("docs/decisions/"):
            before = numbers.setdefault(path.split("/")[2][:4], path)
            if before != path:
                yield f"{path}: has the number of {before}"
    for path in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        if not tree.exists(path):
            yield f"{path}: missing"
    if not tree.exists("LICENSE"):
        yield "LICENSE: missing"
    elif "Apache License" not in tree.text("LICENSE") or "Version 2.0" not in tree.text("LICENSE"):
        yield "LICENSE: not the Apache License 2.0"


_NAMESPACE = re.compile(r"^namespace ?([\w:]*) ?{|^}  // (?:anonymous )?namespace")
_TYPE = re.compile(r"^(?:struct|class|union|enum class) (?:\[\[\w+\]\] )?(\w+)(?![\w:<]|[^{]*;)")


def _types(text):
    """(name with its namespace, line) of every type that other files' types may collide with."""
    spaces, last = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _NAMESPACE.match(line)
        if match and match.group(1) is not None:
            spaces.append(match.group(1))
        elif match and spaces:
            spaces.pop()
        found = _TYPE.match(line)
        if found and "" not in spaces and not last.startswith("template <>"):
            yield "::".join(spaces + [found.group(1)]), number
        last = line


def names(tree):
    """No two files define a type of one name in one namespace: the linker would take one's
    functions for both, without a word."""
    seen = {}
    for path in tree.cpp_files():
        for name, number in _types(tree.text(path)):
            before = seen.setdefault(name, path)
            if before != path:
                yield f"{path}:{number}: {name} is defined in {before} too; rename one"


# Spelt in two halves, so that this file obeys its own rule.
_UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.<>/-])/(?:wo" + r"rk|ho" + r"me|ro" + r"ot|Us" + r"ers)/")


def text(tree):
    """No unfinished work, no path of one machine, clean white space, `#pragma once`."""
    for path in tree.files():
        named = path.endswith(TEXT_SUFFIXES) or "." not in path.rsplit("/", 1)[-1]
        if not named or path == "LICENSE" or path.startswith("tests/fuzz/seeds/"):
            continue
        try:
            content = tree.text(path)
        except UnicodeDecodeError:
            yield f"{path}: not UTF-8"
            continue
        if content and not content.endswith("\n"):
            yield f"{path}: no line end at its end"
        # Highway includes such a header once per instruction set, with a guard of its own.
        guards = ("#pragma once", "defined(HWY_TARGET_TOGGLE)")
        if path.endswith(".h") and not any(guard in content for guard in guards):
            yield f"{path}: no #pragma once"
        for number, line in enumerate(content.split("\n"), 1):
            where = f"{path}:{number}"
            if _UNFINISHED.search(line):
                yield f"{where}: unfinished: {line.strip()[:60]}"
            if _MACHINE_PATH.search(line):
                yield f"{where}: path of one machine: {line.strip()[:60]}"
            if line != line.rstrip():
                yield f"{where}: blanks or a carriage return at the end"
            if "\t" in line:
                yield f"{where}: tab"


def layout(tree):
    """clang-format changes nothing."""
    tool = shutil.which("clang-format-14")
    if tool is None:
        raise Skipped("no clang-format-14 (Debian package of the same name)")
    paths = list(tree.cpp_files())
    if not paths:
        return
    done = subprocess.run(
        [tool, "--dry-run", "-Werror", *paths],
        cwd=tree.root,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        places = re.findall(r"^(\S+?:\d+):\d+: error", done.stderr, re.MULTILINE)
        for path in sorted({place.split(":")[0] for place in places}) or [done.stderr[:200]]:
            yield f"{path}: clang-format-14 -i {path} would change it"


def packages(tree):
    """scripts/packages: name, set and reason on each line, each name once."""
    seen = set()
    for number, line in enumerate(tree.text("scripts/packages").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"scripts/packages:{number}"
        fields = line.split(None, 2)
        if len(fields) < 3:
            yield f"{where}: wants a name, a set and a reason"
            continue
        if fields[1] not in ("build", "test", "all", "guest", "bench"):
            yield f"{where}: set {fields[1]}; allowed: build, test, all, guest, bench"
        if fields[0] in seen:
            yield f"{where}: {fields[0]} is listed twice"
        seen.add(fields[0])


_GENERATED = re.compile(
    r"""(?:^|/)(?:build(?:-[^/]*)?|CMakeFiles|__pycache__)/
      | (?:^|/)(?:\.ninja_(?:deps|log)|build\.ninja|CMakeCache\.txt|cmake_install\.cmake)$
      | (?:^|/)(?:CTestTestfile\.cmake|compile_commands\.json|core(?:\.\d+)?)$
      | \.(?:o|a|so|d|pyc|gcda|gcno|profraw)$""",
    re.VERBOSE,
)


def generated(tree):
    """Nothing that a build writes is under version control. A folder without a repository counts
    as if all of it were."""
    if (tree.root / ".git").exists():
        if shutil.which("git") is None:
            raise Skipped("no git")
        listed = subprocess.run(
            ["git", "-C", str(tree.root), "ls-files", "-z"],
            text=True,
            capture_output=True,
            check=True,
        )
        paths = [path for path in listed.stdout.split("\0") if path]
    else:
        paths = [
            path.relative_to(tree.root).as_posix()
            for path in tree.root.rglob("*")
            if path.is_file()
        ]
    for path in sorted(paths):
        if _GENERATED.search(path):
            yield f"{path}: written by a build, so not to be tracked"


RULES = (
    floors,
    cycles,
    sizes,
    budgets,
    members,
    headers,
    data_path,
    folders,
    names,
    text,
    generated,
    layout,
    packages,
)
