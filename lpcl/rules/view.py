"""A contract as the rules see it: its parts, and the kinds and domains of its expressions."""

from __future__ import annotations

from functools import cached_property

from lpcl import model as m
from lpcl.rules.base import Parts
from lpcl.rules.domains import Domains
from lpcl.rules.kinds import COMPARISONS, Kinds, mix

ORDER = frozenset({"<", "<=", ">", ">="})
UNORDERED = frozenset({"text", "truth", "list"})


class View(Parts):
    """What is worked out once for all rules."""

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of all expressions."""
        return Kinds(self)

    @cached_property
    def domains(self) -> Domains:
        """The domains of expressions."""
        return Domains(self)

    @cached_property
    def comparisons(self) -> tuple[m.Operation, ...]:
        """Comparisons, whatever they compare."""
        return tuple(e for e, _ in self.operations if e.operator in COMPARISONS and len(e.operands) == 2)

    def comparable(self, e: m.Operation) -> bool:
        """Whether the sides of a comparison are of one kind, and have an order if it asks for one."""
        a, b = self.kinds.all(e.operands)
        return mix(a, b) is not None and not (e.operator in ORDER and {a, b} & UNORDERED)
