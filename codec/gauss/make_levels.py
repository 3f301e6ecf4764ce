#!/usr/bin/env python3
"""Writes levels.h: the Lloyd-Max quantizers of the normal distribution.

    python3 codec/gauss/make_levels.py > codec/gauss/levels.h

A quantizer of 2^b levels is symmetric; L_1 < ... < L_n, n = 2^(b-1), are its positive levels and
t_0 = 0, t_j = (L_j + L_(j+1)) / 2, t_n = infinity what separates them. It is optimal when every level
is the mean of its interval:  L_j = (p(t_(j-1)) - p(t_j)) / (P(t_j) - P(t_(j-1))), p the density and
P the distribution function. Lloyd's iteration brings the levels near, Newton's method, whose
Jacobian is tridiagonal, to ten digits.
"""

import math
import sys

MIN_BITS, MAX_BITS = 2, 6


def density(x):
    return 0.0 if math.isinf(x) else math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def share(a, b):
    """The share of the distribution between a and b, 0 <= a < b."""
    return (math.erfc(a / math.sqrt(2)) - math.erfc(b / math.sqrt(2))) / 2


def means(levels):
    """Means of the intervals between the thresholds, the thresholds, and the shares of the intervals."""
    inner = [(a + b) / 2 for a, b in zip(levels, levels[1:])]
    thresholds = [0.0] + inner + [math.inf]
    shares = [share(a, b) for a, b in zip(thresholds, thresholds[1:])]
    centres = [
        (density(a) - density(b)) / s for a, b, s in zip(thresholds, thresholds[1:], shares)
    ]
    return thresholds, shares, centres


def newton_step(levels):
    """The levels' corrections, by elimination in the tridiagonal system."""
    n = len(levels)
    thresholds, shares, centres = means(levels)
    below, diagonal, above, right = [0.0] * n, [0.0] * n, [0.0] * n, [0.0] * n
    for j in range(n):
        a, b, c, s = thresholds[j], thresholds[j + 1], centres[j], shares[j]
        by_a = (c - a) * density(a) / s / 2 if j > 0 else 0.0
        by_b = (b - c) * density(b) / s / 2 if j < n - 1 else 0.0
        below[j], diagonal[j], above[j] = -by_a, 1 - by_a - by_b, -by_b
        right[j] = c - levels[j]
    for j in range(1, n):
        factor = below[j] / diagonal[j - 1]
        diagonal[j] -= factor * above[j - 1]
        right[j] -= factor * right[j - 1]
    for j in reversed(range(n)):
        if j < n - 1:
            right[j] -= above[j] * right[j + 1]
        right[j] /= diagonal[j]
    return right


def lloyd_max(bits):
    n = 2 ** (bits - 1)
    levels = [4.0 * (j + 0.5) / n for j in range(n)]
    for _ in range(40 * n):
        levels = means(levels)[2]
    for _ in range(50):
        step = newton_step(levels)
        levels = [level + change for level, change in zip(levels, step)]
        if max(abs(change) for change in step) < 1e-11:
            return levels
    sys.exit(f"make_levels: {bits} bits do not converge")


def main():
    lines = [
        "// Written by make_levels.py; do not edit. The positive levels of the Lloyd-Max quantizers of",
        "// the standard normal distribution with 2 to 6 bits, to fp32's precision.",
        "#ifndef LONGHAUL_CODEC_GAUSS_LEVELS_H_",
        "#define LONGHAUL_CODEC_GAUSS_LEVELS_H_",
        "",
        "namespace longhaul::codec::gauss {",
        "",
        "template <int kBits>",
        "struct Levels;",
    ]
    for bits in range(MIN_BITS, MAX_BITS + 1):
        levels = lloyd_max(bits)
        texts = [f"{level:#.9g}f" for level in levels]
        rows = [texts[k : k + 6] for k in range(0, len(texts), 6)]
        lines += [
            "",
            "template <>",
            f"struct Levels<{bits}> {{",
            f"  static constexpr float kPositive[{len(levels)}] = {{",
        ]
        lines += ["      " + ", ".join(row) + "," for row in rows]
        lines += ["  };", "};"]
    lines += [
        "",
        "}  // namespace longhaul::codec::gauss",
        "",
        "#endif  // LONGHAUL_CODEC_GAUSS_LEVELS_H_",
    ]
    print("// clang-format off\n" + "\n".join(lines) + "\n// clang-format on")


if __name__ == "__main__":
    main()
