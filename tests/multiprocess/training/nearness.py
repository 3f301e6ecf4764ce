"""Compares the numbers of two runs that differ by rounding, or by little."""
import math


def furthest(what, got, wanted, relative=True):
    """The largest difference between two numbers at the same place, as a share of the wanted one unless `relative` is
    false. Fails if there are other counts, or if a number is not finite: NaN is neither small nor large, so that max()
    and a bound would let it pass."""
    if len(got) != len(wanted) or not wanted:
        raise AssertionError(f"{what}: {len(got)} numbers, expected {len(wanted)}, and at least one")
    for name, numbers in (("got", got), ("wanted", wanted)):
        for place, number in enumerate(numbers):
            if not math.isfinite(number):
                raise AssertionError(f"{what}: expected finite numbers, {name}[{place}] is {number}")
    return max(abs(g - w) / (abs(w) if relative else 1) for g, w in zip(got, wanted))


def expect_near(what, got, wanted, bound=1e-4, relative=True):
    """Compares losses. Returns the largest difference."""
    most = furthest(what, got, wanted, relative)
    if not most <= bound:
        raise AssertionError(f"{what}: losses differ by {most:.2e}, at most {bound} expected\n{got}\n{wanted}")
    print(f"ok: {what}: {len(got)} losses agree to {most:.1e}", flush=True)
    return most
