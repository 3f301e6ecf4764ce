"""What `longhaul steps --wandb` and `--mlflow` start (step_log.cc)."""
import os
import sys

from longhaul_steps.cli import DONE, main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code != DONE:
        # Packages would go on to wait for their servers when Python ends.
        sys.stderr.flush()
        os._exit(code)
