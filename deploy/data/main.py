"""What `longhaul data` runs (data_command.cc)."""
import sys

from longhaul_data.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
