"""What `lpcl check` prints for broken files, to the letter: the errors are read by people.

`UPDATE_GOLDEN=1` writes the files anew; read the diff.
"""

import os
from pathlib import Path

import pytest

from lpcl.cli import main

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.lpcl"))


def test_there_are_ten():
    assert len(FILES) >= 10
    assert {p.stem for p in FILES} == {p.stem for p in GOLDEN.glob("*.txt")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_errors_are_as_they_were_read(path, capsys, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    code = main(["check", path.name])
    out, err = capsys.readouterr()
    assert (code, err) == (1, "")
    expected = path.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_text(out, "utf-8")
    assert out == expected.read_text("utf-8")
