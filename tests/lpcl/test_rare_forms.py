"""Forms of the language that no shipped contract uses yet: they print as they are read."""

import pytest

from lpcl.check import check
from lpcl.format import format_text
from lpcl.parse import parse

HEAD = """lpcl 1

contract demo {
  package "demo"

  demand pool: cpu.threads {
    amount 2
    evidence e1
  }

"""
FORMS = {
    "sequence": 'control c: sequence(choice("a", "b"), 1 to 8) {\n    param demo.f(c) at call\n    evidence e1\n  }',
    "placement": 'control c: placement(gpu.devices) {\n    env "C" read session\n    per session\n    evidence e1\n  }',
    "versions": 'control c: int {\n    env "C" read load versions ">=2" if pool.amount > 1\n    evidence e1\n  }',
    "log": 'signal s: gauge {\n    read log "threads: ([0-9]+)"\n    observes pool.amount\n    evidence e1\n  }',
    "limits": "mitigate w {\n    limits pool.amount\n    to 1\n    in children\n    evidence e1\n  }",
}


@pytest.mark.parametrize("form", FORMS)
def test_form(form):
    text = f"{HEAD}  {FORMS[form]}\n}}\n"
    assert format_text(text) == (text, ())
    assert [d for d in check(parse(text).file) if d.severity == "error"] == []


@pytest.mark.parametrize(
    ("form", "old", "new", "rule"),
    [
        ("placement", "gpu.devices", "gpu.device", "LP107"),
        ("versions", ">=2", "two", "LP103"),
        ("limits", "pool.amount", "pool.size", "LP123"),
        ("limits", "pool.amount", "poll.amount", "LP108"),
    ],
)
def test_faults(form, old, new, rule):
    text = f"{HEAD}  {FORMS[form].replace(old, new, 1)}\n}}\n"
    assert rule in {d.rule for d in check(parse(text).file)}
