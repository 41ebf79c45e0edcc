"""The loop over the parse table gives the trees of Lark's own, and stops where it stops."""

import random
from pathlib import Path

import pytest
from lark import Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from evaluation.fuzz.derive import derive
from evaluation.fuzz.texts import MAKERS
from lpcl.lalr import Feed, LimitStop, SyntaxStop, read
from lpcl.tables import parser

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
TEXTS = {path.parent.name: path.read_text("utf-8") for path in sorted(CORPUS.glob("*/contract.lpcl"))}
PLACE = ("line", "column", "end_line", "end_column", "start_pos", "end_pos")


def feed():
    return Feed(max_stack=1000, max_glued=1000)


def plain(node):
    """A tree as nested tuples, with all its positions."""
    if isinstance(node, Token):
        return (node.type, str(node), *(getattr(node, k) for k in PLACE))
    if isinstance(node, Tree):
        place = None if node.meta.empty else tuple(getattr(node.meta, k) for k in PLACE)
        return (str(node.data), place, *map(plain, node.children))
    return node


@pytest.mark.parametrize("name", TEXTS)
def test_trees_of_the_corpus(name):
    assert plain(read(TEXTS[name], "start", feed())) == plain(parser().parse(TEXTS[name], start="start"))


def test_trees_of_clauses_that_the_grammar_derives():
    for seed in range(300):
        rng = random.Random(seed)
        text = rng.choice((" ", "\n", " // c\n")).join(derive(rng, "clause", rng.randrange(5, 120)))
        assert plain(read(text, "clause", feed())) == plain(parser().parse(text, start="clause")), text


def stop_of_lark(text):
    """Offset of the place where Lark stops and the terminals that it accepts there, or None."""
    steps = parser().parse_interactive(text, start="start")
    last = None
    try:
        for last in steps.iter_parse():  # noqa: B007
            pass
        steps.feed_eof(last)
    except UnexpectedToken as error:
        end = error.token.type == "$END"
        return None if end else error.token.start_pos, end, frozenset(steps.accepts()) - {"_LEAD"}
    except UnexpectedInput as error:
        return error.pos_in_stream, False, None
    return None


@pytest.mark.parametrize("kind", ["tokens", "bytes", "words", "splicing", "grammar"])
def test_damaged_texts_stop_at_the_same_place_with_the_same_expectation(kind):
    stopped = 0
    for seed in range(60):
        text = MAKERS[kind](random.Random(seed))
        if len(text) > 5000:
            continue
        expected = stop_of_lark(text)
        if expected is None:
            assert plain(read(text, "start", feed())) == plain(parser().parse(text, start="start"))
            continue
        stopped += 1
        with pytest.raises(SyntaxStop) as caught:
            read(text, "start", feed())
        position, end, accepts = expected
        stop = caught.value
        assert stop.end == end
        assert position is None or stop.position == position
        assert accepts is None or stop.expected == accepts
    assert stopped > 5


def test_a_part_of_a_text_has_its_places_in_the_whole():
    text = 'lpcl 1\ncontract a {\n  summary "x" uses b,\n    c\n}\n'
    start = text.index("uses")
    tree = read(text, "clause", feed(), (start, text.rindex("}")), 3)
    uses = tree.children[0]
    assert (uses.meta.line, uses.meta.column, uses.meta.start_pos) == (3, 15, start)
    assert (uses.meta.end_line, uses.meta.end_column) == (4, 6)
    assert text[uses.meta.start_pos : uses.meta.end_pos] == "uses b,\n    c"


def test_work_is_counted_and_limits_are_kept():
    counted = feed()
    read("lpcl 1 contract a { uses b, c }", "start", counted)
    assert counted.work == 10
    with pytest.raises(LimitStop) as deep:
        read("uses " + "a, " * 10 + "b", "clause", Feed(max_stack=2, max_glued=5))
    assert deep.value.stack
    glued = Feed(max_stack=100, max_glued=2)
    with pytest.raises(LimitStop) as words:
        read("demand a: files { createdimportcreated", "clause", glued)
    assert not words.value.stack
    assert glued.glued == [(18, 25, 31), (18, 31, 38)]
