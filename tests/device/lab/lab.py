"""A throw-away network on this host: one namespace per rank behind a bridge with IGMP snooping.

    with Lab(4, down_mbps=[100, 100, 200, 400]) as lab:
        worker = lab.popen(0, ["selmcast", "worker", ...])
        ...
        lab.counters(0)["tx_bytes"], lab.mdb()

Rank i has the address lab.address(i) on its interface INTERFACE. Everything a lab made is gone
after the block: processes in its namespaces, then the namespaces. What a killed run left behind is
removed by the next lab. Needs root and the commands ip, bridge, tc and nft (for loss only).

The counters of virtual links count a segmentation-offload burst as one packet, and its headers
once: tx_bytes is the payload plus 42 bytes per burst, not per frame.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

INTERFACE = "eth0"
PREFIX = "selmcast-lab"
SKIPPED = 77  # exit status of a test that lacks something on the machine

_serial = itertools.count()

# Sends datagrams to a group nobody joined; run inside a rank's namespace.
_PROBE = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
for _ in range(20):
    s.sendto(b"flooded?", ("239.255.0.1", 9))
"""


class LabError(RuntimeError):
    """A command of the lab failed; the text is the command and what it said."""


def skip_reason(loss=False):
    """Why no lab can be made here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root; run the tests with sudo"
    for command in ("ip", "bridge", "tc") + (("nft",) if loss else ()):
        if shutil.which(command) is None:
            return f"the command {command} is missing; install iproute2 and nftables"
    probe = f"{PREFIX}-{_identity()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode != 0:
        return "network namespaces are not allowed here (ip netns add failed)"
    kinds = [["ip", "-n", probe, "link", "add", "br0", "type", "bridge"],
             ["ip", "-n", probe, "link", "add", "v0", "type", "veth", "peer", "name", "v1"]]
    lacking = [k for k in kinds if subprocess.run(k, capture_output=True).returncode != 0]
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"the kernel lacks {lacking[0][7]} devices" if lacking else None


def require(loss=False):
    """Ends the program with status 77 and the reason where no lab can be made."""
    reason = skip_reason(loss)
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)


class Lab:
    """See the module. Rates are Mbit/s per rank or None, as seen on the wire with headers; `down`
    is towards the rank, where `queue_bytes` may wait before the port drops. Upwards the sender's
    socket is held back instead, as by a real device. `loss` is the share of UDP packets (of bursts,
    where offload makes them) dropped on the way to each rank."""

    def __init__(self, ranks, mtu=1500, down_mbps=None, up_mbps=None, loss=None,
                 queue_bytes=1 << 20):
        if not 1 <= ranks <= 250:
            raise ValueError(f"ranks is {ranks}: 1 to 250 fit into the lab's network")
        for name, values in (("down_mbps", down_mbps), ("up_mbps", up_mbps), ("loss", loss)):
            if values is not None and len(values) != ranks:
                raise ValueError(f"{name} has {len(values)} values for {ranks} ranks")
        self.ranks = ranks
        self._mtu = mtu
        self._down = down_mbps or [None] * ranks
        self._up = up_mbps or [None] * ranks
        self._loss = loss or [0] * ranks
        self._queue_bytes = queue_bytes
        self._name = f"{PREFIX}-{_identity()}-{next(_serial)}"
        self._processes = []
        self._previous_handler = None

    # -- names --------------------------------------------------------------------------------
    def namespace(self, rank):
        return f"{self._name}-r{rank}"

    @property
    def bridge_namespace(self):
        return f"{self._name}-bridge"

    def address(self, rank):
        return f"10.77.0.{rank + 1}"

    # -- life ---------------------------------------------------------------------------------
    def __enter__(self):
        remove_leftovers()
        self._catch_terminate()
        try:
            self._build()
            self._wait_until_pruned()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the lab's processes and removes its namespaces. Safe to call twice."""
        _end([p for p in self._processes if p.poll() is None])
        self._processes = []
        _remove_namespaces([n for n in _namespaces() if n.startswith(self._name + "-")])
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)
            self._previous_handler = None

    # -- use ----------------------------------------------------------------------------------
    def popen(self, rank, argv, **options):
        """Starts a program in the rank's namespace; its pid is the program's own."""
        process = subprocess.Popen(["ip", "netns", "exec", self.namespace(rank), *argv], **options)
        self._processes.append(process)
        return process

    def run(self, rank, argv, timeout=60, **options):
        """Runs a program in the rank's namespace to its end; kills it at the timeout."""
        return subprocess.run(["ip", "netns", "exec", self.namespace(rank), *argv],
                              timeout=timeout, **options)

    def counters(self, rank):
        """rx_bytes, rx_packets, tx_bytes, tx_packets, rx_dropped, tx_dropped of the rank's
        interface, since it was made."""
        return _counters(self.namespace(rank), INTERFACE)

    def port_counters(self, rank):
        """The same of the bridge's port to the rank: tx is what goes towards the rank."""
        return _counters(self.bridge_namespace, f"p{rank}")

    def mdb(self):
        """{group: set of ranks} as the bridge has learned them."""
        text = _run(["bridge", "-n", self.bridge_namespace, "-j", "mdb", "show"])
        out = {}
        for table in json.loads(text or "[]"):
            for entry in table.get("mdb", []):
                if entry["port"].startswith("p"):
                    out.setdefault(entry["grp"], set()).add(int(entry["port"][1:]))
        return out

    def set_link(self, rank, up):
        """Pulls or restores the rank's cable at the bridge."""
        _run(["ip", "-n", self.bridge_namespace, "link", "set", f"p{rank}",
              "up" if up else "down"])

    # -- making -------------------------------------------------------------------------------
    def _build(self):
        bridge = self.bridge_namespace
        names = [bridge] + [self.namespace(r) for r in range(self.ranks)]
        for name in names:
            _run(["ip", "netns", "add", name])
            # Neighbour discovery and MLD would blur the counters.
            _run(["ip", "netns", "exec", name, "sh", "-c",
                  "for f in all default; do "
                  "echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done 2>/dev/null || true"])
            _run(["ip", "-n", name, "link", "set", "lo", "up"])
        # A bridge floods multicast for one query response interval (10 s by default) after its
        # querier starts, so the interval is shortened (to 1 s, in 1/100 s) before it starts.
        _run(["ip", "-n", bridge, "link", "add", "br0", "type", "bridge", "mcast_snooping", "1",
              "mcast_query_response_interval", "100", "mcast_querier", "0"])
        for rank in range(self.ranks):
            self._build_rank(rank)
        _run(["ip", "-n", bridge, "link", "set", "br0", "up"])
        _run(["ip", "-n", bridge, "link", "set", "br0", "type", "bridge", "mcast_querier", "1"])
        self._build_loss()

    def _build_rank(self, rank):
        bridge, name, port = self.bridge_namespace, self.namespace(rank), f"p{rank}"
        mtu = str(self._mtu)
        _run(["ip", "link", "add", INTERFACE, "mtu", mtu, "netns", name, "type", "veth",
              "peer", "name", port, "mtu", mtu, "netns", bridge])
        _run(["ip", "-n", bridge, "link", "set", port, "master", "br0", "up"])
        _run(["ip", "-n", name, "addr", "add", self.address(rank) + "/24", "dev", INTERFACE])
        _run(["ip", "-n", name, "link", "set", INTERFACE, "up"])
        self._shape(bridge, port, self._down[rank], self._queue_bytes)
        # More than the sockets' send buffers together: full buffers, not drops, end the queue.
        self._shape(name, INTERFACE, self._up[rank], 16 << 20)

    def _shape(self, namespace, device, mbps, queue_bytes):
        if mbps is None:
            return
        # The bucket takes one whole offload burst, else it would be cut into packets here.
        _run(["tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf",
              "rate", f"{int(mbps * 1000)}kbit", "burst", str(80 * 1024),
              "limit", str(queue_bytes)])

    def _build_loss(self):
        rules = [f'oifname "p{rank}" ether type ip ip protocol udp '
                 f"numgen random mod 1000000 < {int(share * 1000000)} drop"
                 for rank, share in enumerate(self._loss) if share > 0]
        if rules:
            text = ("table bridge lab {\nchain loss {\n"
                    "type filter hook forward priority 0; policy accept;\n"
                    + "\n".join(rules) + "\n}\n}\n")
            _run(["ip", "netns", "exec", self.bridge_namespace, "nft", "-f", "-"], text)

    def _wait_until_pruned(self, at_most=20.0):
        """Returns once the bridge no longer floods groups without members."""
        if self.ranks < 2:
            return
        deadline = time.monotonic() + at_most
        while time.monotonic() < deadline:
            before = self.port_counters(1)["tx_packets"]
            self.run(0, [sys.executable, "-S", "-c", _PROBE, self.address(0)], check=True)
            if self.port_counters(1)["tx_packets"] - before < 10:
                return
            time.sleep(0.2)
        raise LabError(f"the bridge still floods multicast after {at_most:.0f} s")

    def _catch_terminate(self):
        """Turns SIGTERM into an exit that unwinds the block, unless the program handles it."""
        try:
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                self._previous_handler = signal.signal(
                    signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        except ValueError:
            pass  # not the main thread: the next lab cleans up


def remove_leftovers():
    """Removes what labs of ended processes left; labs of living ones are not touched."""
    stale = []
    for name in _namespaces():
        parts = name.split("-")
        if not name.startswith(PREFIX + "-") or len(parts) < 5:
            continue
        if not (parts[2].isdigit() and _start_time(int(parts[2])) == parts[3]):
            stale.append(name)
    _remove_namespaces(stale)


def _identity():
    """Process id and start time: unique even when ids are used again."""
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def _start_time(pid):
    """Start of a living process in clock ticks since boot, or None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _run(argv, text=None):
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _counters(namespace, device):
    text = _run(["ip", "-n", namespace, "-j", "-s", "link", "show", "dev", device])
    stats = json.loads(text)[0]["stats64"]
    return {f"{way}_{what}": stats[way][what]
            for way in ("rx", "tx") for what in ("bytes", "packets", "dropped")}


def _namespaces():
    if shutil.which("ip") is None:
        return []
    return [line.split()[0] for line in _run(["ip", "netns", "list"]).splitlines() if line.strip()]


def _end(processes, patience=2.0):
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + patience
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _remove_namespaces(names):
    for name in names:
        # Grandchildren, and children of a killed run: only what lives in a namespace of a lab.
        done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
        for pid in done.stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
