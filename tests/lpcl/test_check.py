"""Each rule of the language: its cases, and its section in the reference.

A file of `cases/` holds the cases of one rule, in the style of mypy's test data:

    [case NAME]         the text of a contract follows
    [eval]              ... or a Python expression that makes it, where it is too long to print
    [file NAME]         another file beside it: the case is then read as a folder of a corpus
    [limit NAME VALUE]  a limit of `lpcl.parse` or `lpcl.corpus` for this case
    [out]               `line:column rule` of each finding; below it, if wanted, the source line and its caret
"""

import inspect
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import lpcl.corpus
import lpcl.parse
from lpcl import model as m
from lpcl.check import RULES, check
from lpcl.corpus import Entry, load_entry
from lpcl.diagnostics import render, render_json
from lpcl.parse import parse

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REFERENCE = ROOT / "docs" / "lpcl.md"
SECTION = re.compile(r"^\[(case|eval|file|limit|out)(?: ([^\]]*))?\]$")
RULE = re.compile(r'"(LP\d{3})"')
IDS = [rule.id for rule in RULES]


@dataclass
class Case:
    """One case of a file."""

    file: str
    name: str
    text: str = ""
    code: str = ""
    files: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    out: str = ""


def read_cases(path):
    cases, kind, name, lines = [], "", "", []

    def close():
        body = "\n".join(lines)
        if kind == "case":
            cases[-1].text = body.rstrip("\n") + "\n"
        elif kind == "eval":
            cases[-1].code = body
        elif kind == "file":
            cases[-1].files[name] = body.rstrip("\n") + "\n"
        elif kind == "out":
            cases[-1].out = body.strip("\n")

    for line in path.read_text("utf-8").split("\n"):
        opened = SECTION.match(line)
        if not opened:
            lines.append(line)
            continue
        if opened[1] == "limit":  # before or behind the text
            key, value = opened[2].split()
            cases[-1].limits[key] = int(value)
            continue
        close()
        kind, name, lines = opened[1], opened[2] or "", []
        if kind == "case":
            cases.append(Case(path.stem, name))
    close()
    return cases


CASES = [case for path in sorted((HERE / "cases").glob("*.txt")) for case in read_cases(path)]


def findings(text):
    parsed = parse(text)
    if parsed.ok and parsed.file is not None:
        return (*parsed.diagnostics, *check(parsed.file))
    return parsed.diagnostics


def folder_findings(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    loaded = load_entry(folder)
    return loaded.diagnostics if isinstance(loaded, Entry) else loaded


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.file}-{c.name}")
def test_case(case, tmp_path, monkeypatch):
    for name, value in case.limits.items():
        monkeypatch.setattr(lpcl.parse if hasattr(lpcl.parse, name) else lpcl.corpus, name, value)
    text = eval(case.code) if case.code else case.text
    found = folder_findings(tmp_path, {"contract.lpcl": text} | case.files) if case.files else findings(text)
    snippets = "|" in case.out
    actual = []
    for d in found:
        place = Path(d.file).name
        place = f"{place}:" if place not in {"", "contract.lpcl"} else ""
        actual.append(f"{place}{d.span.line}:{d.span.column} {d.rule}")
        if snippets and not place:
            actual += [line for line in render(d, text).split("\n")[1:] if not line.startswith("  help:")]
    assert "\n".join(actual) == case.out


def test_the_table_lists_every_rule_once_and_in_order():
    elsewhere = {r for path in (ROOT / "lpcl").glob("*.py") for r in RULE.findall(path.read_text("utf-8"))}
    assert sorted(set(IDS)) == IDS
    assert elsewhere == {rule.id for rule in RULES if rule.judge is None}
    judges = [rule.judge for rule in RULES if rule.judge is not None]
    assert len(judges) == len(set(judges)) >= 40


def test_every_rule_has_a_case_that_finds_it_and_one_that_does_not():
    for rule in IDS:
        cases = [c for c in CASES if c.file == rule]
        assert any(f" {rule}" in c.out for c in cases), rule
        assert any(f" {rule}" not in c.out for c in cases), rule
    assert {c.file for c in CASES} == set(IDS)


def test_every_rule_function_is_small_and_says_what_it_finds():
    for rule in RULES:
        if rule.judge is not None:
            assert rule.judge.__doc__.endswith("."), rule
            assert len(inspect.getsource(rule.judge).splitlines()) <= 25, rule


def test_every_module_of_rules_is_short():
    for path in (ROOT / "lpcl" / "rules").glob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) < 400, path


# ------------------------------------------------------------------ reference

