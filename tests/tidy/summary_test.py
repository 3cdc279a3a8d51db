#!/usr/bin/env python3
"""scripts/lib/summary.py on result files as CTest writes them."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))

import summary


def case(name, status="run", inner="", output=""):
    return (
        f'<testcase name="{name}" status="{status}">{inner}'
        f"<system-out>{output}</system-out></testcase>"
    )


PASS = case("ok")
FAIL = case("bad", "fail", '<failure message=""/>')
TIMEOUT = case("slow", "fail", '<failure message="Timeout"/>')
NOT_BUILT = case("gone", "notrun", '<skipped message="Unable to find executable"/>')
REGULAR = '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
GTEST_OUTPUT = "[ RUN      ] A.B\n/x/y_test.cc:3: Skipped\n{}\n\n[  SKIPPED ] A.B (0 ms)\n"
GTEST_SKIP = case("skip", "notrun", REGULAR, GTEST_OUTPUT.format("no such\ndevice"))
SCRIPT_SKIP = case(
    "script", "notrun", '<skipped message="SKIP_RETURN_CODE=77"/>', "hello\nno veth\n"
)
SKIP_AND_FAIL = case("both", "notrun", REGULAR, GTEST_OUTPUT.format("x") + "[  FAILED  ] A.B\n")


class Summary(unittest.TestCase):
    def run_on(self, *suites, broken=()):
        """Exit status and printed lines for JUnit files with these cases."""
        with tempfile.TemporaryDirectory() as folder:
            arguments = [part for step in broken for part in ("--broken", step)]
            for number, cases in enumerate(suites):
                path = pathlib.Path(folder) / f"{number}.xml"
                path.write_text(f"<testsuite>{cases}</testsuite>")
                arguments.append(f"run {number}={path}")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                status = summary.main(arguments)
        return status, printed.getvalue().splitlines()

    def test_all_passed(self):
        self.assertEqual(self.run_on(PASS * 3, PASS), (0, ["4 passed, 0 failed, 0 skipped"]))

    def test_failures_are_named_and_fail(self):
        status, lines = self.run_on(PASS + FAIL, TIMEOUT + NOT_BUILT)
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "1 passed, 3 failed, 0 skipped")
        self.assertIn("FAILED: run 0: bad", lines)
        self.assertIn("FAILED: run 1: gone", lines)

    def test_a_failure_says_why_next_to_the_last_line(self):
        script = case("py", "fail", '<failure message=""/>',
                      "ok\nFAIL: test_x (a.B)\nTraceback\nAssertionError: 3 != 4\nRan 1 test\n")
        gtest = case("cc", "fail", '<failure message=""/>',
                     "[ RUN ] A.B\na.cc:3: Failure\nExpected: 1\n  Actual: 2\n[  FAILED  ] A.B\n")
        crash = case("die", "fail", '<failure message=""/>', "one\ntwo\n" + "x" * 500)
        late = case("late", "fail", '<failure message="Timeout"/>', "waiting\n")
        _, lines = self.run_on(GTEST_SKIP + script + gtest + crash + late)
        self.assertEqual(lines[-13:], [
            "FAILED: run 0: py", "    FAIL: test_x (a.B)", "    AssertionError: 3 != 4",
            "FAILED: run 0: cc",
            "    a.cc:3: Failure Expected: 1 Actual: 2 [  FAILED  ] A.B",
            "FAILED: run 0: die", "    one", "    two", "    " + "x" * 160,
            "FAILED: run 0: late", "    Timeout", "    waiting",
            "0 passed, 4 failed, 1 skipped"])

    def test_skips_are_listed_with_their_reasons(self):
        status, lines = self.run_on(PASS + GTEST_SKIP, SCRIPT_SKIP + GTEST_SKIP)
        self.assertEqual(status, 0)
        self.assertEqual(
            lines,
            [
                "skipped: no such device",
                "    run 0: skip",
                "    run 1: skip",
                "skipped: no veth",
                "    run 1: script",
                "1 passed, 0 failed, 3 skipped",
            ],
        )

    def test_a_test_that_fails_and_then_skips_has_failed(self):
        status, lines = self.run_on(PASS + SKIP_AND_FAIL)
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_nothing_run_is_no_success(self):
        self.assertEqual(self.run_on(""), (1, ["0 passed, 0 failed, 0 skipped"]))
        self.assertEqual(self.run_on(SCRIPT_SKIP)[0], 1)
        self.assertEqual(self.run_on()[0], 1)

    def test_a_broken_build_counts_once(self):
        status, lines = self.run_on(PASS, broken=["build tsan"])
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        self.assertIn("FAILED: build tsan: did not finish", lines)

    def test_a_missing_or_cut_result_file_fails(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(summary.main(["x=/no/such/file"]), 1)
        self.assertIn("0 passed, 1 failed, 0 skipped", printed.getvalue())
        status, lines = self.run_on(PASS, "<testcase>")
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
