"""The cases of a test script, one after the other on one cluster."""
import contextlib
import pathlib
import sys
import tempfile
import time
import traceback

from training_test import Cluster, Skipped, small_disk, text_for_training

SKIPPED = 77
SMALL_DISK = "full-disk"  # the case whose worker3 has a small disk


@contextlib.contextmanager
def cluster_for(case, kind, workers, text):
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text(folder)
        disk = small_disk(pathlib.Path(folder) / "worker3") if case == SMALL_DISK else contextlib.nullcontext()
        with disk, kind(sys.argv[1], folder, workers=workers) as cluster:
            yield cluster


def run_cases(cases, kind=Cluster, workers=4, text=text_for_training):
    """Runs the cases that the command line names behind BIN_DIR, or all of them but for SMALL_DISK. A case that fails is
    named, and the cases behind it get a new cluster. Returns the exit code."""
    left = sys.argv[2:] or [case for case in cases if case != SMALL_DISK]
    failed, skipped = [], []
    while left:
        case = left.pop(0)
        try:
            with cluster_for(case, kind, workers, text) as cluster:
                while True:
                    began = time.monotonic()
                    cases[case](cluster)
                    print(f"== case {case}: passed in {time.monotonic() - began:.1f} s", flush=True)
                    if not left or SMALL_DISK in (case, left[0]):
                        break
                    case = left.pop(0)
                    cluster.restore()
        except Skipped as why:
            print(f"skipped: case {case}: {why}")
            skipped.append(case)
        except Exception:  # whatever it is, the other cases are run
            traceback.print_exc()
            print(f"== case {case}: FAILED", flush=True)
            failed.append(case)
    if failed:
        print(f"FAILED: {pathlib.Path(sys.argv[0]).name} BIN_DIR {' '.join(failed)}", flush=True)
    return 1 if failed else SKIPPED if skipped else 0
