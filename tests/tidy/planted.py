"""Small trees with known violations: each rule must report exactly those, before it may judge."""

import pathlib
import tempfile

from floor_rules import BUDGETS
from source_tree import FOLDERS, SourceTree


def _function_of(lines, signature="void f(int a)"):
    return "\n".join([signature + " {", *["  ++a;"] * (lines - 2), "}", ""])


def _some_members(count):
    return "".join(f"  int x{number}_ = 0;  // x_, y_\n" for number in range(count))


# Ten members in every form that clang-format leaves them in, and what is none.
_KINDS = (
    "  std::map<int, std::vector<int>> map_;\n  std::function<void(int)> call_;\n"
    "  std::atomic<bool> flag_{false};\n  int one_ = f(1, 2), two_;\n  int array_[2] = {1, 2};\n"
    "  T* pointer_ = nullptr;\n  alignas(64) int aligned_ = 0;\n"
    "  std::array<int, 3>\n      wrapped_{1, 2};\n  unsigned bits_ : 3;\n"
    "  using type_ = int;\n  static constexpr int kNone = 1;\n  int plain;\n"
    "  bool operator==(const T& other_) const;\n  friend class X_;\n"
)
_LICENSE = "Apache License\nVersion 2.0, January 2004\n"
_FULL = {
    **{f"{folder}/README.md": "# x\n\ny\n" for folder in FOLDERS},
    **{name: "x\n" for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")},
    "docs/decisions/0001-one.md": "x\n" * 15,
    "LICENSE": _LICENSE,
}


def _without(path):
    return {name: text for name, text in _FULL.items() if name != path}


# Rule -> list of (files, the places "path" or "path:line" that must be reported, no others).
CASES = {
    "floors": [
        (
            {
                "base/a.h": '#include "base/b.h"\n#include <vector>\n#include <sys/socket.h>\n',
                "base/b.h": "",
                "base/up.cc": '#include "base/a.h"\n#include "sync/s.h"\n',
                "sync/s.h": "",
                "sync/s.cc": '#include "selmcast/w.h"\n#include "multicast/m.h"\n',
                "include/selmcast/w.h": '#include "base/a.h"\n',
                "include/selmcast/bad.h": '#include "sync/s.h"\n',
                "multicast/m.h": '#include "probes/p.h"\n',
                "probes/p.h": '\n  #  include "multicast/m.h"\n',
                "train/t.cc": '#include "selmcast/w.h"\n#include "sync/s.h"\n#include <sync/s.h>\n',
                "cli/c.cc": '#include "train/t.h"\n#include "b.h"\n#include "tests/x.h"\n',
                "train/t.h": "",
                "tests/x.h": '#include "cli/none.h"\n',
                "tests/unit/t.cc": '#include "help.h"\n#include "nohelp.h"\n',
                "tests/unit/help.h": "",
                "bench/b.cc": '#include "sync/s.h"\n#include "cli/c.h"\n',
                "cli/c.h": "",
                # Sub-folders have the floor of their folder, but for those with one of their own.
                "store/s.h": "",
                "transport/t.cc": '#include "store/s.h"\n',
                "transport/shm/t.cc": '#include "transport/shm/s.h"\n#include "store/s.h"\n',
                "transport/shm/s.h": "",
                "transport/backends/t.cc": '#include "transport/shm/s.h"\n#include "store/s.h"\n',
                "plan/select/p.h": '#include "plan/p.h"\n#include "store/s.h"\n',
                "plan/p.h": "",
                "tools/papers/p.cc": '#include "plan/select/p.h"\n#include "tools/perf/p.h"\n',
                "tools/perf/p.h": '#include "transport/shm/s.h"\n#include "plan/p.h"\n',
                "simulate/s.h": '#include "sync/s.h"\n#include "train/t.h"\n',
                "sync/mix/m.h": '#include "plan/p.h"\n#include "simulate/s.h"\n',
            },
            {
                "transport/t.cc:1",
                "transport/shm/t.cc:2",
                "plan/select/p.h:2",
                "tools/papers/p.cc:2",
                "tools/perf/p.h:2",
                "simulate/s.h:2",
                "sync/mix/m.h:2",
                "base/up.cc:2",
                "include/selmcast/bad.h:1",
                "multicast/m.h:1",
                "probes/p.h:2",
                "train/t.cc:2",
                "train/t.cc:3",
                "cli/c.cc:2",
                "cli/c.cc:3",
                "tests/x.h:1",
                "tests/unit/t.cc:2",
            },
        )
    ],
    "cycles": [
        (
            {
                # Three in a ring, two that see each other, and a face below include/.
                "a/x.h": '\n#include "a/one/x.h"\n#include "a/one/y.h"\n',
                "a/one/x.h": '#include "a/two/x.h"\n',
                "a/one/y.h": "",
                "a/two/x.h": '#include "a/x.h"\n#include "b/x.h"\n#include <vector>\n',
                "b/x.h": '#include "b/y.h"\n#include "c/x.h"\n',
                "b/y.h": "",
                "b/z.cc": '#include "b/sub/x.h"\n',
                "b/sub/x.cc": '#include "b/sub/x.h"\n#include "b/y.h"\n',
                "b/sub/x.h": "",
                "c/x.h": "",
                "include/f/w.h": '#include "c/x.h"\n',
                "c/w.cc": "#include <f/w.h>\n",
            },
            {"a/x.h:2", "a/one/x.h:1", "a/two/x.h:1", "b/z.cc:1", "b/sub/x.cc:2"}
            | {"include/f/w.h:1", "c/w.cc:1"},
        )
    ],
    "budgets": [
        (
            {
                "base/a.h": "int x;\n" * (BUDGETS["base"] - 1),
                "base/b.cc": "int x;\n",
                "simulate/a.h": "int x;\n" * (BUDGETS["simulate"] - 1),
                "simulate/b.cc": "int x;\nint y;\n",
                # A sub-folder has a budget of its own.
                "sync/a.cc": "int x;\n" * BUDGETS["sync"],
                "sync/mix/a.cc": "int x;\n",
                "sync/new/a.cc": "int x;\n",
                "tests/sim/a.cc": "int x;\n" * 99999,
            },
            {"simulate", "sync/new"},
        )
    ],
    "members": [
        (
            {
                "a/fits.h": "class Fits {\n public:\n  void f(int a_);\n"
                "  int g() { return g_; }\n"
                "  Fits() : a_(1), b_{2} {}\n private:\n" + _some_members(25) + "};\n",
                "a/many.h": "\nclass alignas(64) Many final : public B<int> {\n"
                + _some_members(26) + "};\n",
                # Counted on its own, not for the class around it.
                "a/nested.h": "struct Outer {\n  int a_;\n  struct Inner {\n"
                + _some_members(26)
                + "  };\n"
                "  Inner inner_;\n};\n",
                "a/two.cc": "namespace {\nclass A {\n" + _some_members(20) + "};\n"
                "class B {\n" + _some_members(20) + "};\n}\n",
                "a/kinds.h": "template <class T>\nstruct Kinds {\n" + _some_members(16) + _KINDS
                + "};\n",
                "a/port.h": "class FramePort {\n" + _some_members(27) + "};\n",
                "b/port.h": "class FramePort {\n" + _some_members(28) + "};\n",
                "tests/many.h": "class Many {\n" + _some_members(26) + "};\n",
            },
            {"a/many.h:2", "a/nested.h:3", "a/kinds.h:1", "b/port.h:1"},
        )
    ],
    "sizes": [
        (
            {
                "a/long.cc": "int x;\n" * 501,
                "a/fits.cc": "int x;\n" * 500,
                "a/long.h": "int x;\n" * 251,
                "a/fits.h": "int x;\n" * 250,
                "a/wide.cc": "int y;\n//" + "-" * 99 + "\n//" + "-" * 98 + "\n",
                "a/wide.py": "#" + "-" * 100 + "\n",
                "a/wide.md": "-" * 120 + "\n" + "-" * 121 + "\n",
                "a/table.md": "|" + "-" * 239 + "\n|" + "-" * 240 + "\n",
                "a/f.cc": "namespace n {\n" + _function_of(70) + _function_of(71) + "}\n",
                "tests/f.cc": _function_of(300),
            },
            {"a/long.cc", "a/long.h", "a/wide.cc:2", "a/wide.py:1", "a/f.cc:72"}
            | {"a/wide.md:2", "a/table.md:2"},
        ),
        (
            {
                # Signatures that are easily missed, and what only looks like a function.
                "a/method.h": "struct S {\n public:\n"
                + _function_of(71, "template <class T = int>\n  bool operator==(const T& a) const")
                + "};\n",
                "a/init.cc": _function_of(71, "S::S(int a)\n    : x_{f(a)}, y_{1}"),
                "a/lambda.cc": _function_of(70, "const auto f = [](int a)")[:-2] + "  ;\n};\n",
                "a/tail.cc": _function_of(71, "auto f(X x = {}, int a = 1) noexcept -> A<int, 3>"),
                "a/data.cc": "constexpr int kTable[] = {\n" + "  f(1),\n" * 90 + "};\n",
                "a/class.h": "class alignas(64) C final : B<decltype(f())> {\n"
                + "  int x;\n" * 90
                + "};\n",
                "a/literal.cc": "const char* f(int a) {\n  // }\n"
                + '  return "}" R"x(})x" + \'}\' + 1\'000;\n' + "  ++a;\n" * 68 + "}\n",
                "a/broken.cc": "void f() {\n",
            },
            {
                "a/method.h:3",
                "a/init.cc:1",
                "a/lambda.cc:1",
                "a/tail.cc:1",
                "a/literal.cc:1",
                "a/broken.cc",
            },
        ),
    ],
    "headers": [
        (
            {
                "base/good.h": "#pragma once\n#include <cstdint>\nstd::uint32_t f();\n",
                "base/bad.h": '#pragma once\n#include "base/good.h"\nstd::vector<int> g();\n',
                # The build would have found it; the rule saves the time.
                "base/first.h": "#pragma once\nstd::vector<int> g();\n",
                "base/first.cc": '// First.\n#include "base/first.h"\n#include <vector>\n',
                "base/second.h": "#pragma once\nstd::vector<int> g();\n",
                "base/second.cc": '#include <vector>\n#include "base/second.h"\n',
            },
            {"base/bad.h", "base/second.h"},
        )
    ],
    "data_path": [
        (
            {
                "transport/x_datapath.cc": "void f(V& v) {\n"
                "  v.push_back(1);\n"
                "  v.size();  // v.push_back(1) in a comment\n"
                "  auto* p = new int;\n"
                "  throw 1;\n"
                "  std::printf(\"x\");\n"
                "  std::lock_guard<std::mutex> l(m);\n"
                "  std::function<void()> g;\n"
                "  a.load();\n"
                "  a.load(std::memory_order_acquire);\n"
                "  std::this_thread::sleep_for(x);\n"
                "  std::string s;\n"
                "  std::string_view t;\n"
                "}\n",
                "multicast/session.cc": "S::S() {\n"
                "  v.resize(  // set-up:\n      3);\n  v.resize(4);\n}\n"
                "// set-up: reads the\n// settings.\n"
                "void S::open() {\n  p = std::make_unique<int>(1);\n}\n"
                "void S::run() {\n  // set-up: once\n  v.reserve(1);\n  v->insert(2);\n"
                "  bitmap.insert(3);\n}\n",
                "sync/mix/accumulator_fail.cc": "void f() {\n  if (bad) {\n"
                "    // failure: the job ends.\n    end(\"x\" +\n        std::to_string(1));\n"
                "    end(\"x\" +\n        std::to_string(1));\n  }\n}\n",
                "sync/driver.cc": "void f(V& v) {\n  v.push_back(1);\n}\n",
                "sync/free/clocks.cc": "void f(V& v) {\n  v.push_back(1);\n}\n",
                "sync/rounds/windows.cc": "void f(V& v) {\n  v.push_back(1);\n}\n",
                "sync/planner.cc": "void f(V& v) {\n  v.push_back(1);\n}\n",
                "sync/rounds/lock_step.cc": "void f(V& v) {\n  free(malloc(1));\n}\n",
                "tests/x_datapath.cc": "void f(V& v) {\n  v.push_back(1);\n}\n",
            },
            {f"transport/x_datapath.cc:{line}" for line in (2, 4, 5, 6, 7, 8, 9, 11, 12)}
            | {"multicast/session.cc:4", "multicast/session.cc:14", "sync/rounds/lock_step.cc:2"}
            | {"sync/mix/accumulator_fail.cc:7", "sync/driver.cc:2", "sync/free/clocks.cc:2"},
        )
    ],
    "folders": [
        (_FULL, set()),
        (_without("sync/README.md"), {"sync/README.md"}),
        ({**_FULL, "cli/README.md": "x\n" * 61}, {"cli/README.md"}),
        ({**_FULL, "base/README.md": "x\n"}, {"base/README.md"}),
        (_without("tools/perf/README.md"), {"tools/perf/README.md"}),
        ({**_FULL, "sync/mix/README.md": "x\n" * 61}, {"sync/mix/README.md"}),
        (_without("SECURITY.md"), {"SECURITY.md"}),
        (
            {
                **_FULL,
                "docs/decisions/0001-two.md": "x\n",
                "docs/decisions/0002-long.md": "x\n" * 16,
                "docs/decisions/third.md": "x\n",
            },
            {"docs/decisions/0001-two.md", "docs/decisions/0002-long.md"}
            | {"docs/decisions/third.md"},
        ),
        (_without("LICENSE"), {"LICENSE"}),
        ({**_FULL, "LICENSE": "MIT\n"}, {"LICENSE"}),
    ],
    "names": [
        (
            {
                "a/one.h": "namespace n {\nstruct Report {\n};\nclass Ahead;\n}  // namespace n\n",
                "b/two.h": "namespace n {\nclass Ahead;\nstruct Report final {\n};\n"
                "}  // namespace n\n",
                # Another namespace, none that others see, a member, another specialisation.
                "b/other.h": "namespace n::m {\nstruct Report {\n};\n}  // namespace n::m\n"
                "namespace n {\nclass Ahead {\n};\n}  // namespace n\n",
                "b/own.cc": "namespace n {\nnamespace {\nstruct Report {\n};\n}  // namespace\n"
                "struct Ahead::Report {\n};\nenum class Kind : int { a };\n}  // namespace n\n",
                "c/kind.h": "namespace n {\nenum class Kind { b };\ntemplate <>\n"
                "struct F<int> {\n};\n}  // namespace n\n",
            },
            {"b/two.h:3", "c/kind.h:2"},
        )
    ],
    "text": [
        (
            {
                "a/x.h": "#pragma once\n// TO" + "DO: later\nint x;\n",
                "a/y.h": "int y;\n",
                "a/z.cc": "int z;  \nint\tq;\r\nconst char* p = \"/ho" + "me/me/data\";\n",
                "a/noend.py": "x = 1",
                "scripts/build": "cd /wo" + "rk/project\n",
                "a/fine.md": "see https://example.org/work/a and src/home/b, todo lists, /tmp/x\n",
                "build/skipped.cc": "int z;  \n",
                "tests/fuzz/seeds/x_fuzz/cut": "no line end",
            },
            {"a/x.h:2", "a/y.h", "a/noend.py", "scripts/build:1"}
            | {"a/z.cc:1", "a/z.cc:2", "a/z.cc:3"},
        )
    ],
    "generated": [
        (
            {
                ".ninja_deps": "x",
                "build/a.txt": "x",
                "a/build/b.txt": "x",
                "a/b.o": "x",
                "a/.ninja_log": "x",
                "build-asan/x": "x",
                "CMakeCache.txt": "x",
                "a/__pycache__/b.pyc": "x",
                # A script, a header and a folder that only sound like it.
                "scripts/build": "x",
                "a/rebuild/b.cc": "x",
                "a/core.h": "x",
                "a/b.os": "x",
            },
            {".ninja_deps", "build/a.txt", "a/build/b.txt", "a/b.o", "a/.ninja_log"}
            | {"build-asan/x", "CMakeCache.txt", "a/__pycache__/b.pyc"},
        )
    ],
    "layout": [
        (
            {
                ".clang-format": "BasedOnStyle: Google\n",
                "a/good.cc": "int f(int a) { return a; }\n",
                "a/bad.cc": "int f( int a ) {return a;}\n",
            },
            {"a/bad.cc"},
        )
    ],
    "packages": [
        (
            {
                "scripts/packages": "# comment\n\ng++ build compiler\ncmake build\n"
                "x some day\ng++ test once more\n"
            },
            {"scripts/packages:4", "scripts/packages:5", "scripts/packages:6"},
        )
    ],
}


def unseen_violations(rule):
    """Yields where the rule's answer on a planted tree differs from the known one."""
    for number, (files, expected) in enumerate(CASES[rule.__name__], 1):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
            seen = {line.split(": ")[0] for line in rule(SourceTree(folder))}
        for place in sorted(expected - seen):
            yield f"planted tree {number}: not reported: {place}"
        for place in sorted(seen - expected):
            yield f"planted tree {number}: wrongly reported: {place}"
