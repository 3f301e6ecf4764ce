"""The summary of replica_losses.py: who is compared with whom, and which rates count as tuned.

usage: replica_losses_test.py
"""
import contextlib
import io
import math
import sys

from replica_losses import BASE, best_rate, by_rate, interval, summary

STEPS = 10


def row(loss):
    return {"validation_loss": str(loss), "first_20_relative": "1e-3"}


def rows_of(table):
    return {(form, lr, seed, STEPS): row(loss) for (form, lr), losses in table.items()
            for seed, loss in enumerate(losses, start=1)}


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")
    print(f"ok: {what}", flush=True)


def printed(rows):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        summary(rows, STEPS)
    return text.getvalue()


def main():
    # 1, 2 and 6 percent: mean 3, deviation 2.646, times 4.303 / sqrt(3).
    expect("an interval", interval([0.01, 0.02, 0.06]), "+3.00 % (-3.57 to +9.57)")
    expect("one seed has none", interval([0.01]), "+1.00 %")

    rows = rows_of({(BASE, 1e-3): [2.0, 2.1], (BASE, 2e-3): [1.9, 1.9], (BASE, 4e-3): [2.5, 2.5],
                    ("local-sgd", 2e-3): [1.862, 1.862], ("local-sgd", 4e-3): [1.805, 1.805],
                    ("local-sgd", 8e-3): [math.nan, 3.0], ("local-sgd", 1.0): [1.0]})
    expect("a rate with fewer seeds does not count", sorted(by_rate(rows, "local-sgd", STEPS)), [2e-3, 4e-3, 8e-3])
    expect("a rate that diverged is not the best", best_rate(by_rate(rows, "local-sgd", STEPS)), 4e-3)
    text = printed(rows)
    expect("each at its own best rate", "local-sgd at 0.004 against one pipeline at 0.002: -5.00 % (-5.00 to -5.00)"
           in text, True)
    expect("a rate that diverged says so", "diverged" in text, True)
    expect("a best rate in the middle needs no note", "note:" in text, False)

    edge = printed(rows_of({(BASE, 1e-3): [2.0], (BASE, 2e-3): [1.9], ("local-sgd", 1e-3): [2.0],
                            ("local-sgd", 2e-3): [1.9]}))
    expect("a best rate at an end is said to be one", edge.count("note:"), 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
