"""Contracts as JSON: the way there, the way back, and what is refused."""

import copy
import json
from dataclasses import fields, is_dataclass
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings

from lpcl import model as m
from lpcl.diagnostics import LpcError
from lpcl.exchange import (
    MAX_JSON_DEPTH,
    SCHEMA_VERSION,
    ExchangeError,
    NewerSchemaError,
    from_json,
    json_schema,
    read_json,
    to_json,
)
from lpcl.parse import MAX_DEPTH, parse
from tests.lpcl.test_format import ALL, TEXTS, files
from tests.lpcl.test_rare_forms import FORMS, HEAD

RARE = [f"{HEAD}  {form}\n}}\n" for form in FORMS.values()]
SCHEMA = json_schema()
VALID = jsonschema.Draft202012Validator(SCHEMA)


def there_and_back(file):
    data = json.loads(json.dumps(to_json(file)))
    VALID.validate(data)
    return from_json(data)


def small():
    text = """lpcl 1 contract a { native "x*" demand d: cpu.threads { amount 1 + t idle spin(1s) evidence e }
    control t: choice("p") { range 1 to 2 env "T" read load param f.g(h) at call special 0 means 1 evidence e }
    signal s: gauge { read call a.b() observes d.amount } mitigate k { sets env "A" to -1 in children unless_set } }"""
    return json.loads(json.dumps(to_json(parse(text).file)))


@pytest.mark.parametrize("text", [*TEXTS, ALL, *RARE])
def test_real_contracts(text):
    file = parse(text).file
    assert there_and_back(file) == file


@settings(max_examples=70, deadline=None)
@given(files)
def test_any_file(file):
    assert there_and_back(file) == file


def test_the_deepest_expression_of_the_parser():
    for wrap in ("-" * (MAX_DEPTH - 6) + "{}", "min(" * (MAX_DEPTH - 6) + "{}" + ")" * (MAX_DEPTH - 6)):
        parsed = parse(f"lpcl 1 contract a {{ demand d: files {{ amount {wrap.format(1)} }} }}")
        assert parsed.ok
        assert there_and_back(parsed.file) == parsed.file


def test_every_class_and_field_of_the_model_is_in_the_schema():
    spans = {"span", "comments"}
    for cls in vars(m).values():
        if not (isinstance(cls, type) and is_dataclass(cls)) or cls in {m.Span, m.File}:
            continue
        definition = SCHEMA["$defs"][cls.__name__]
        expected = {"name"} if cls is m.Ref else {f.name for f in fields(cls)} - spans
        assert definition["properties"].keys() - {"node", "clause"} == expected - {"node", "clause"}
        assert definition["additionalProperties"] is False


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["additionalProperties"] is False
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_what_has_its_default_is_left_out():
    clause = small()["contracts"][0]["clauses"][0]
    assert clause == {
        "clause": "demand",
        "name": "d",
        "resource": "cpu.threads",
        "amount": {
            "node": "operation",
            "operator": "+",
            "operands": [{"node": "number", "value": 1}, {"node": "ref", "name": "t"}],
        },
        "idle": [{"mode": "spin", "duration": {"node": "number", "value": 1, "unit": "s"}}],
        "evidence": ["e"],
    }
    assert "span" not in json.dumps(small())


# --------------------------------------------------------------------- refused


def test_versions():
    data = small()
    with pytest.raises(NewerSchemaError, match="newer"):
        from_json(data | {"schema_version": SCHEMA_VERSION + 1, "more": 1})
    for wrong in (0, -1, "1", 1.0, True, None):
        with pytest.raises(ExchangeError, match="schema_version"):
            from_json(data | {"schema_version": wrong})
    with pytest.raises(ExchangeError, match="language"):
        from_json(data | {"language": 2})
    assert issubclass(NewerSchemaError, LpcError)


