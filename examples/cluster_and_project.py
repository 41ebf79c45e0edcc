"""Online clustering with a projection step: k-means (OpenMP) and a matrix product (BLAS) take turns in one loop.

The way that mini-batch code is often written: assign a batch to clusters, then update a dense model with BLAS. Each
of the two libraries keeps a pool of threads whose idle workers stay awake for a while, and get in the other's way.
Prints a number that does not depend on the configuration, and the seconds of the loop.
"""

import argparse
import time

import numpy as np
from sklearn.cluster import KMeans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rows", type=int, default=4000)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((args.rows, 32))
    model = rng.standard_normal((300, 300))
    model /= np.linalg.norm(model, 2)
    start_centres = batch[:8].copy()
    weights = np.eye(300)
    KMeans(8, init=start_centres, n_init=1, max_iter=1).fit(batch)  # warm-up: both pools exist from here on
    weights = model @ weights
    started = time.perf_counter()
    inertia = 0.0
    for _ in range(args.rounds):
        fitted = KMeans(8, init=start_centres, n_init=1, max_iter=1).fit(batch)
        inertia += fitted.inertia_
        weights = model @ weights + np.eye(300)
    seconds = time.perf_counter() - started
    print(f"inertia {inertia:.3f} trace {np.trace(weights):.3f}")
    print(f"seconds {seconds:.4f}")


if __name__ == "__main__":
    main()
