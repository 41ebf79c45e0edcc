"""The language server, through a client that speaks the protocol with a real process over its standard streams."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl import editor
from lpcl.corpus import fingerprint, read_evidence, shipped
from lpcl.parse import parse

pygls = pytest.importorskip("pygls")
from lsprotocol import types as t  # noqa: E402
from pygls.lsp.client import LanguageClient  # noqa: E402

TEXT = """lpcl 1

contract demo {
  package "demo"

  demand workers: cpu.threads {
    amount threads
    created import
    scope process
    idle block
    runs native
    fork safe
    evidence e1
  }

  control threads: int {
    range 1 to 8
    default machine.online
    env "DEMO_THREADS" read import
    bounds workers.amount
    evidence e1
  }
}
"""
RECORD = {
    "id": "e1",
    "source": "demo==1",
    "vouched": "person",
    "seen": {"file": "demo.py", "line": 3, "text": "", "detail": "one worker a core"},
}
LIMIT_S = 30


def place(text, needle, inside=1):
    """The protocol's position of a character inside of the first `needle`."""
    offset = text.index(needle) + inside
    start = text.rfind("\n", 0, offset) + 1
    return t.Position(text.count("\n", 0, offset), offset - start)


class Client:
    """A client with one document open."""

    def __init__(self, folder, text):
        self.client = LanguageClient("test", "1")
        self.published = asyncio.Queue()
        path = folder / "contract.lpcl"
        path.write_text(text)
        (folder / "evidence.jsonl").write_text(json.dumps(RECORD) + "\n")
        self.uri, self.text = path.as_uri(), text

        @self.client.feature(t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params):
            self.published.put_nowait(params)

    async def __aenter__(self):
        await self.client.start_io(str(Path(sys.executable).with_name("lpcl")), "lsp")
        await self.client.initialize_async(t.InitializeParams(t.ClientCapabilities()))
        item = t.TextDocumentItem(self.uri, "lpcl", 1, self.text)
        self.client.text_document_did_open(t.DidOpenTextDocumentParams(item))
        return self

    async def __aexit__(self, *_):
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()

    @property
    def document(self):
        return t.TextDocumentIdentifier(self.uri)

    async def change(self, text):
        document = t.VersionedTextDocumentIdentifier(2, self.uri)
        change = t.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(t.DidChangeTextDocumentParams(document, [change]))
        return await self.published.get()


def talk(folder, conversation, text=TEXT):
    async def all_of_it():
        async with Client(folder, text) as client:
            return await conversation(client)

    return asyncio.run(asyncio.wait_for(all_of_it(), LIMIT_S))


def test_diagnostics_come_with_every_change(tmp_path):
    async def conversation(client):
        first = await client.published.get()
        second = await client.change(
            TEXT.replace("amount threads", "amount threds").replace("e1\n  }\n}", "e2\n  }\n}")
        )
        return first, second

    first, second = talk(tmp_path, conversation)
    assert list(first.diagnostics) == []
    assert sorted(d.code for d in second.diagnostics) == ["LP108", "LP156"]
    wrong = next(d for d in second.diagnostics if d.code == "LP108")
    assert (wrong.range.start.line, wrong.range.start.character, wrong.range.end.character) == (6, 11, 17)
    assert "did you mean `threads`?" in wrong.message


def test_hover_tells_evidence_and_trust(tmp_path):
    async def conversation(client):
        where = place(TEXT, "amount threads", 8)
        return await client.client.text_document_hover_async(t.HoverParams(client.document, where))

    shown = talk(tmp_path, conversation).contents.value
    assert "**control threads**" in shown
    assert "`DEMO_THREADS`, read at import" in shown
    assert "- grounded" in shown
    assert "`e1` (person): demo==1 demo.py:3 one worker a core" in shown


