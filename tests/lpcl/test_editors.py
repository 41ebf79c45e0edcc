"""The files for editors: the highlighter knows every word of the grammar."""

import json
import re
from pathlib import Path

from lpcl.parse import keywords

VSCODE = Path(__file__).parents[2] / "editors" / "vscode"


def test_the_highlighter_knows_every_word():
    grammar = json.loads((VSCODE / "syntaxes" / "lpcl.tmLanguage.json").read_text())
    patterns = [re.compile(p["match"]) for p in grammar["patterns"] if "match" in p]
    words = {w for group in keywords().values() for w in group if w[0].isalpha()}
    known = {w for w in words for p in patterns if p.fullmatch(w) or p.fullmatch(f"{w} name")}
    assert words - known == set()


def test_the_extension_names_files_that_exist():
    package = json.loads((VSCODE / "package.json").read_text())
    [language], [grammar] = package["contributes"]["languages"], package["contributes"]["grammars"]
    for file in (package["main"], language["configuration"], grammar["path"]):
        assert (VSCODE / file).is_file()
    assert json.loads((VSCODE / language["configuration"]).read_text())["comments"]["lineComment"] == "//"
