"""An application that does as it is told: its metric follows the variable KNOB, and each value may misbehave.

The default (KNOB unset) costs `--default` seconds; with KNOB=k it costs `1 + |k - best| / 2`. It only prints these
numbers: nothing here takes time, so that no test depends on how busy the machine is.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--best", type=int, default=4)
    parser.add_argument("--default", type=float, default=4.0)
    parser.add_argument("--jobs", type=int, help="the knob as an argument")
    parser.add_argument("--rate", action="store_true", help="print a rate: larger is better")
    parser.add_argument("--noise", type=int, help="no knob does anything; the seed of the noise")
    parser.add_argument("--crash-at", type=int)
    parser.add_argument("--hang-at", type=int)
    parser.add_argument("--silent-at", type=int)
    parser.add_argument("--count", type=Path, help="folder that counts the runs")
    parser.add_argument("--hang-from", type=int, help="the run from which on it hangs")
    parser.add_argument("--marker", help="only to be found by")
    args = parser.parse_args()
    run = counted(args.count)
    knob = os.environ.get("KNOB") if args.jobs is None else str(args.jobs)
    value = None if knob is None else int(knob)
    if args.hang_at == value is not None or (args.hang_from is not None and run >= args.hang_from):
        hang(args.marker)
    if args.crash_at == value is not None:
        sys.exit(f"knob {value} is out of range")
    if args.silent_at == value is not None:
        return
    seconds = args.default if value is None else 1 + abs(value - args.best) / 2
    if args.noise is not None:
        seconds = random.Random(f"{args.noise} {run}").lognormvariate(0, 0.08)
    print(f"rate {60 / seconds:.6f}" if args.rate else f"seconds {seconds:.6f}")


def counted(folder):
    """How many runs there were, this one with them."""
    if folder is None:
        return 0
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()
    return len(list(folder.iterdir()))


def hang(marker):
    """Never end, with a child that does not either and does not listen to polite signals."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.environ.get("KNOB_CHILD") is None:
        command = [sys.executable, "-S", "-E", __file__, "--hang-from", "0", "--marker", str(marker)]
        subprocess.Popen(command, env={**os.environ, "KNOB_CHILD": "1"}, start_new_session=True)
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
