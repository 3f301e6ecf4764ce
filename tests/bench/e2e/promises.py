"""What a benchmark promises of its figures. A promise that is broken is named, and the others are still looked at."""
import math
import sys


class Promises:
    """`slack`: limits of times and of shares of a machine are so many times as wide, for a machine that does other work
    meanwhile. Counts and bytes have no slack."""

    def __init__(self, slack=1.0):
        self.slack, self.held = slack, True

    def holds(self, what, condition):
        if not condition:
            self.held = False
            print(f"  broken: {what}", file=sys.stderr, flush=True)

    def within(self, what, figure, least=None, most=None):
        """A time, or a share. NaN is within nothing."""
        low = -math.inf if least is None else least / self.slack
        high = math.inf if most is None else most * self.slack
        self.holds(f"{what}: {figure:.4g}, expected {low:.4g} to {high:.4g}", low <= figure <= high)

    def trained(self, what, steps, wanted):
        """Rows of `longhaul steps`: all of them are there, with losses that are numbers."""
        self.holds(f"{what}: {len(steps)} steps, expected {wanted}", len(steps) == wanted)
        losses = [step["loss"] for step in steps]
        self.holds(f"{what}: losses {losses}", all(math.isfinite(loss) for loss in losses))
