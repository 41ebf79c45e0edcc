"""Docstrings that name an environment variable."""

from __future__ import annotations

from collections.abc import Iterable

from synth.docs import Names, structured
from synth.records import Kind, Observation, Role
from synth.walk.python_scope import PyFile
from synth.walk.syntax import Cited, text_of

_PER_NAME = 2  # passages of one file


def walk_docstrings(pyfile: PyFile, source: bytes, file: str, role: Role, names: Iterable[str]) -> list[Observation]:
    """Observe the passages of a file's docstrings that name one of `names`."""
    wanted = Names(names)
    cited = Cited(source, file, role, "python")
    counts: dict[str, int] = {}
    found: list[Observation] = []
    for node in pyfile.tree.nodes:
        parent = pyfile.tree.parent(node)
        if node.type != "string" or parent is None or parent.type != "expression_statement":
            continue
        function = next((s.qualname for s in pyfile.scope(node).outwards() if s.kind != "lambda"), "")
        lines = text_of(node).split("\n")
        for passage in structured(lines, node.start_point[0]):
            for name in wanted.named_in(passage.text):
                if name not in wanted.exact:
                    continue
                counts[name] = counts.get(name, 0) + 1
                if counts[name] <= _PER_NAME:
                    where = (passage.line, passage.end_line)
                    detail = f"docstring of {function or pyfile.module}"
                    found.append(cited.observe(Kind.DOC, name, where, function=function, detail=detail))
    return found
