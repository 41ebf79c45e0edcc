"""Feature computation in joblib worker processes: numexpr and BLAS inside of `Parallel(n_jobs=...)`.

The multiprocessing backend limits nothing inside of its workers: each has a whole pool of numexpr threads and a whole
pool of BLAS threads. Prints a checksum that does not depend on the configuration, and the seconds of the work.
"""

import argparse
import time

import numexpr
import numpy as np
from joblib import Parallel, delayed


def features(seed: int) -> float:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1200, 200))
    total = 0.0
    for _ in range(6):
        y = numexpr.evaluate("tanh(x) * 2 + x ** 2", {"x": x})
        gram = y.T @ y
        total += float(np.linalg.eigvalsh(gram)[-1])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--backend", default="multiprocessing")
    parser.add_argument("--tasks", type=int, default=16)
    args = parser.parse_args()
    started = time.perf_counter()
    totals = Parallel(n_jobs=args.jobs, backend=args.backend)(delayed(features)(i) for i in range(args.tasks))
    seconds = time.perf_counter() - started
    print(f"checksum {sum(totals):.4f}")
    print(f"seconds {seconds:.4f}")


if __name__ == "__main__":
    main()
