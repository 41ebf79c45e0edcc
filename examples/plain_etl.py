"""A single-threaded clean-up of records: an application with nothing to gain from any setting."""

import time

import numpy as np


def main() -> None:
    started = time.perf_counter()
    rng = np.random.default_rng(0)
    totals: dict[str, float] = {}
    for key in rng.integers(0, 5000, 400_000).tolist():
        name = f"k{key % 997:03d}"
        totals[name] = totals.get(name, 0.0) + key
    print(f"groups {len(totals)} sum {sum(totals.values()):.1f}")
    print(f"seconds {time.perf_counter() - started:.4f}")


if __name__ == "__main__":
    main()
