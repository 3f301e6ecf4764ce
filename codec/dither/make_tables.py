#!/usr/bin/env python3
"""Writes tables.h: how often each symbol of dither comes, for the rANS coder.

    python3 codec/dither/make_tables.py > codec/dither/tables.h

The symbol of a value t with dither u is m = floor(t + u). t is normal with a standard deviation of 1 / step: after the
transform a block's values are about normal. The scale of a block is its root mean square to within an eighth of an
octave, so the deviation is one of a range. By symmetry only u > 0 counts (arithmetic.h mirrors the rest). There is one
table for u < 1/4 and one for u > 1/4, because the decoder knows u, too.
"""

import math

HALF_BITS = (2, 3, 4, 6)
ALL = 4096  # what the frequencies of a table add up to
LEAST = 2  # the least frequency: arithmetic.h divides by frequencies from 2 on
RAW_BITS = 7  # of the number that follows an escape
DEVIATIONS = [2 ** (((k + 0.5) / 32 - 0.5) / 4) for k in range(32)]
CONTEXTS = ((0.0, 0.25), (0.25, 0.5))
# The largest mean of t^2 step^2 over a block: its scale is too small by an eighth of an octave at most.
MOST_SQUARE = 2**0.25
# Bits that a step of the coder may take above the logarithm: a state is at least 16 times the frequency.
SLACK = math.log2(1 + 1 / 16)


def step_of(half_bits):
    return 2 ** (2.047 - half_bits / 2)


def integral(z):
    """The integral of the normal distribution function up to z."""
    return z * math.erfc(-z / math.sqrt(2)) / 2 + math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def below(limit, context, step):
    """The probability of t + u < limit, u uniform in the context."""
    low, high = context
    total = 0.0
    for deviation in DEVIATIONS:
        sigma = deviation / step
        total += sigma * (integral((limit - low) / sigma) - integral((limit - high) / sigma))
    return total / len(DEVIATIONS) / (high - low)


def shares(context, step, reach):
    """The probabilities of the symbols from -reach to reach - 1, and of the escape."""
    limits = [below(m, context, step) for m in range(-reach, reach + 1)]
    inner = [b - a for a, b in zip(limits, limits[1:])]
    return inner + [max(1 - limits[-1], 0.0) + limits[0]]


def reach_of(step):
    reach = 2
    while max(shares(context, step, reach)[-1] for context in CONTEXTS) > 2**-14:
        reach += 1
    return reach


def frequencies(probabilities):
    """Whole numbers from LEAST on that add up to ALL, with which the fewest bits are expected."""
    chosen = [max(LEAST, math.floor(p * ALL)) for p in probabilities]
    while sum(chosen) < ALL:
        gains = [p * math.log((f + 1) / f) for p, f in zip(probabilities, chosen)]
        chosen[gains.index(max(gains))] += 1
    while sum(chosen) > ALL:
        losses = [p * math.log(f / (f - 1)) if f > LEAST else math.inf for p, f in zip(probabilities, chosen)]
        chosen[losses.index(min(losses))] -= 1
    return chosen


def bits_of(table, slack):
    """Bits of each symbol, and of the escape with what follows."""
    bits = [math.log2(ALL / f) + slack for f in table]
    bits[-1] += RAW_BITS + slack
    return bits


def usual(step, reach, tables):
    total = 0.0
    for context, table in zip(CONTEXTS, tables):
        total += sum(p * b for p, b in zip(shares(context, step, reach), bits_of(table, 0.0)))
    return total / len(tables)


def most(step, reach, tables):
    """Bits an element that no block exceeds. A block's mean of t^2 is at most `square`. Where a + b t^2 is at least what
    any symbol takes that t may become, a + b square is such a number; this is the least one."""
    square = MOST_SQUARE / step**2
    costs = []  # of a symbol: its bits, and the least t^2 that may become it
    for (low, high), table in zip(CONTEXTS, tables):
        for m, bits in zip(range(-reach, reach), bits_of(table, SLACK)):
            # t lies in (m - high, m + 1 - low).
            nearest = 0.0 if m < high and m + 1 > low else min(abs(m - high), abs(m + 1 - low))
            costs.append((bits, nearest**2))
        costs.append((bits_of(table, SLACK)[-1], (reach - high) ** 2))
    slopes = [k / 1000 for k in range(20000)]
    return min(max(bits - b * t2 for bits, t2 in costs) + b * square for b in slopes)


def rows(numbers, indent, last=""):
    lines, line = [], indent
    for k, number in enumerate(numbers):
        text = f"{number}" + ("," if k + 1 < len(numbers) else last)
        if len(line) + len(text) + 1 > 100:
            lines.append(line.rstrip())
            line = indent
        line += text + " "
    return lines + [line.rstrip()]


def main():
    lines = [
        "// clang-format off",
        "// Written by make_tables.py; do not edit. For each 2 bits: the frequencies, which add up to 4096, of the",
        "// symbols from -kReach to kReach - 1 and of the escape: for |u| < 1/4, and for |u| >= 1/4.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "namespace longhaul::codec::dither {",
        "",
        "template <int kHalfBits>",
        "struct Tables;",
    ]
    for half_bits in HALF_BITS:
        step = step_of(half_bits)
        reach = reach_of(step)
        tables = [frequencies(shares(context, step, reach)) for context in CONTEXTS]
        lines += [
            "",
            "template <>",
            f"struct Tables<{half_bits}> {{",
            f"  static constexpr float kPerUnit = {2**16 / step:#.9g}f;  // 2^16 steps of a block's scale",
            f"  static constexpr float kUnit = {step / 2**17:#.9g}f;  // 2^-17 of a step",
            "  // Bits of an element times 1024: expected for normal values, and the most of a block's mean.",
            f"  static constexpr uint32_t kUsual = {math.ceil(1024 * usual(step, reach, tables))};",
            f"  static constexpr uint32_t kMost = {math.ceil(1024 * (most(step, reach, tables) + 0.01))};",
            f"  static constexpr int kReach = {reach};",
            f"  static constexpr uint16_t kFrequencies[2][{2 * reach + 1}] = {{",
        ]
        for table in tables:
            texts = rows(table, "       ", "},")
            texts[0] = "      {" + texts[0].lstrip()
            lines += texts
        lines += ["  };", "};"]
    lines += ["", "}  // namespace longhaul::codec::dither", "// clang-format on"]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
