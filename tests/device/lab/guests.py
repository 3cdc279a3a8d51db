"""Programs in QEMU guests with Soft-RoCE devices, through scripts/rxe-vm.

    guests.require()                       # skips the test where no guest can run
    ends = run_in_guests(["ibv_devinfo"], devs=2)
    ends = run_in_guests((["server"], ["client", "g0"]), guests=2, netem="loss 1%", timeout=90)
    ends.status, ends[1].status, ends[1].stdout, ends[1].stderr

A command is a list of words, or a text for bash. One command runs in every guest; a tuple of
commands gives each guest its own. In a guest, verbs devices are rxe0, rxe1.., and scripts/rxe-vm
--help lists the variables and commands there are.
"""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "rxe-vm"
SKIPPED = 77   # exit status of a test that lacks something on the machine
CANNOT = 3     # exit status of rxe-vm on a machine where no guest can run
TIME_LIMIT = 124
BROKEN = 125
DIED = "died"  # Guest.status of a guest that was allowed to die and did


class Guest:
    """How one guest ended: status (an exit status, DIED, or None when the run ended before it),
    stdout, stderr."""

    def __init__(self, folder, number):
        self.status = None
        text = _read(folder / f"status.{number}").strip()
        if text:
            self.status = DIED if text == DIED else int(text)
        self.stdout = _read(folder / f"stdout.{number}")
        self.stderr = _read(folder / f"stderr.{number}")

    def __str__(self):
        return f"status {self.status}\n{self.stdout}{self.stderr}"


class Ends(list):
    """One Guest each; `status` is that of rxe-vm, `said` what rxe-vm itself had to say."""

    def __init__(self, folder, count, status, said):
        super().__init__(Guest(folder, number) for number in range(count))
        self.status = status
        self.said = said

    def __str__(self):
        parts = [f"rxe-vm: status {self.status}\n{self.said}"]
        return "\n".join(parts + [f"guest {n}: {guest}" for n, guest in enumerate(self)])


def skip_reason():
    """Why no guest can run here, or None. The first call on a machine installs and unpacks."""
    done = subprocess.run([SCRIPT, "--setup"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=1000, check=False)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or [f"rxe-vm --setup: status {done.returncode}"]
    if done.returncode != CANNOT:
        raise RuntimeError(f"rxe-vm --setup failed with {done.returncode}: {lines[-1]}")
    return lines[-1]


def require():
    """Ends the program with status 77 and the reason where no guest can run."""
    reason = skip_reason()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)


def run_in_guests(command, guests=1, devs=1, timeout=120, netem=None, cpus=None, mem=None, mtu=None,
                  snooping=False, rw=(), exchange=None, may_die=(), env=None, cwd=None):
    """Runs to the end and returns Ends. `timeout` is in seconds, boot (5 to 10 s a guest) included;
    `env` is added to the caller's environment. Raises when no guest can run."""
    argv = [SCRIPT, "--guests", guests, "--devs", devs, "--timeout", timeout]
    for option, value in (("--netem", netem), ("--cpus", cpus), ("--mem", mem), ("--mtu", mtu),
                          ("--exchange", exchange)):
        argv += [option, value] if value is not None else []
    argv += ["--snooping"] if snooping else []
    for option, values in (("--rw", rw), ("--may-die", may_die)):
        for value in values:
            argv += [option, value]
    with tempfile.TemporaryDirectory(prefix="selmcast-guests-") as folder:
        argv += ["--output", folder, "--", *_words(command, guests)]
        process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **(env or {})}, cwd=cwd)
        try:
            said = process.communicate(timeout=timeout + 60)[1]
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            raise
        if process.returncode in (2, CANNOT) and not os.path.exists(f"{folder}/status.0"):
            raise RuntimeError(said.strip())
        return Ends(pathlib.Path(folder), guests, process.returncode, said)


def _words(command, guests):
    if not isinstance(command, tuple):
        return ["bash", "-c", command] if isinstance(command, str) else list(command)
    if len(command) != guests:
        raise ValueError(f"{len(command)} commands for {guests} guests")
    cases = "".join(f"{number}) exec {shlex.join(str(w) for w in _words(one, guests))} ;;\n"
                    for number, one in enumerate(command))
    return ["bash", "-c", f"case $RXE_GUEST in\n{cases}esac"]


def _read(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