FENCE = re.compile(r"^```(\w+) (good|bad)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ABSENT = "(no such file)\n"


def whole(language, body):
    """An example as a file: clauses alone stand in a contract `demo`."""
    if language == "python":
        return eval(body)
    if re.match(r"(lpcl|contract)\b", body):
        return body
    return f'lpcl 1\n\ncontract demo {{\n  package "demo"\n{body}}}\n'


def sections():
    parts = re.split(r"^#+ (.*)\n", REFERENCE.read_text("utf-8"), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def rule_sections():
    return {title[:5]: body for title, body in sections() if re.match(r"LP\d{3}\b", title)}


def test_every_rule_has_a_section_with_its_title_and_severity():
    titles = {title for title, _ in sections() if re.match(r"LP\d{3}\b", title)}
    assert titles == {f"{rule.id}: {rule.title}" for rule in RULES}
    bodies = rule_sections()
    for rule in RULES:
        assert bodies[rule.id].lstrip().lower().startswith(f"{rule.severity}."), rule.id


def test_the_list_of_rules_names_each_of_them():
    rows = re.findall(r"^\| [^|]* \| (\[LP.*) \|$", dict(sections())["Rules"], re.MULTILINE)
    named = set()
    for first, _, last in re.findall(r"\[(LP\d+)\](\([^)]*\) to \[(LP\d+)\])?", " ".join(rows)):
        named |= {rule for rule in IDS if first <= rule <= (last or first)}
    assert sorted(named) == IDS


def good_folder():
    text = next(body for title, body in sections() if title == "Files of a corpus")
    return {name: body for _, mood, name, body in FENCE.findall(text) if mood == "good"}


def test_links_of_the_reference_lead_somewhere():
    text = REFERENCE.read_text("utf-8")
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title, _ in sections()}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors


GOOD = [
    (title, language, body)
    for title, text in sections()
    for language, mood, name, body in FENCE.findall(text)
    if mood == "good" and not name
]


@pytest.mark.parametrize(("title", "language", "body"), GOOD, ids=[f"{i}-{g[0]}" for i, g in enumerate(GOOD)])
def test_good_examples_are_clean(title, language, body):
    assert findings(whole(language, body)) == ()


BAD = [
    (title, language, body)
    for title, text in sections()
    for language, mood, name, body in FENCE.findall(text)
    if mood == "bad" and not name
]


@pytest.mark.parametrize(("title", "language", "body"), BAD, ids=[f"{i}-{g[0]}" for i, g in enumerate(BAD)])
def test_bad_examples_yield_their_rule(title, language, body):
    rules = re.findall(r"LP\d{3}", title)
    assert rules, "a bad example stands in the section of its rule"
    assert rules[0] in {d.rule for d in findings(whole(language, body))}


@pytest.mark.parametrize("rule", IDS)
def test_every_section_has_a_bad_and_a_good_example(rule, tmp_path):
    fences = FENCE.findall(rule_sections()[rule])
    assert {mood for _, mood, _, _ in fences} == {"good", "bad"}
    for wanted in ("good", "bad"):
        named = {
            name: whole(lang, body) if lang == "python" else body
            for lang, mood, name, body in fences
            if mood == wanted and name
        }
        if not named:
            continue
        folder = tmp_path / wanted
        folder.mkdir()
        found = folder_findings(folder, {k: v for k, v in (good_folder() | named).items() if v != ABSENT})
        assert (rule in {d.rule for d in found}) == (wanted == "bad")
        assert wanted == "bad" or found == ()


# -------------------------------------------------------------- several at once


def test_findings_come_in_the_order_of_the_text_and_carry_the_file():
    text = """lpcl 1
contract demo {
  control a: int { default "x" evidence E1 }
  demand b: disk { evidence e1 }
}
"""
    found = check(parse(text).file, name="demo.lpcl")
    assert [d.rule for d in found] == ["LP102", "LP105", "LP116", "LP117", "LP107"]
    assert [d.file for d in found] == ["demo.lpcl"] * 5
    places = [(d.span.line, d.span.column) for d in found]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("cpu.treads", "cpu.threads"),
        ("memory.bandwith", "memory.bandwidth"),
    ],
)
def test_did_you_mean(wrong, right):
    (found,) = check(parse(f'lpcl 1 contract demo {{ package "p" demand w: {wrong} {{ evidence e }} }}').file)
    assert found.help == f"did you mean `{right}`?"


def test_messages_are_lower_case_without_a_final_period_and_quote_the_users_text():
    for case in CASES:
        if not case.files and not case.code:
            for d in findings(case.text):
                assert d.message
                assert not d.message.endswith(".")
                assert d.message[0] == "`" or d.message[0].islower()
                assert not d.help.removesuffix("...").endswith(".")


