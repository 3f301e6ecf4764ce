"""What a benchmark needs, looked for before it measures: minutes later is too late to hear of it."""
import os
import pathlib
import sys

from cluster import ROOT, Failed

sys.path.insert(0, str(ROOT / "tests/support"))
from requirements import without_root  # noqa: E402

SKIPPED = 77  # what ctest and automake call a test that could not be run

# The targets of programs whose names differ from them, or that another command builds.
HOW_TO_BUILD = {"stage_passes": "for a GPU tests/gpu.sh builds it"}
CLUSTER = ("longhaul", "longhaul-coordinator", "longhaul-worker")


def root_or_skip():
    """Ends the program as skipped where it may not make networks."""
    if os.geteuid() != 0:
        sys.exit(without_root("network namespaces need root"))


def check_programs(folder, names):
    """Failed, with all that are missing and the command that makes them."""
    missing = [name for name in names if not os.access(pathlib.Path(folder) / name, os.X_OK)]
    if not missing:
        return
    build = pathlib.Path(folder).resolve().parent
    hints = "".join(f"; {HOW_TO_BUILD[name]}" for name in missing if name in HOW_TO_BUILD)
    raise Failed(f"expected programs in {folder}, {', '.join(missing)} "
                 f"{'is' if len(missing) == 1 else 'are'} missing; build with: "
                 f"ninja -C {build} {' '.join(missing)}{hints}")


def check_files(*paths):
    """Failed, with all that cannot be read."""
    missing = [str(path) for path in paths if not os.access(path, os.R_OK)]
    if missing:
        raise Failed(f"expected files that can be read, got {', '.join(missing)}")