CLAUSES = ("contracts", 0, "clauses")
DEMAND, CONTROL, SIGNAL, MITIGATE = ((*CLAUSES, i) for i in range(4))
WRONG = {
    "no contracts": (("contracts",), []),
    "contracts no list": (("contracts",), {}),
    "unknown key": ((*DEMAND, "amuont"), 1),
    "unknown clause": ((*DEMAND, "clause"), "demands"),
    "clause no text": ((*DEMAND, "clause"), ["demand"]),
    "unknown node": ((*DEMAND, "amount", "node"), "call"),
    "node null": ((*DEMAND, "amount"), None),
    "node a list": ((*DEMAND, "amount"), [1]),
    "no name": ((*DEMAND, "name"), "a b"),
    "name with a line end": ((*DEMAND, "name"), "a\n"),
    "name no text": ((*DEMAND, "name"), 1),
    "not dotted": ((*DEMAND, "resource"), "cpu..threads"),
    "unknown word": ((*DEMAND, "scope"), "planet"),
    "operator": ((*DEMAND, "amount", "operator"), "**"),
    "arity of a binary": ((*DEMAND, "amount", "operands"), [{"node": "number", "value": 1}]),
    "no operands": ((*DEMAND, "amount", "operands"), []),
    "truth as number": ((*DEMAND, "amount", "operands", 0, "value"), True),
    "negative number": ((*DEMAND, "amount", "operands", 0, "value"), -1),
    "not finite": ((*DEMAND, "amount", "operands", 0, "value"), float("inf")),
    "not a number": ((*DEMAND, "amount", "operands", 0, "value"), float("nan")),
    "unit": ((*DEMAND, "amount", "operands", 0, "unit"), "parsec"),
    "reserved reference": ((*DEMAND, "amount"), {"node": "ref", "name": "not"}),
    "type without choices": ((*CONTROL, "type"), {"name": "choice"}),
    "type with too much": ((*CONTROL, "type"), {"name": "int", "choices": ["a"]}),
    "sequence without length": ((*CONTROL, "type"), {"name": "sequence", "element": {"name": "int"}}),
    "way with code": ((*CONTROL, "ways", 1, "name"), 'f(g) at call env "X" read load call h'),
    "parameters of a parameter": ((*CONTROL, "ways", 1, "parameters"), ["a", "b"]),
    "parameters of a variable": ((*CONTROL, "ways", 0, "parameters"), ["a"]),
    "kind of way": ((*CONTROL, "ways", 0, "kind"), "exec"),
    "targets": ((*SIGNAL, "read", "target"), ["a.b", "c.d"]),
    "field of a call": ((*SIGNAL, "read", "field"), "f"),
    "text for a truth": ((*MITIGATE, "unless_set"), "yes"),
    "no patterns": (("contracts", 0, "natives", 0, "patterns"), []),
    "evidence": ((*DEMAND, "evidence"), ["e", "not an id"]),
}


def changed(path, value):
    data = small()
    here = data
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    return data


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data(case):
    with pytest.raises(ExchangeError) as error:
        from_json(changed(*WRONG[case]))
    message = str(error.value)
    assert message
    assert len(message) < 400
    assert not message.endswith(".")


# The schema cannot say these: reserved words, and numbers that JSON itself does not know.
BEYOND_SCHEMA = {
    "reserved reference",
    "way with code",
    "field of a call",
    "not finite",
    "not a number",
    "name with a line end",
}


@pytest.mark.parametrize("case", sorted(WRONG.keys() - BEYOND_SCHEMA))
def test_the_schema_refuses_it_too(case):
    assert not VALID.is_valid(changed(*WRONG[case]))


@pytest.mark.parametrize(
    "data", [None, 1, "x", [], {}, {"schema_version": 1}, {1: 2}, {"schema_version": 1, "language": 1}]
)
def test_no_file_at_all(data):
    with pytest.raises(ExchangeError):
        from_json(data)


def test_every_key_that_is_required_is_missed():
    def drop(node, path=()):
        if isinstance(node, dict):
            for key in node:
                yield (*path, key)
                yield from drop(node[key], (*path, key))
        elif isinstance(node, list):
            for i, item in enumerate(node):
                yield from drop(item, (*path, i))

    for path in drop(small()):
        data = small()
        here = data
        for step in path[:-1]:
            here = here[step]
        del here[path[-1]]
        valid = VALID.is_valid(data)
        try:
            from_json(data)
        except ExchangeError:
            continue
        assert valid, path


def test_depth_is_bounded():
    deep = {"node": "number", "value": 1}
    for _ in range(100_000):
        deep = {"node": "operation", "operator": "neg", "operands": [deep]}
    with pytest.raises(ExchangeError, match=f"deeper than {MAX_JSON_DEPTH}"):
        from_json(changed((*DEMAND, "amount"), deep))
    while deep.get("operands"):  # a nest this deep is taken apart by hand: its destructor would recurse
        deep = deep["operands"].pop()
    loop = []
    loop.append(loop)
    with pytest.raises(ExchangeError, match="deeper"):
        from_json(changed(("contracts",), loop))


def test_size_is_bounded():
    wide = ["e"] * 1000
    for _ in range(3):
        wide = [wide] * 1000
    with pytest.raises(ExchangeError, match="more than"):
        from_json(changed((*DEMAND, "evidence"), wide))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"schema_version": 1e999}', "9" * 5000, "\ufeff{}"])
def test_text_that_is_no_contract(text):
    with pytest.raises(ExchangeError):
        read_json(text)


def test_text():
    file = parse(Path(__file__).resolve().parents[2].joinpath("corpus/libgomp/contract.lpcl").read_text("utf-8")).file
    assert read_json(json.dumps(to_json(file))) == file


def test_a_number_too_long_to_print():
    with pytest.raises(ExchangeError):
        from_json(changed((*DEMAND, "amount", "operands", 0, "value"), 10**5000))


def test_data_is_left_alone():
    data = small()
    before = copy.deepcopy(data)
    from_json(data)
    assert data == before
