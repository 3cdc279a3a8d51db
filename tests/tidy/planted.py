"""Small trees with known violations: each rule must report exactly those, before it may judge."""

import pathlib
import tempfile

from source_tree import FOLDERS, SourceTree


def _function_of(lines, signature="void f(int a)"):
    return "\n".join([signature + " {", *["  ++a;"] * (lines - 2), "}", ""])


_LICENSE = "Apache License\nVersion 2.0, January 2004\n"
_FULL = {
    **{f"{folder}/README.md": "# x\n\ny\n" for folder in FOLDERS},
    "README.md": "x\n",
    "docs/decisions.md": "x\n",
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
            },
            {
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
    "sizes": [
        (
            {
                "a/long.cc": "int x;\n" * 501,
                "a/fits.cc": "int x;\n" * 500,
                "a/long.h": "int x;\n" * 251,
                "a/fits.h": "int x;\n" * 250,
                "a/wide.cc": "int y;\n//" + "-" * 99 + "\n//" + "-" * 98 + "\n",
                "a/wide.py": "#" + "-" * 100 + "\n",
                "a/f.cc": "namespace n {\n" + _function_of(70) + _function_of(71) + "}\n",
                "tests/f.cc": _function_of(300),
            },
            {"a/long.cc", "a/long.h", "a/wide.cc:2", "a/wide.py:1", "a/f.cc:72"},
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
                "sync/accumulator_fail.cc": "void f() {\n  if (bad) {\n"
                "    // failure: the job ends.\n    end(\"x\" +\n        std::to_string(1));\n"
                "    end(\"x\" +\n        std::to_string(1));\n  }\n}\n",
                "sync/planner.cc": "void f(V& v) {\n  v.push_back(1);\n}\n",
                "sync/accumulator_sum.cc": "void f(V& v) {\n  free(malloc(1));\n}\n",
                "tests/x_datapath.cc": "void f(V& v) {\n  v.push_back(1);\n}\n",
            },
            {f"transport/x_datapath.cc:{line}" for line in (2, 4, 5, 6, 7, 8, 9, 11, 12)}
            | {"multicast/session.cc:4", "multicast/session.cc:14", "sync/accumulator_sum.cc:2"}
            | {"sync/accumulator_fail.cc:7"},
        )
    ],
    "folders": [
        (_FULL, set()),
        (_without("sync/README.md"), {"sync/README.md"}),
        ({**_FULL, "cli/README.md": "x\n" * 61}, {"cli/README.md"}),
        ({**_FULL, "base/README.md": "x\n"}, {"base/README.md"}),
        (_without("docs/decisions.md"), {"docs/decisions.md"}),
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
