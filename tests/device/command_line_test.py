#!/usr/bin/env python3
"""What every subcommand promises: exit status, one line of error, one JSON document."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ.get("SELMCAST", "build/release/selmcast")


def selmcast(*arguments, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    options = {"stdin": subprocess.DEVNULL, "text": True, "timeout": 60, **options}
    return subprocess.run([PROGRAM, *arguments], check=False, **options)


class Usage(unittest.TestCase):
    def refuse(self, arguments, *words):
        """Exit 2, nothing on standard output, one line on standard error with these words."""
        done = selmcast(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("selmcast: "), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_no_command(self):
        self.refuse([], "doctor", "policies", "--help")

    def test_commands_for_our_own_use_are_not_offered(self):
        for arguments in ([], ["docter"]):
            self.assertNotRegex(selmcast(*arguments).stderr, r"(probe|train)-worker")

    def test_unknown_command(self):
        self.refuse(["docter"], "docter", "doctor")

    def test_unknown_flag(self):
        self.refuse(["doctor", "--jsno", "-"], "--jsno", "selmcast doctor --help")

    def test_unknown_flag_before_the_command(self):
        self.refuse(["--jsno", "doctor"], "--jsno")

    def test_stray_word(self):
        self.refuse(["policies", "all"], "all", "selmcast policies --help")

    def test_flag_without_its_value(self):
        self.refuse(["doctor", "--json"], "--json")

    def test_sim_without_sense(self):
        self.refuse(["sim"], "--experiment", "--links")
        self.refuse(["sim", "--experiment", "nothing"], "nothing", "bsp", "ssp")
        self.refuse(["sim", "--experiment", "bsp", "--policy", "select=all"], "--links")
        self.refuse(["sim", "--experiment", "bsp", "--csv", "/no/such/x.csv"], "/no/such/x.csv")
        self.refuse(["sim", "--experiment", "bsp", "--trials", "many"], "--trials")
        self.refuse(["sim", "--links", "/no/such/links.json"], "/no/such/links.json")

    def test_defaults_suit_every_number_of_workers(self):
        for workers in ("1", "2", "3", "4"):
            for command in (["run", "--params-bytes", "4000", "--rounds", "2"],
                            ["train", "--epochs", "1", "--no-references"]):
                with self.subTest(command=command[0], workers=workers):
                    done = selmcast(*command, "--workers", workers, "--transport", "shm", "--json",
                                    "-")
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn("select=all", json.loads(done.stdout)["policy"])
        # What a name asks for is lowered, what a user wrote is not.
        run = ["run", "--params-bytes", "4000", "--rounds", "2", "--transport", "shm", "--workers",
               "2", "--json", "-", "--policy"]
        done = selmcast(*run, "selmcast")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("p = 2 receivers is lowered to 1", done.stderr)
        self.assertIn("select=selmcast:1", json.loads(done.stdout)["policy"])
        self.refuse([*run, "select=selmcast:2"], "p = 2", "1 others")
        alone = [word if word != "2" else "1" for word in run]
        for name in ("selmcast", "selmcast-ssp", "orpheus", "gossip"):
            with self.subTest(name=name):
                self.assertEqual(selmcast(*alone, name).returncode, 0)

    def test_line_breaks_in_arguments_stay_on_one_line(self):
        self.refuse(["doctor", "--a\nb"], "--a b")

    def test_json_path_that_cannot_be_written(self):
        self.refuse(["doctor", "--json", "/no/such/folder/x.json"], "/no/such/folder/x.json")

    def test_help_of_every_command_has_an_example(self):
        top = selmcast("--help")
        self.assertEqual(top.returncode, 0)
        self.assertEqual(top.stderr, "")
        commands = [
            line.split()[0]
            for line in top.stdout.split("Subcommands:")[1].split("Example")[0].splitlines()
            if line.startswith("  ") and line[2] != " "
        ]
        self.assertIn("doctor", commands)
        for command in commands:
            done = selmcast(command, "--help")
            self.assertEqual(done.returncode, 0, command)
            self.assertIn("Example", done.stdout, command)

    def test_version(self):
        done = selmcast("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^selmcast \d+\.\d+\.\d+\n$")


class Output(unittest.TestCase):
    def document(self, command):
        done = selmcast(command, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["schema"], 1)
        return document

    def test_doctor(self):
        document = self.document("doctor")
        names = {interface["name"] for interface in document["interfaces"]}
        self.assertEqual(names, set(os.listdir("/sys/class/net")) - {"bonding_masters"})
        transports = {transport["name"]: transport for transport in document["transports"]}
        for name in ("shm", "uring"):
            self.assertIn(name, transports)
            if not transports[name]["usable"]:
                self.assertNotEqual(transports[name]["reason"], "", name)
        text = selmcast("doctor").stdout
        for name in sorted(names) + sorted(transports):
            self.assertIn(name, text)

    def test_policies(self):
        document = self.document("policies")
        words = {(word["axis"], word["value"]) for word in document["words"]}
        self.assertIn(("pace", "bsp"), words)
        defaults = [word["axis"] for word in document["words"] if word["default"]]
        self.assertEqual(len(defaults), len(set(defaults)), "an axis with two defaults")
        self.assertIn("bsp", {name["name"] for name in document["names"]})

    def test_sim(self):
        done = selmcast("sim", "--experiment", "list", "--json", "-")
        names = [one["name"] for one in json.loads(done.stdout)["experiments"]]
        self.assertIn("bsp", names)
        self.assertIn("ssp", names)
        with tempfile.TemporaryDirectory() as folder:
            csv, svg = pathlib.Path(folder) / "x.csv", pathlib.Path(folder) / "x.svg"
            command = ["sim", "--experiment", "bsp", "--trials", "2", "--seed", "5"]
            done = selmcast(*command, "--csv", str(csv), "--svg", str(svg), "--json", "-")
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(done.stdout)
            self.assertEqual(len(csv.read_text().splitlines()), 1 + 2 * len(document["points"]))
            self.assertTrue(svg.read_text().startswith("<svg"))
            for point in document["points"]:
                if point["method"] == "orpheus" and point["metric"] == "receivers":
                    self.assertAlmostEqual(point["ours"][0]["mean"], 0.3)
        self.assertEqual(json.loads(selmcast(*command, "--json", "-").stdout), document)

    def test_json_file_beside_human_output(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "doctor.json"
            done = selmcast("doctor", "--json", str(path))
            self.assertEqual(done.returncode, 0)
            self.assertIn("Transports", done.stdout)
            self.assertEqual(json.loads(path.read_text())["schema"], 1)

    def test_full_device_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            done = selmcast("doctor", "--json", "-", stdout=full)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left", done.stderr)

    def test_names_of_standard_output_are_the_document_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out"
            with open(path, "w") as out:
                done = selmcast("doctor", "--json", "/dev/stdout", stdout=out)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(path.read_text())["schema"], 1)
        done = selmcast("doctor", "--json", "/dev/stdout")
        self.assertEqual(json.loads(done.stdout)["schema"], 1)
        self.assertTrue(os.path.exists("/dev/stdout"))
        done = selmcast("doctor", "--json", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--json /dev/full", done.stderr)

    def test_reader_that_went_away_is_a_failure_with_words(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = selmcast("doctor", "--json", "-", stdout=writer)
        os.close(writer)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    if not os.access(PROGRAM, os.X_OK):
        sys.exit(f"no program {PROGRAM}; set SELMCAST")
    unittest.main()
