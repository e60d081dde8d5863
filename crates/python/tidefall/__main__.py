"""The command line `tidefall`, also as `python -m tidefall`."""

import signal
import sys

from ._tidefall import command


def main() -> int:
    """Runs the command that this process was started with, and returns the status to exit with."""
    # The command runs outside of the interpreter, which would not notice Ctrl+C until its end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return command(["tidefall", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
