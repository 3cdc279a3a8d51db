"""What the training benches share: running `selmcast train`, statistics over seeds, machine facts,
and curves as SVG."""

import concurrent.futures
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile

TARGET = 0.95  # Accuracy of the mean model that `time to 95 %` asks for.
# Student's t by degrees of freedom: for two-sided and for one-sided 95 % intervals.
TWO_SIDED = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
ONE_SIDED = {1: 6.31, 2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86, 9: 1.83}
COLOURS = ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f00",
           "#7f3f98", "#8c564b", "#e41a1c", "#4daf4a"]


@dataclasses.dataclass
class Setup:
    """One training job but for policy and seed."""
    program: str
    data: str
    split: str
    epochs: int
    links_kbps: list  # Per rank, both directions.
    compute_ms: float = 2.0
    slowdown: list = dataclasses.field(default_factory=list)
    model: str = "mlp"
    hidden: int = 32
    curve_steps: int = 0
    references: bool = False
    transport: str = "auto"

    @property
    def workers(self):
        return len(self.links_kbps)


def train(setup, policy, seed):
    """The JSON document of one run; ends the program when the run fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as links:
        json.dump({"tx_kbps": setup.links_kbps, "rx_kbps": setup.links_kbps}, links)
        links.flush()
        command = [setup.program, "train", "--workers", str(setup.workers), "--data", setup.data,
                   "--model", setup.model, "--hidden", str(setup.hidden), "--epochs",
                   str(setup.epochs), "--compute-ms", str(setup.compute_ms), "--links", links.name,
                   "--split", setup.split, "--curve-steps", str(setup.curve_steps), "--policy",
                   policy, "--seed", str(seed), "--transport", setup.transport, "--steps-by-speed",
                   "--json", "-"]
        if setup.slowdown:
            command += ["--slowdown", ",".join(f"{factor:g}" for factor in setup.slowdown)]
        if not setup.references:
            command.append("--no-references")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
    if done.returncode != 0:
        sys.exit(f"{policy}, seed {seed}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def train_all(setup, policies, seed, at_a_time=None):
    """A run per policy. Simulated jobs use a thread each, real ones must not disturb each other."""
    at_a_time = (at_a_time or os.cpu_count() or 1) if setup.transport == "sim" else 1
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(lambda policy: train(setup, policy, seed), policies))


def curve(result):
    return result["curves"]["by_time"]


def time_to_target(result, target=TARGET):
    """First moment at which the mean of the newest models reached the target, or None."""
    for point in curve(result):
        if point["accuracy"] >= target:
            return point["seconds"]
    return None


def samples_to_target(setup, result, curve_of="workers", target=TARGET):
    """Samples all workers together had seen when the mean of their models after equally many steps
    (or, curve_of="baseline", the single process) reached the target; None if it never did."""
    for point in result["curves"][curve_of]:
        if point["accuracy"] >= target:
            return point["steps"] * result["batch"] * setup.workers
    return None


def value_at(result, seconds, field):
    """A field of the last point of the curve by time that is not after the moment."""
    value = curve(result)[0][field]
    for point in curve(result):
        if point["seconds"] > seconds + 1e-9:
            break
        value = point[field]
    return value


def interval(values, table=None):
    """Mean and half width of its 95 % interval (two-sided unless another table is given)."""
    table = TWO_SIDED if table is None else table
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, math.inf
    factor = table.get(len(values) - 1, 2.0 if table is TWO_SIDED else 1.7)
    return mean, factor * statistics.stdev(values) / math.sqrt(len(values))


def machine_facts():
    name = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2 ** 30
    return f"{name}, {os.cpu_count()} processors, {pages:.0f} GiB, Linux {platform.release()}"


def load_note(load_before):
    """What else ran here; ranks sleep most of their time, so a quiet machine's load is small."""
    note = f"load {load_before:.1f} before the first run, {os.getloadavg()[0]:.1f} after the last"
    if load_before > os.cpu_count() / 2:
        note += "; the machine was busy with other work: do not trust these times, run again"
    return note


CSV_HEADER = ("data,split,policy,seed,steps_mean,seconds,accuracy,loss,worker_mean,worst_worker")