def test_findings_as_json():
    import json

    found = findings('lpcl 1 contract demo { package "p" demand w: disk { evidence e } }')
    (one,) = json.loads(render_json(found))
    assert one["rule"] == "LP107"
    assert (one["line"], one["column"], one["end_line"], one["end_column"]) == (1, 46, 1, 50)
    assert set(one) == {"rule", "severity", "message", "help", "file", "line", "column", "end_line", "end_column"}


def test_the_caret_stays_under_its_word_behind_tabs_and_in_a_line_of_a_megabyte():
    text = 'lpcl 1\ncontract demo { package "p"\n\tdemand w: disk { evidence e } }'
    (found,) = findings(text)
    _, source, caret, _ = render(found, text).split("\n")
    assert source[caret.index("^") : caret.rindex("^") + 1] == "disk"
    text = 'lpcl 1 contract demo { package "p" demand w: ' + " " * 900_000 + "disk { evidence e } }"
    (found,) = findings(text)
    _, source, caret, _ = render(found, text).split("\n")
    assert source[caret.index("^") : caret.rindex("^") + 1] == "disk"
    assert len(source) < 130


def test_a_contract_that_was_built_rather_than_read_is_checked_too():
    contract = m.Contract("demo", (m.Package("demo"),), clauses=(m.Demand("w", m.Ref(("disk",))),))
    assert [d.rule for d in check(m.File(1, (contract,)))] == ["LP104", "LP107"]


# ---------------------------------------------------------------- open faults


def clauses(body):
    return {d.rule for d in findings(f'lpcl 1 contract demo {{ package "demo" {body} }}')}


def control(body, type_="int"):
    return f'control t: {type_} {{ env "DEMO_T" read load evidence e1 {body} }}'


def test_a_literal_too_large_for_a_float_in_its_unit_is_bounded():
    big = "9" * 400
    assert "LP122" not in clauses(control(f"range 1 to 5 default {big}ns"))


def test_a_value_with_more_digits_than_can_be_printed_is_bounded():
    big = "9" * 4000
    assert clauses(control(f"range 1 to 5 default {big} * {big}")) is not None


def test_a_variable_name_does_not_end_in_a_line_feed():
    assert clauses('control t: int { env "DEMO_T\\n" read load evidence e1 }') == {"LP114"}


def test_an_amount_that_names_itself_is_a_cycle():
    assert clauses("demand w: memory.bytes { amount w.amount / 2 evidence e1 }") == {"LP111"}


def test_a_control_and_a_demand_that_need_each_other_are_a_cycle():
    text = """
        demand cache: memory.bytes { amount size evidence e1 }
        control size: size { default cache.amount env "A" read load evidence e1 }
    """
    assert clauses(text) == {"LP111"}


def test_a_variable_claimed_twice_is_found_behind_one_that_only_falls_back_to_it():
    text = """
        control a: int { env "A" read load env "N" read load evidence e1 }
        control b: int { env "N" read load evidence e1 }
        control c: int { env "N" read load evidence e1 }
    """
    assert clauses(text) == {"LP113"}


def test_a_resource_that_an_assumption_sizes_is_one():
    assert clauses("assume a { sizes cpu.thread from machine.online evidence e1 }") == {"LP107"}


def test_the_upper_end_of_a_range_has_the_type_of_the_control():
    assert clauses(control('range 1 to "eight" default 2')) == {"LP117"}


@pytest.mark.parametrize(
    "path",
    ["/proc/../etc/passwd", "/proc/self/root/etc/passwd", "/proc/self/cwd/x", "/proc/self/environ", "/proc/1/fd/3"],
)
def test_a_signal_reads_no_file_outside_of_proc_and_no_secret_in_it(path):
    demand = "demand c: memory.bytes { amount 1 evidence e1 }"
    signal = f'signal s: gauge {{ read file "{path}" observes c.amount evidence e1 }}'
    assert clauses(demand + signal) == {"LP130"}


@pytest.mark.parametrize("name", ["OMP_TOOL_LIBRARIES", "CUDA_INJECTION64_PATH", "OCL_ICD_FILENAMES", "MALLOC_TRACE"])
def test_variables_that_load_code_or_write_files_are_refused(name):
    assert clauses(f'control t: text {{ env "{name}" read load evidence e1 }}') == {"LP115"}


def test_many_dangling_references_take_time_in_proportion():
    body = "".join(f"control aaaa{i}: int {{ default aaab{i + 5000} }}\n" for i in range(600))
    file = parse('lpcl 1 contract demo { package "demo"\n' + body + "}").file
    start = time.process_time()
    check(file)
    assert time.process_time() - start < 0.4
