"""Texts of any size that are made to take too much time, memory or depth."""

from __future__ import annotations

from collections.abc import Callable


def inside(body: str) -> str:
    """Clauses as a whole file."""
    return f'lpcl 1\ncontract demo {{\n  package "demo"\n{body}\n}}\n'


def default(text: str) -> str:
    """An expression as a whole file."""
    return inside(f'  control t: int {{ default {text} env "T" read load evidence e }}')


def _lines(line: str) -> Callable[[int], str]:
    """Many numbered lines in one contract, up to that many characters."""
    width = len(line) + 4

    def make(n: int) -> str:
        return inside("".join(line.replace("#", str(i)).replace("@", str(i // 2)) + "\n" for i in range(n // width)))

    return make


# Each takes a number of characters, more or less, and gives a text of about that many.
BOMBS: dict[str, Callable[[int], str]] = {
    "minus": lambda n: default("-" * n + "1"),
    "not": lambda n: default("not " * (n // 4) + "true"),
    "sum": lambda n: default("1+" * (n // 2) + "1"),
    "open sum": lambda n: default("1+" * (n // 2)),
    "conditionals": lambda n: default("if a then " * (n // 17) + "1" + " else 1" * (n // 17)),
    "conditions": lambda n: default("if " * (n // 17) + "a" + " then 1 else 1" * (n // 17)),
    "calls": lambda n: default("f(" * (n // 3) + ")" * (n // 3)),
    "wide call": lambda n: default("min(" + "1," * (n // 2) + "1)"),
    "parentheses": lambda n: default("(" * (n // 2) + "1" + ")" * (n // 2)),
    "parentheses open": lambda n: default("(" * n),
    "parentheses closed": lambda n: default("1" + ")" * n),
    "lists": lambda n: inside("control t: " + "list(" * (n // 6) + "int" + ")" * (n // 6) + " {}"),
    "braces": lambda n: inside("{" * (n // 2) + "}" * (n // 2)),
    "braces open": lambda n: "lpcl 1 contract a " + "{" * n,
    "braces closed": lambda n: "lpcl 1 contract a " + "}" * n,
    "string": lambda n: default('"' + "a" * n + '"'),
    "string open": lambda n: default('"' + "a" * n),
    "quotes": lambda n: default('"' * n),
    "backslashes": lambda n: default('"' + "\\" * n),
    "escaped quotes": lambda n: default('"' + '\\"' * (n // 2)),
    "digits": lambda n: default("9" * n),
    "digits with a unit": lambda n: default("9" * n + "GiB"),
    "fraction": lambda n: default("0." + "9" * n + "s"),
    "name": lambda n: default("a" * n),
    "glued name": lambda n: inside("control" + "a" * n + ": int { }"),
    "dots": lambda n: default("a" + ".a" * (n // 2)),
    "slashes": lambda n: inside("/" * n),
    "comments": lambda n: inside("//\n" * (n // 3)),
    "spaces": lambda n: inside(" \t\r\n" * (n // 4)),
    "words": lambda n: inside("control " * (n // 8)),
    "contracts": lambda n: "lpcl 1" + "".join(f" contract a{i} {{}}" for i in range(n // 20)),
    "contracts of one name": lambda n: "lpcl 1" + " contract a {}" * (n // 14),
    "contracts open": lambda n: "lpcl 1" + " contract a {" * (n // 13),
    "version": lambda n: f"lpcl {'9' * n} contract a {{}}",
    "commented packages": _lines('// c#\n  package "a#"'),
    "bad clauses": _lines("  summary #"),
    "right and wrong": lambda n: _lines('  control c#: int { env "A#" read load evidence e }')(n) + "x",
    "wrong at the end": lambda n: _lines('  control c#: int { default # env "A#" read load }')(n).rstrip()[:-1] + "x }",
    "chain": _lines('  control c#: int { default c@ + 1 env "A#" read load evidence e }'),
    "one name twice": _lines('  control c: int { env "A#" read load evidence e }'),
    "dangling": _lines('  control c#: int { default nothing_#x env "A#" read load evidence e }'),
    "demands": _lines("  demand d#: cpu.threads { amount d@.amount evidence e }"),
    "notes": lambda n: inside("  control t: int {" + ' note "x"' * (n // 9) + "}"),
    "ways": lambda n: inside("  control t: int {" + "".join(f' env "A{i}" read load' for i in range(n // 22)) + "}"),
    "bounds": lambda n: inside("  control t: int { bounds " + ", ".join(f"d{i}.idle" for i in range(n // 10)) + "}"),
    "choices": lambda n: inside("  control t: choice(" + ", ".join(f'"c{i}"' for i in range(n // 8)) + ") {}"),
    "evidence": lambda n: inside("  control t: int { evidence " + ", ".join(f"e{i}" for i in range(n // 8)) + "}"),
    "idle": lambda n: inside("  demand d: cpu.threads {" + " idle spin" * (n // 10) + "}"),
    "natives": lambda n: inside("  native " + ", ".join(f'"l{i}*"' for i in range(n // 8))),
    "properties twice": lambda n: inside("  control t: int {" + " default 1" * (n // 10) + "}"),
    "stars": lambda n: inside(f'  native "lib{"*?" * (n // 2)}.so"'),
    "proxy": lambda n: inside(f'  control t: int {{ env "{"_PROXY" * (n // 6)}x" read load }}'),
    "acts": lambda n: inside(f"  signal s: gauge {{ read call a.{'set_' * (n // 4)}() }}"),
    "powers": lambda n: default("pow(9, " * min(20, n // 8) + "9" + ")" * min(20, n // 8)),
    "negations of one word": lambda n: default("not" * (n // 3) + "1"),
    "ifs of one word": lambda n: default("if" * (n // 2)),
    "numbers of one word": lambda n: default("1s" * (n // 2)),
    "signs": lambda n: "lpcl 1 contract a {" + ";" * n,
    "clauses without end": _lines("  control c#: int { default raed wrong\n    default 1"),
    "clauses without end, right": _lines("  control c#: int { default 1"),
    "clauses without end, few words": _lines("  control c#: int { default - }{"),
    "misspelt properties": lambda n: inside("  control c: int {\n" + "  defalt 1\n" * (n // 11) + "  }"),
    "unknown properties": lambda n: inside("  control c: int {\n" + "  zzzzzzzz 1\n" * (n // 13) + "  }"),
    "properties after an error": lambda n: inside("  control c: int {\n x\n" + "  note 1\n" * (n // 9) + "  }"),
    "one sign a character": lambda n: inside("  control c: int { " + "=.,:" * (n // 4) + " }"),
    "newlines": lambda n: inside("\n" * n),
    "newlines in a string": lambda n: default('"' + "\n" * n),
    "zeros": lambda n: inside("\0" * n),
    "not UTF-8": lambda n: inside('  summary "' + "\udcff" * n + '"'),
    "carriers": _lines('  carries a# "b#"'),
    "inside": lambda n: inside("  demand d: cpu.threads { inside " + ", ".join(f"d{i}.x" for i in range(n // 8)) + "}"),
    "heirs": lambda n: inside("  control t: int { inherited by " + "fork, " * (n // 6) + "none }"),
    "specials": lambda n: inside("  control t: int {" + ' special "" ignored' * (n // 19) + "}"),
    "maps": lambda n: inside("control t: " + "map(" * (n // 5) + "int" + ")" * (n // 5) + " {}"),
}  # fmt: skip
