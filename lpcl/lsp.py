"""The language server: `lpcl lsp` speaks the Language Server Protocol on standard input and output.

Needs the optional extra `lsp` (pygls). The answers come from `editor`; this module puts them into protocol words.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from lsprotocol import types as t
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from lpcl import editor
from lpcl.corpus import EVIDENCE, REVIEWS, Cited, Review, read_evidence, read_reviews
from lpcl.diagnostics import Diagnostic
from lpcl.format import FormatError, format_text

_SEVERITY = {
    "error": t.DiagnosticSeverity.Error,
    "warning": t.DiagnosticSeverity.Warning,
    "info": t.DiagnosticSeverity.Information,
}
_KINDS = {
    "keyword": t.CompletionItemKind.Keyword,
    "name": t.CompletionItemKind.Variable,
    "fact": t.CompletionItemKind.Constant,
    "function": t.CompletionItemKind.Function,
}


def _cited(document: TextDocument) -> dict[str, Cited] | None:
    """The evidence beside a contract, if there is any."""
    path = to_fs_path(document.uri)
    sidecar = Path(path).parent / EVIDENCE if path else None
    return read_evidence(sidecar)[0] if sidecar is not None and sidecar.is_file() else None


def _reviews(document: TextDocument, cited: dict[str, Cited] | None) -> dict[str, Review]:
    """The reviews beside a contract."""
    path = to_fs_path(document.uri)
    return read_reviews(Path(path).parent / REVIEWS, None, cited)[0] if path and cited else {}


def position(text: str, offset: int) -> t.Position:
    """The protocol's position of an offset: lines from 0, columns in UTF-16 units."""
    start = text.rfind("\n", 0, offset) + 1
    column = len(text[start:offset].encode("utf-16-le", "surrogatepass")) // 2
    return t.Position(text.count("\n", 0, offset), column)


def _range(text: str, start: int, end: int) -> t.Range:
    return t.Range(position(text, start), position(text, end))


def _diagnostic(text: str, d: Diagnostic) -> t.Diagnostic:
    lines = text.split("\n")
    at = [sum(len(x) + 1 for x in lines[: line - 1]) + column - 1 for line, column in _ends(d)]
    message = d.message + (f"\nhelp: {d.help}" if d.help else "")
    return t.Diagnostic(
        range=_range(text, min(at[0], len(text)), min(max(at), len(text))),
        message=message,
        severity=_SEVERITY[d.severity],
        code=d.rule,
        source="lpcl",
    )


def _ends(d: Diagnostic) -> tuple[tuple[int, int], tuple[int, int]]:
    return (d.span.line, d.span.column), (d.span.end_line, d.span.end_column)


def create() -> LanguageServer:
    """A server with all features."""
    server = LanguageServer("lpcl", metadata.version("syspilot-lpc"))
    _documents(server)
    _questions(server)
    _edits(server)
    return server


def _documents(server: LanguageServer) -> None:
    def publish(ls: LanguageServer, uri: str) -> None:
        document = ls.workspace.get_text_document(uri)
        found = [_diagnostic(document.source, d) for d in editor.diagnostics(document.source, _cited(document))]
        ls.text_document_publish_diagnostics(
            t.PublishDiagnosticsParams(uri=uri, diagnostics=found, version=document.version)
        )

    @server.feature(t.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: LanguageServer, params: t.DidOpenTextDocumentParams) -> None:
        publish(ls, params.text_document.uri)

    @server.feature(t.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: LanguageServer, params: t.DidChangeTextDocumentParams) -> None:
        publish(ls, params.text_document.uri)


def _questions(server: LanguageServer) -> None:
    @server.feature(t.TEXT_DOCUMENT_HOVER)
    def hover(ls: LanguageServer, params: t.HoverParams) -> t.Hover | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        offset = document.offset_at_position(params.position)
        cited = _cited(document)
        text = editor.hover(document.source, offset, cited, _reviews(document, cited))
        return None if text is None else t.Hover(t.MarkupContent(t.MarkupKind.Markdown, text))

    @server.feature(t.TEXT_DOCUMENT_COMPLETION, t.CompletionOptions(trigger_characters=["."]))
    def complete(ls: LanguageServer, params: t.CompletionParams) -> list[t.CompletionItem]:
        document = ls.workspace.get_text_document(params.text_document.uri)
        offset = document.offset_at_position(params.position)
        return [t.CompletionItem(text, kind=_KINDS[kind]) for text, kind in editor.complete(document.source, offset)]

    @server.feature(t.TEXT_DOCUMENT_DEFINITION)
    def define(ls: LanguageServer, params: t.DefinitionParams) -> t.Location | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        found = editor.definition(document.source, document.offset_at_position(params.position))
        return None if found is None else t.Location(document.uri, _range(document.source, *found))

    @server.feature(t.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline(ls: LanguageServer, params: t.DocumentSymbolParams) -> list[t.DocumentSymbol]:
        text = ls.workspace.get_text_document(params.text_document.uri).source
        return [_symbol(text, s) for s in editor.outline(text)]


def _symbol(text: str, symbol: editor.Symbol) -> t.DocumentSymbol:
    kind = t.SymbolKind.Module if symbol.kind == "contract" else t.SymbolKind.Field
    here = _range(text, symbol.start, symbol.end)
    return t.DocumentSymbol(symbol.name, kind, here, here, children=[_symbol(text, s) for s in symbol.children])


def _edits(server: LanguageServer) -> None:
    @server.feature(t.TEXT_DOCUMENT_RENAME)
    def rename(ls: LanguageServer, params: t.RenameParams) -> t.WorkspaceEdit | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        places = editor.occurrences(document.source, document.offset_at_position(params.position))
        if not places or not params.new_name.isidentifier() or not params.new_name.isascii():
            return None
        edits = [t.TextEdit(_range(document.source, *place), params.new_name) for place in places]
        return t.WorkspaceEdit({document.uri: edits})

    @server.feature(t.TEXT_DOCUMENT_FORMATTING)
    def reformat(ls: LanguageServer, params: t.DocumentFormattingParams) -> list[t.TextEdit] | None:
        text = ls.workspace.get_text_document(params.text_document.uri).source
        try:
            result, _ = format_text(text)
        except FormatError:
            return None
        return None if result is None else [t.TextEdit(_range(text, 0, len(text)), result)]
