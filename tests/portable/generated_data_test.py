#!/usr/bin/env python3
"""Recomputes samples of the generated data set from the formula in train/data/README.md, without
any code of the project, and compares them with those that the unit test of the generator expects.
With --write FILE it prints that list instead."""

import math
import pathlib
import re
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE.parent / "unit" / "train" / "generated_samples.h"
SAMPLES = (0, 1, 7, 83, 137, 19_999, 123_456)  # Number 83 has a wrong label.
PIXELS = (0, 1, 31, 63)
MASK = (1 << 64) - 1
SEED = 0x636C757374657273


class SplitMix64:
    def __init__(self, state):
        self.state = state & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def unit(self):
        return (self.next() >> 11) * 2.0 ** -53

    def below(self, bound):
        return ((self.next() >> 32) * bound) >> 32

    def sign(self):
        return 1.0 if self.next() >> 63 else -1.0


def seeded(seed):
    return SplitMix64(SplitMix64(seed).next())


def centres():
    random = seeded(SEED)
    return [[random.sign() for _ in range(64)] for _ in range(20)]


def sample(index, all_centres):
    """Label and pixels, these rounded to float32."""
    random = seeded(SEED + 1 + index)
    which = random.below(20)
    side = random.sign()
    wrong = random.unit() < 0.01
    other = random.below(9)
    pixels = []
    for value in all_centres[which]:
        total = 0.0
        for _ in range(12):
            total += random.unit()
        exact = 0.25 * (side * value + 1.4 * (total - 6.0))
        pixels.append(struct.unpack("f", struct.pack("f", exact))[0])
    return (which + (1 + other if wrong else 0)) % 10, pixels


def union_bound(all_centres):
    """Bound on the probability that noise carries a point nearer to a centre of another class: the
    sum over those centres, at distance d, of exp(-(d / 2)^2 / (2 * 1.4^2)), since the noise's
    projection on a line is sub-Gaussian with variance 1.4^2; mean over the point's own centre."""
    signed = [(c, [s * v for v in centre]) for c, centre in enumerate(all_centres)
              for s in (1.0, -1.0)]
    total = 0.0
    for c, a in signed:
        for d, b in signed:
            if c % 10 == d % 10:
                continue
            distance2 = sum((x - y) ** 2 for x, y in zip(a, b))
            total += math.exp(-distance2 / 8 / 1.4 ** 2)
    return total / len(signed)


def lines():
    all_centres = centres()
    for index in SAMPLES:
        label, pixels = sample(index, all_centres)
        values = ", ".join(f"{pixels[p]:.9g}F" for p in PIXELS)
        yield f"    {{{index}, {label}, {{{values}}}}},"


def main():
    if "--write" in sys.argv:
        print("\n".join(lines()))
        print(f"union bound {union_bound(centres()):.4f}")
        return
    text = EXPECTED.read_text(encoding="utf-8")
    listed = re.findall(r"^    \{\d+, \d, \{.*\}\},$", text, re.M)
    assert listed == list(lines()), "the unit test expects other samples than the formula gives"
    bound = union_bound(centres())
    page = (HERE.parents[1] / "train" / "data" / "README.md").read_text(encoding="utf-8")
    stated = float(re.search(r"at most ([0-9.]+) by the union\s+bound", page).group(1))
    assert bound <= stated < 2 * bound, f"the page says {stated}, the bound is {bound}"


if __name__ == "__main__":
    main()
