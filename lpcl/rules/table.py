"""All rules: the only list of their ids, severities and titles.

The titles are the headings of the reference, from which the links to it follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lpcl.diagnostics import Severity
from lpcl.rules import clauses, conditions, contracts, controls, expressions, references, signals, ways
from lpcl.rules.base import Found
from lpcl.rules.view import View


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the language.

    Attributes:
        id: stable, `LP` and three digits.
        title: its heading in the reference, and its name in SARIF.
        judge: finds its faults in a contract; None for what is found elsewhere, while reading a text or a corpus.
    """

    id: str
    severity: Severity
    title: str
    judge: Callable[[View], Found] | None = None


TABLE: tuple[Rule, ...] = (
    # parse.py and build.py
    Rule("LP000", "error", "syntax"),
    Rule("LP001", "error", "file too large"),
    Rule("LP002", "error", "language version"),
    Rule("LP003", "error", "expression too deep"),
    Rule("LP004", "error", "words without a space"),
    Rule("LP005", "error", "given twice"),
    Rule("LP006", "error", "number too long"),
    Rule("LP007", "error", "too many words"),
    Rule("LP008", "error", "not UTF-8"),
    # check.py: of a file, not of one contract
    Rule("LP100", "error", "two contracts of one name"),
    Rule("LP101", "error", "two clauses of one name", contracts.duplicate_clause),
    Rule("LP102", "error", "no subject", contracts.subject),
    Rule("LP103", "error", "not a range of versions", contracts.versions),
    Rule("LP104", "error", "no evidence", contracts.evidence),
    Rule("LP105", "error", "not an evidence id", contracts.evidence_id),
    Rule("LP106", "warning", "evidence cited twice", contracts.evidence_twice),
    Rule("LP107", "error", "not a resource", references.resource),
    Rule("LP108", "error", "dangling reference", references.dangling),
    Rule("LP109", "error", "not a function", references.function),
    Rule("LP110", "error", "wrong number of arguments", references.arguments),
    Rule("LP111", "error", "cycle", references.cycles),
    Rule("LP112", "warning", "one variable read twice", ways.variable_twice),
    Rule("LP113", "error", "one variable, two controls", ways.variable_claimed),
    Rule("LP114", "error", "not the name of a variable", ways.variable_name),
    Rule("LP115", "error", "variable that no contract may set", ways.forbidden_variable),
    Rule("LP116", "error", "nothing sets the control", ways.no_way),
    Rule("LP117", "error", "wrong type", controls.wrong_type),
    Rule("LP118", "error", "default is no choice", controls.default_no_choice),
    Rule("LP119", "error", "empty range", controls.empty_range),
    Rule("LP120", "error", "step not positive", controls.step),
    Rule("LP121", "error", "logarithmic range from zero", controls.logarithmic),
    Rule("LP122", "error", "default outside the range", controls.default_outside),
    Rule("LP123", "error", "not a property of a demand", references.demand_property),
    Rule("LP124", "warning", "way that never applies", ways.way_never),
    Rule("LP125", "warning", "control that never applies", conditions.control_never),
    Rule("LP126", "error", "idle line never reached", conditions.idle_order),
    Rule("LP127", "error", "signal that cannot be read", signals.unreadable),
    Rule("LP128", "warning", "signal that observes nothing", signals.observes_nothing),
    Rule("LP129", "error", "symbol of no library", signals.symbol_of_nothing),
    Rule("LP130", "error", "file that no signal may read", signals.forbidden_file),
    Rule("LP131", "error", "not a dotted name", signals.undotted_call),
    Rule("LP132", "error", "incomplete mitigation", clauses.incomplete_mitigation),
    Rule("LP133", "error", "assumption that states nothing", clauses.empty_assumption),
    Rule("LP134", "warning", "no consequence", clauses.no_consequence),
    Rule("LP135", "warning", "pool without a fact", clauses.silent_pool),
    Rule("LP136", "error", "contract that uses itself", contracts.uses_itself),
    Rule("LP137", "warning", "contract used twice", contracts.used_twice),
    Rule("LP138", "error", "call that acts", signals.acting_call),
    Rule("LP139", "error", "symbol that acts", signals.acting_symbol),
    Rule("LP140", "error", "pattern for many libraries", contracts.wide_native),
    Rule("LP141", "error", "units that do not mix", expressions.mixed_units),
    Rule("LP142", "error", "arithmetic on what is no number", expressions.arithmetic),
    Rule("LP143", "error", "comparison of different types", expressions.different_kinds),
    Rule("LP144", "error", "order of what has none", expressions.order),
    Rule("LP145", "error", "condition that is no truth value", expressions.condition),
    Rule("LP146", "error", "amount of something else", clauses.amount),
    Rule("LP147", "warning", "amount without a size", clauses.bare_amount),
    Rule("LP148", "error", "value in effect of another type", controls.effective_type),
    Rule("LP149", "error", "special value of another type", controls.special_type),
    # corpus.py
    Rule("LP150", "error", "no evidence file"),
    Rule("LP151", "error", "evidence file too large"),
    Rule("LP152", "error", "not an evidence record"),
    Rule("LP153", "error", "evidence id twice"),
    Rule("LP154", "error", "not exactly one contract"),
    Rule("LP155", "error", "no metadata"),
    Rule("LP156", "error", "evidence without a record"),
    Rule("LP157", "error", "not a review"),
    Rule("LP158", "warning", "review of what has changed"),
    Rule("LP160", "error", "not one of the choices", expressions.no_choice),
    Rule("LP161", "error", "special value given twice", controls.special_twice),
    Rule("LP162", "warning", "comparison that never holds", conditions.never),
    Rule("LP163", "warning", "comparison that always holds", conditions.always),
    Rule("LP164", "warning", "value that has no say", controls.effective_ignores),
    Rule("LP165", "error", "conditions that exclude each other", conditions.exclusive),
    Rule("LP166", "error", "value where none was asked for", references.value_outside),
    Rule("LP167", "error", "demand used as a value", references.demand_as_value),
    Rule("LP168", "error", "question about what is no control", references.question),
    Rule("LP169", "error", "name without quotes", references.text_argument),
    Rule("LP170", "error", "limit that is no amount", clauses.limit),
    Rule("LP171", "warning", "not a unit", signals.unit),
    Rule("LP172", "warning", "unit of something else", signals.unit_of_something_else),
    Rule("LP173", "warning", "signal of another kind", signals.kind),
    Rule("LP174", "error", "change that comes too late", ways.too_late),
    Rule("LP175", "warning", "variable for one thread", ways.variable_for_a_thread),
    Rule("LP176", "error", "levels of a single value", controls.levels),
    Rule("LP177", "error", "not a separator", controls.separator),
    Rule("LP178", "error", "text that cannot be malformed", controls.malformed),
    Rule("LP179", "error", "variable that lasts", ways.lasting_variable),
    Rule("LP180", "error", "attribute of no module", signals.undotted_attribute),
    Rule("LP181", "error", "type nested too deep", controls.nested),
    Rule("LP182", "warning", "carried and used", contracts.carried_and_used),
    Rule("LP183", "error", "carried twice", contracts.carried_twice),
    Rule("LP184", "error", "copy for many libraries", contracts.wide_copy),
    Rule("LP185", "warning", "not a system", expressions.system),
    Rule("LP186", "warning", "way for no release", ways.way_for_no_release),
    Rule("LP187", "warning", "one way twice", ways.way_twice),
    Rule("LP188", "warning", "name not in snake case", contracts.snake_case),
    Rule("LP189", "warning", "default beyond the range", controls.default_beyond),
    Rule("LP190", "error", "range without an order", controls.range_without_order),
    Rule("LP191", "error", "least of what has no order", controls.combine_without_order),
    Rule("LP192", "error", "inherited by none and by some", ways.inherited_by_none),
    Rule("LP193", "error", "division by zero", expressions.division),
    Rule("LP194", "error", "wait that is no time", clauses.wait),
    Rule("LP195", "error", "nothing to choose from", controls.nothing_to_choose),
    Rule("LP196", "error", "not a demand", references.pool),
    Rule("LP197", "warning", "fact looked at and ignored", clauses.looked_at_and_ignored),
    Rule("LP198", "warning", "not a fact of the machine", references.machine_fact),
    Rule("LP199", "warning", "nothing to keep", clauses.nothing_to_keep),
)
