"""What a test does where it lacks root or network namespaces.

It is skipped, and says why. Where LONGHAUL_REQUIRE_ROOT is set it fails instead, so that a machine that is meant to run
these tests cannot lose them unnoticed. LONGHAUL_REQUIRE_GPU does the same for GPUs (gpu_test.h).
"""
import os
import sys

SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def required():
    return bool(os.environ.get("LONGHAUL_REQUIRE_ROOT"))


def without_root(why):
    """Prints why the test cannot run. Returns its exit code."""
    print(f"{'LONGHAUL_REQUIRE_ROOT is set, but' if required() else 'skipped:'} {why}", file=sys.stderr, flush=True)
    return 1 if required() else SKIPPED


def rootless(why, skipped):
    """As without_root, for tests that end by an exception: `skipped` makes the one that skips."""
    return AssertionError(f"LONGHAUL_REQUIRE_ROOT is set, but {why}") if required() else skipped(why)
