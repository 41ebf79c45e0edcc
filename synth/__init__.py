"""The synthesiser: from a release of a package to a contract that a maintainer can review."""