def csv_rows(setup, policy, seed, result):
    for point in curve(result):
        own = point["worker_accuracy"]
        yield (f"{setup.data},{setup.split},\"{policy}\",{seed},{point['steps']},"
               f"{point['seconds']:.4f},{point['accuracy']:.4f},{point['loss']:.4f},"
               f"{own['mean']:.4f},{own['min']:.4f}")


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def band(results, field, points=120):
    """Over the seeds, at evenly spread moments up to the longest run: (seconds, least, median,
    largest). A run that has ended keeps its last value."""
    end = max(curve(result)[-1]["seconds"] for result in results)
    for i in range(points + 1):
        seconds = end * i / points
        values = [value_at(result, seconds, field) for result in results]
        yield seconds, min(values), statistics.median(values), max(values)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Chart:
    """Panels below one another, each with a line per system (the median over the seeds) in a band
    from the least to the largest."""
    WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 360, 60, 290, 40, 50

    def __init__(self, title):
        self.title = title
        self.panels = []

    def add(self, title, runs, field, low=0.0, high=None):
        """`runs`: system -> results of its seeds."""
        bands = {name: list(band(results, field)) for name, results in runs.items()}
        right = max(points[-1][0] for points in bands.values())
        high = high or max(p[3] for points in bands.values() for p in points)
        self.panels.append((title, field, bands, right, low, high))

    def write(self, path):
        height = 30 + self.HEIGHT * len(self.panels)
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.WIDTH}" height="{height}" '
               f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" '
               f'fill="#ffffff"/><text x="{self.WIDTH / 2}" y="20" text-anchor="middle" '
               f'font-size="14">{escaped(self.title)}</text>']
        for number, panel in enumerate(self.panels):
            out += self._panel(30 + self.HEIGHT * number, *panel)
        write_lines(path, out + ["</svg>"])

    def _panel(self, above, title, field, bands, right, low, high):
        width = self.WIDTH - self.LEFT - self.RIGHT
        top, bottom = above + self.TOP, above + self.HEIGHT - self.BOTTOM

        def x_of(value):
            return self.LEFT + width * value / right

        def y_of(value):
            inside = min(max(value, low), high)
            return bottom - (bottom - top) * (inside - low) / (high - low)

        yield (f'<text x="{self.LEFT + width / 2}" y="{top - 12}" text-anchor="middle">'
               f'{escaped(title)}</text>')
        for i in range(6):
            y, value = y_of(low + (high - low) * i / 5), low + (high - low) * i / 5
            yield (f'<line x1="{self.LEFT}" x2="{self.LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" '
                   f'stroke="#dddddd"/><text x="{self.LEFT - 6}" y="{y + 4:.1f}" '
                   f'text-anchor="end">{value:.3g}</text>')
            x = x_of(right * i / 5)
            yield (f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
                   f'{right * i / 5:.3g}</text>')
        yield (f'<text x="{self.LEFT + width / 2}" y="{bottom + 38}" text-anchor="middle">'
               f'seconds of training</text><text x="14" y="{(top + bottom) / 2}" '
               f'text-anchor="middle" transform="rotate(-90 14 {(top + bottom) / 2})">'
               f'{field} of the mean model</text>')
        if field == "accuracy":
            yield (f'<line x1="{self.LEFT}" x2="{self.LEFT + width}" y1="{y_of(TARGET):.1f}" '
                   f'y2="{y_of(TARGET):.1f}" stroke="#888888" stroke-dasharray="4 4"/>')
        for number, (name, points) in enumerate(bands.items()):
            colour = COLOURS[number % len(COLOURS)]
            there = [f"{x_of(s):.1f},{y_of(h):.1f}" for s, _, _, h in points]
            back = [f"{x_of(s):.1f},{y_of(l):.1f}" for s, l, _, _ in reversed(points)]
            line = [f"{x_of(s):.1f},{y_of(m):.1f}" for s, _, m, _ in points]
            yield f'<polygon points="{" ".join(there + back)}" fill="{colour}" opacity="0.12"/>'
            yield (f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" '
                   f'stroke-width="1.8"/>')
            x, y = self.LEFT + width + 12, top + 18 * number
            yield (f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{colour}" '
                   f'stroke-width="2"/><text x="{x + 28}" y="{y + 4}">{escaped(name)}</text>')
