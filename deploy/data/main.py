"""What `longhaul data` runs (data_command.cc)."""
import sys

from longhaul_data.cli import main

if __name__ == "__main__":
    # Texts have characters that a terminal's encoding may lack.
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))
