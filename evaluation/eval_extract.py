"""Score extraction against hand-written lists: `make eval-extract`, or with `--gold DIR`, names of libraries, `--json`.

A list is a JSON file that names a library, a version, `controls`, `not_controls`, `not_control_patterns` and
`unreviewed_patterns`. What is reported under a name of a control counts as found; a control that is `required` and
not found is a miss; any other reported name is a false one, unless a pattern says that nobody looked at it, or it is
a parameter that no list rejects. Libraries that the rules were not developed on are marked as held out; see
docs/extraction.md for how far they were.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from synth.cli import cache_dir
from synth.cli_evidence import as_dict
from synth.extract import Sources, extract
from synth.indexes import index_config

DEVELOPED_ON = frozenset({"numexpr", "joblib", "threadpoolctl", "tokenizers"})
DEFAULT_GOLD = Path("../shared/gold")
KINDS = ("env", "api", "config", "param", "all")
_UNSET = frozenset({"", "-", "none", "unset", "no default", "null", "not set", "no change", "no limit", "disabled"})
_COLUMNS = ("library", "kind", "required", "recall", "precision", "binding", "verbatim", "default", "scope", "kept")


def norm(name: str) -> str:
    """`pkg.f()` -> `pkg.f`, `pkg.f(x=)` -> `pkg.f#x`, case folded."""
    text = name.strip().strip("`'\" ").lower()
    match = re.match(r"^(.*?)\((\w+)\s*=?.*\)$", text)
    return f"{match[1]}#{match[2]}" if match else re.sub(r"\(.*?\)$", "", text)


@dataclass
class Score:
    """Counts of one library and kind; `kept` are rejected names that were reported as controls."""

    library: str
    kind: str
    held_out: bool
    required: int = 0
    found_required: int = 0
    found: int = 0
    false: int = 0
    kept: int = 0
    binding: list[int] = field(default_factory=lambda: [0, 0])
    verbatim: list[int] = field(default_factory=lambda: [0, 0])
    default: list[int] = field(default_factory=lambda: [0, 0])
    scope: list[int] = field(default_factory=lambda: [0, 0])
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    off: list[str] = field(default_factory=list)

    def add(self, other: Score) -> None:
        """Sum up."""
        for name in ("required", "found_required", "found", "false", "kept"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("binding", "verbatim", "default", "scope"):
            pair = getattr(self, name)
            pair[0] += getattr(other, name)[0]
            pair[1] += getattr(other, name)[1]


@dataclass
class Gold:
    """One list, by normalised name."""

    raw: dict[str, Any]
    controls: dict[str, dict[str, Any]] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)
    rejecting: list[re.Pattern[str]] = field(default_factory=list)
    unreviewed: list[re.Pattern[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Index the list."""
        for control in self.raw["controls"]:
            for name in [control["name"], *(control.get("aliases") or [])]:
                self.controls[norm(name)] = control
        self.rejected = {norm(n["name"]) for n in self.raw.get("not_controls", [])}
        self.rejecting = list(_patterns(self.raw.get("not_control_patterns", [])))
        self.unreviewed = list(_patterns(self.raw.get("unreviewed_patterns", [])))

    def match(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """The control that an item reports: by any of its names, else by the last part of a dotted one."""
        names = [norm(item["name"]), *(norm(a) for a in item["aliases"])]
        exact = next((self.controls[n] for n in names if n in self.controls), None)
        if exact is not None:
            return exact
        tail = names[0].rpartition(".")[2]
        return next(
            (c for n, c in self.controls.items() if c["kind"] != "env" and n.rpartition(".")[2] == tail),
            None,
        )

    def judge(self, item: dict[str, Any]) -> str:
        """`rejected`, `ignored` or `false` for a name that is no control of the list."""
        names = [norm(item["name"]), *(norm(a) for a in item["aliases"])]
        if any(n in self.rejected for n in names) or any(p.search(item["name"]) for p in self.rejecting):
            return "rejected"
        if item["kind"] == "param" or any(p.search(item["name"]) for p in self.unreviewed):
            return "ignored"
        return "false"


def _patterns(found: Iterable[Any]) -> Iterator[re.Pattern[str]]:
    for pattern in found:
        yield re.compile(pattern if isinstance(pattern, str) else pattern["pattern"])


def score(raw: dict[str, Any], items: Iterable[dict[str, Any]]) -> list[Score]:
    """Scores by kind of one library, and over all kinds last."""
    gold, name = Gold(raw), raw["library"]
    by_kind = {kind: Score(name, kind, name not in DEVELOPED_ON) for kind in KINDS}
    reported: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for item in {norm(i["name"]): i for i in reversed(list(items)) if i["verdict"] == "control"}.values():
        control = gold.match(item)
        if control is not None:
            reported[id(control)].append(item)
            continue
        judged = gold.judge(item)
        if judged != "ignored":
            line = by_kind[item["kind"]]
            line.false += 1
            line.kept += judged == "rejected"
            line.wrong.append(item["name"])
    for control in raw["controls"]:
        _control(by_kind[control["kind"]], control, reported.get(id(control), []))
    for kind in KINDS[:-1]:
        by_kind["all"].add(by_kind[kind])
    return [s for s in by_kind.values() if s.required or s.found or s.false or s.kind == "all"]


def _control(line: Score, control: dict[str, Any], items: list[dict[str, Any]]) -> None:
    required = control.get("scoring") == "required"
    line.found += bool(items)
    line.required += required
    line.found_required += required and bool(items)
    if required and not items:
        line.missing.append(control["name"])
    if not (required and items and control.get("certain", True)):
        return
    checks = (
        ("binding", control.get("read_when"), "read_when", _same_binding),
        ("verbatim", control.get("read_when"), "read_when", _verbatim),
        ("default", control.get("default"), "default", _same_default),
        ("scope", control.get("scope"), "scope", _same_scope),
    )
    for name, wanted, key, same in checks:
        if wanted is None:
            continue
        pair = getattr(line, name)
        right = any(same(str(wanted), str(item[key])) for item in items)
        pair[0] += right
        pair[1] += 1
        if not right and name != "verbatim":
            line.off.append(f"{control['name']} {name}: list `{wanted}`, reported `{items[0][key]}`")


def _verbatim(wanted: str, given: str) -> bool:
    """The same text, as `score.py` beside the lists counts it: an entry with an explanation never agrees."""
    return wanted.replace("_", "-") == given.replace("_", "-")


def _same_binding(wanted: str, given: str) -> bool:
    """The first of the binding times that a list's words name."""
    text = wanted.lower().replace("_", "-")
    found = [
        (text.find(word), kind)
        for word, kind in (
            ("import", "import"),
            ("first-use", "first-use"),
            ("first use", "first-use"),
            ("first parallel use", "first-use"),
            ("each-call", "each-call"),
            ("start", "process-start"),
            ("build", "build"),
        )
        if word in text
    ]
    return min(found, default=(0, text))[1] == given.replace("_", "-")


def _words(text: str) -> str:
    return re.sub(r"[\s'\"`]+", " ", text.lower()).strip()


def _sequence(text: str) -> str:
    """`['a', 'b']` -> `a b`: lists write sequences as words."""
    return re.sub(r"[\[\](),\s]+", " ", text).strip() if re.fullmatch(r"[\[(].*[\])]", text) else text


def _same_default(wanted: str, given: str) -> bool:
    """A list's default begins with a reported value or names it as a word; `unset -> X` reports both.

    An expression agrees where it has all numbers and most words of what the list says, which puts it in other words.
    """
    listed = _words(wanted)
    parts = [_sequence(part.strip()) for part in _words(given).split(" -> ")]
    return any(_names(listed, part) for part in parts) or _same_expression(wanted, given)


def _same_expression(wanted: str, given: str) -> bool:
    if not re.search(r"\w\(|[*/]|::", given):
        return False
    listed, reported = _tokens(wanted), _tokens(given)
    numbers = {t for t in listed if t.isdigit()}
    words = listed - numbers
    shared = [w for w in words if any(w[:4] == r[:4] for r in reported)]
    return len(listed) > 1 and numbers <= reported and 3 * len(shared) >= 2 * len(words)


def _tokens(text: str) -> set[str]:
    """Numbers and words of an expression, without units and words that only join."""
    cut = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    found = re.findall(r"[a-z]{3,}|\d+", cut.lower())
    return set(found) - {"the", "and", "else", "when", "mib", "kib", "gib", "unset", "default", "std", "bytes"}


def _names(listed: str, reported: str) -> bool:
    value = reported.partition(" (")[0]
    if value in ("false", "0", "off") and listed in _UNSET:
        return True  # a switch that is off unless it is set
    if value in _UNSET:
        return listed in _UNSET or bool(re.match(r"(none|unset|not set|no |null|-|disabled)", listed))
    forms = {value, {"true": "1", "false": "0", "1": "true", "0": "false"}.get(value, value)}
    if re.fullmatch(r"[\d_]+", value):
        forms.add(value.replace("_", ""))
    inner = re.search(r"\(([^()]+)\)$", reported)
    if inner is not None:
        forms.add(inner[1])
    return any(re.search(rf"(?<![\w.]){re.escape(form)}(?![\w.]*\w)", listed) for form in forms)


def _same_scope(wanted: str, given: str) -> bool:
    words = re.findall(r"process|thread|object", wanted.lower())
    reported = re.findall(r"process|thread|object", given.lower())[:1]
    return bool(words) and reported == words[:1]


def _share(pair: list[int]) -> str:
    return f"{pair[0] / pair[1]:.2f} {pair[0]}/{pair[1]}" if pair[1] else "-"


def _row(line: Score) -> list[str]:
    return [
        line.library + (" (held out)" if line.held_out else ""),
        line.kind,
        str(line.required),
        _share([line.found_required, line.required]),
        _share([line.found, line.found + line.false]),
        _share(line.binding),
        _share(line.verbatim),
        _share(line.default),
        _share(line.scope),
        str(line.kept),
    ]


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def main() -> int:
    """Extract, score, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("libraries", nargs="*", help="names of lists (default: all)")
    parser.add_argument("--gold", type=Path, default=DEFAULT_GOLD, metavar="DIR", help="folder with the lists")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line instead of tables")
    parser.add_argument("--details", action="store_true", help="name what is missing, false or different")
    parser.add_argument("--offline", action="store_true", help="use archives of the cache only")
    args = parser.parse_args()
    paths = [p for p in sorted(args.gold.glob("*.json")) if not args.libraries or p.stem in args.libraries]
    if not paths:
        print(f"eval-extract: no lists in `{args.gold}`", file=sys.stderr)
        print(
            "  help: name the folder that holds them with --gold DIR; nothing is scored without them", file=sys.stderr
        )
        return 2
    lists = [json.loads(path.read_text("utf-8")) for path in paths]
    sources = Sources(cache_dir(), index_config(), offline=args.offline)
    lines: list[Score] = []
    failed = False
    targets = {f"{raw['library']}=={raw['version']}": raw for raw in lists}
    for result in extract(list(targets), sources):
        if result.error is not None:
            print(f"eval-extract: {result.target}: {result.error}", file=sys.stderr)
            failed = True
            continue
        print(f"{result.target}: {len(result.items)} items in {result.seconds:.1f} s", file=sys.stderr)
        lines += score(targets[result.target], [as_dict(item) for item in result.items])
    _report(lines, as_json=args.json, details=args.details)
    return 3 if failed else 0


def _report(lines: list[Score], *, as_json: bool, details: bool) -> None:
    if as_json:
        for line in lines:
            print(json.dumps(asdict(line)))
        return
    groups = []
    for held_out in (False, True):
        group = [line for line in lines if line.held_out is held_out]
        total = Score("held out, together" if held_out else "developed on, together", "all", held_out=False)
        for line in group:
            if line.kind == "all":
                total.add(line)
        if group:
            groups += [*group, total]
    print(_table([list(_COLUMNS), *(_row(line) for line in groups)]))
    for line in lines if details else []:
        for word, names in (("missing", line.missing), ("false", line.wrong), ("differs", line.off)):
            for name in names:
                print(f"{line.library} {line.kind} {word}: {name}")


if __name__ == "__main__":
    sys.exit(main())
