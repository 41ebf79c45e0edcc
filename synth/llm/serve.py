"""The local model's server, as a process of its own: `python -m synth.llm.serve`, settings as JSON on standard input.

It says where it listens in one line of JSON on standard output, and ends when its standard input does: whoever started
it cannot leave it behind. The key comes by standard input, so that no list of processes shows it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def main() -> int:
    """Serve until standard input ends."""
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    # What the server prints goes elsewhere: standard output is for one line.
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        xllamacpp = importlib.import_module("xllamacpp")  # an extra
    except ImportError:
        said.write(json.dumps({"error": "xllamacpp is not installed"}) + "\n")
        said.flush()
        return 3
    try:
        server = xllamacpp.Server(_params(xllamacpp, settings))
    except (RuntimeError, ValueError, OSError) as error:
        said.write(json.dumps({"error": str(error) or "the model could not be loaded"}) + "\n")
        said.flush()
        return 3
    said.write(json.dumps({"url": server.listening_address}) + "\n")
    said.flush()
    sys.stdin.read()
    return 0


def _params(xllamacpp: Any, settings: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = settings["gguf"]
    params.n_ctx = settings["context"]
    params.n_parallel = settings["parallel"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.offline = True
    params.warmup = False
    return params


if __name__ == "__main__":
    sys.exit(main())
