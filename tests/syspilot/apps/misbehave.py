"""An application that fails in the way that its first argument names."""

import os
import sys
import time


def main():
    manner = sys.argv[1]
    if manner == "exit":
        for n in range(8):
            print(f"line {n} of the traceback", file=sys.stderr)
        sys.exit(3)
    if manner == "hang":
        while True:
            time.sleep(1000)
    if manner == "fork-away" and os.fork() == 0:
        while True:
            time.sleep(1000)
    if manner == "code":
        sys.exit(int(sys.argv[2]))
    if manner == "quiet":
        return
    print("seconds 1.0")


if __name__ == "__main__":
    main()