def test_hover_tells_who_reviewed(tmp_path):
    async def conversation(client):
        where = place(TEXT, "amount threads", 8)
        return await client.client.text_document_hover_async(t.HoverParams(client.document, where))

    talk(tmp_path, conversation)
    (clause,) = (c for c in parse(TEXT).file.contracts[0].clauses if c.name == "threads")
    cited, _ = read_evidence(tmp_path / "evidence.jsonl")
    record = {
        "clause": "control threads",
        "fingerprint": fingerprint(clause, cited),
        "by": "A. Reader",
        "on": "2026-01-31",
    }
    (tmp_path / "reviews.jsonl").write_text(json.dumps(record) + "\n")
    assert "- reviewed by A. Reader on 2026-01-31" in talk(tmp_path, conversation).contents.value


def test_completion_of_keywords_and_references(tmp_path):
    text = TEXT.replace("bounds workers.amount", "bounds wor").replace("created import", "created imp")

    async def conversation(client):
        ask = client.client.text_document_completion_async
        words = await ask(t.CompletionParams(client.document, place(text, "created imp", 11)))
        names = await ask(t.CompletionParams(client.document, place(text, "bounds wor", 10)))
        return [[x.label for x in answer] for answer in (words, names)]

    words, names = talk(tmp_path, conversation, text)
    assert words == ["import"]
    assert names == []  # the text before is damaged: the parser cannot say what may stand there

    async def alone(client):
        where = place(sound, "bounds wor", 10)
        return await client.client.text_document_completion_async(t.CompletionParams(client.document, where))

    sound = TEXT.replace("bounds workers.amount", "bounds wor")
    assert [x.label for x in talk(tmp_path, alone, sound)] == ["workers.amount", "workers.idle"]


def test_definition_and_rename(tmp_path):
    async def conversation(client):
        where = place(TEXT, "amount threads", 8)
        there = await client.client.text_document_definition_async(t.DefinitionParams(client.document, where))
        edits = await client.client.text_document_rename_async(t.RenameParams(client.document, where, "count"))
        refused = await client.client.text_document_rename_async(t.RenameParams(client.document, where, "1x"))
        return there, edits, refused

    there, edits, refused = talk(tmp_path, conversation)
    assert (there.range.start.line, there.range.start.character, there.range.end.character) == (15, 10, 17)
    [places] = edits.changes.values()
    assert sorted((e.range.start.line, e.range.start.character) for e in places) == [(6, 11), (15, 10)]
    assert {e.new_text for e in places} == {"count"}
    assert refused is None


def test_format_and_outline(tmp_path):
    async def conversation(client):
        options = t.FormattingOptions(2, insert_spaces=True)
        edits = await client.client.text_document_formatting_async(t.DocumentFormattingParams(client.document, options))
        symbols = await client.client.text_document_document_symbol_async(t.DocumentSymbolParams(client.document))
        return edits, symbols

    edits, symbols = talk(tmp_path, conversation, TEXT.replace("    ", "\t"))
    assert [e.new_text for e in edits] == [TEXT]
    assert [s.name for s in symbols] == ["demo"]
    assert [s.name for s in symbols[0].children] == ["demand workers", "control threads"]


def test_columns_count_utf_16_units():
    from lpcl.lsp import position

    text = "// \U0001f600é\nx"
    assert position(text, 5) == t.Position(0, 6)
    assert position(text, len(text)) == t.Position(1, 1)


REAL = (shipped() / "openblas" / "contract.lpcl").read_text()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(REAL)), st.integers(0, 40), st.text(max_size=5))
def test_any_damaged_text_and_place_gives_an_answer(offset, length, inserted):
    text = REAL[:offset] + inserted + REAL[offset + length :]
    editor.diagnostics(text, {})
    editor.hover(text, offset, {})
    for start, end in editor.occurrences(text, offset):
        assert re.fullmatch(r"\w+", text[start:end])
    editor.definition(text, offset)
    editor.complete(text, offset)
    editor.outline(text)
