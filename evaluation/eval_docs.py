"""How many of the controls that real documentation sites mention are found on them: `make eval-docs`.

The sites are those that Debian ships as `-doc` packages, built by Sphinx. Each is unpacked, served on the loopback
address and read through the same fetcher as any site. A control of the lists counts as mentioned where a page holds one
of its names as text; for a parameter, where it stands in the block that describes its callable. The lists are about
newer versions than the sites, so that what a site does not mention is no miss.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from synth.docs_entries import Entry
from synth.docs_site import Read, from_web, read_documents
from synth.records import Skipped
from synth.web import PageCache, Web, WebLimits

SITES = {
    "numba": "numba-doc",
    "dask": "python-dask-doc",
    "distributed": "python-distributed-doc",
    "scikit-learn": "python-sklearn-doc",
    "scipy": "python-scipy-doc",
    "pandas": "python-pandas-doc",
}
LISTS = {"distributed": "dask"}  # sites whose controls stand in another list
_APT_SECONDS = 300
_SKIPPED = re.compile(r"(^|/)(_\w+|genindex.*|search|py-modindex)(/|\.html)")


class NoSiteError(Exception):
    """A site cannot be had here."""


def unpacked(package: str, folder: Path) -> Path:
    """The folder of HTML pages of a Debian package.

    Raises:
        NoSiteError: there is no Debian package index here, or it does not have the package.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NoSiteError("no apt-get or dpkg on this machine")
    target = folder / package
    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package]
            try:
                done = subprocess.run(
                    command, cwd=work, capture_output=True, text=True, timeout=_APT_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                raise NoSiteError("the Debian package index did not answer in time") from None
            archive = next(Path(work).glob("*.deb"), None)
            if done.returncode != 0 or archive is None:
                reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise NoSiteError(f"`{package}` cannot be had from the Debian package index: {reason}")
            subprocess.run(["dpkg", "-x", archive, Path(work) / "x"], check=True, capture_output=True, timeout=300)
            (Path(work) / "x").rename(target)
    found = sorted(target.glob("usr/share/doc/*/html/objects.inv"))
    if not found:
        raise NoSiteError(f"`{package}` holds no built site")
    return found[0].parent


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a word; they have validators by their times."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path, handler: type[SimpleHTTPRequestHandler] = Quiet) -> Iterator[str]:
    """Serve a folder on the loopback address; gives the address of its first page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
        finally:
            server.shutdown()
            thread.join()


def read_site(url: str, cache: Path, names: list[str], pages: int) -> tuple[Read, Web, list[Skipped]]:
    """Read a site through the fetcher."""
    skipped: list[Skipped] = []
    limits = WebLimits(pages=pages, total_seconds=1200, total_bytes=1 << 30)
    with Web(named=frozenset({"127.0.0.1"}), cache=PageCache(cache), limits=limits) as web:
        return read_documents(from_web(url, web, names, skipped.append), names, skipped.append), web, skipped


def texts_of(site: Path) -> dict[str, tuple[str, str]]:
    """(raw, plain text) of the pages of a site that a reader reads."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if not _SKIPPED.search(name):
            raw = path.read_text(encoding="utf-8", errors="replace")
            raw = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", raw)
            found[name] = (raw, re.sub(r"<[^>]+>", "", raw))
    return found


def mentioned(control: dict[str, Any], texts: dict[str, tuple[str, str]]) -> bool:
    """Whether a site names a control."""
    return any(_mentions(name, texts) for name in [control["name"], *(control.get("aliases") or [])])


def _mentions(name: str, texts: dict[str, tuple[str, str]]) -> bool:
    parameter = re.fullmatch(r"(.*?)\((\w+)=.*\)", name)
    if parameter is None:
        plain = re.sub(r"\(.*\)$", "", name)
        if not ("." in plain or "_" in plain or "-" in plain):
            return False  # a common word says nothing
        pattern = re.compile(rf"(?<![\w.-]){re.escape(plain)}(?![\w-]|\.\w)")
        return any(plain in text and pattern.search(text) for _, text in texts.values())
    callable_, word = parameter[1], re.compile(rf"\b{parameter[2]}\b")
    for raw, _ in texts.values():
        place = raw.find(f'id="{callable_}"')
        if place >= 0:
            block = re.sub(r"<[^>]+>", "", raw[place : place + 30_000].partition("</dl>\n\n")[0])
            if word.search(block):
                return True
    return False


def norm(name: str) -> str:
    match = re.match(r"^(.*?)\((\w+)\s*=?.*\)$", name.strip())
    return f"{match[1]}#{match[2]}".lower() if match else re.sub(r"\(.*?\)$", "", name.strip()).lower()


def score(gold: dict[str, Any], read: Read, texts: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Counts and the missing names of one site."""
    defined = {norm(e.name): e for e in reversed(read.entries) if e.how != "prose"}
    named = {norm(e.name) for e in read.entries}
    row: dict[str, Any] = {"mentioned": 0, "found": 0, "defined": 0, "default": [0, 0], "missing": []}
    for control in gold["controls"]:
        if control.get("scoring") != "required" or not mentioned(control, texts):
            continue
        row["mentioned"] += 1
        names = [norm(n) for n in [control["name"], *(control.get("aliases") or [])]]
        row["found"] += any(n in named for n in names)
        hit: Entry | None = next((defined[n] for n in names if n in defined), None)
        row["defined"] += hit is not None
        if not any(n in named for n in names):
            row["missing"].append(control["name"])
        if hit is not None and hit.default and control.get("default"):
            row["default"][1] += 1
            row["default"][0] += hit.default.strip("'\"").lower() in str(control["default"]).lower()
    return row


def measure(site: Path, gold: dict[str, Any] | None, cache: Path, pages: int) -> dict[str, Any]:
    """Read one site twice (the second time from the cache of pages) and score it."""
    with served(site) as url:
        started = time.perf_counter()
        read, web, skipped = read_site(url, cache, [], pages)
        seconds = time.perf_counter() - started
    texts = texts_of(site)
    row = score(gold, read, texts) if gold is not None else {}
    kinds: dict[str, int] = {}
    for entry in read.entries:
        kinds[entry.kind] = kinds.get(entry.kind, 0) + 1
    return row | {
        "pages": web.read_pages,
        "of": len(texts),
        "megabytes": round(web.read_bytes / 1e6, 1),
        "seconds": round(seconds, 1),
        "entries": kinds,
        "changed": len(read.changed),
        "skipped": len(skipped),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sites", nargs="*", default=list(SITES), help=f"of {', '.join(SITES)}")
    parser.add_argument("--gold", type=Path, default=Path("../shared/gold"))
    parser.add_argument("--folder", type=Path, default=Path("out/docs-sites"), help="where the packages are unpacked")
    parser.add_argument("--pages", type=int, default=500, help="most pages of one site")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.sites:
        try:
            site = unpacked(SITES[name], args.folder)
        except NoSiteError as error:
            print(f"{name}: skipped: {error}")
            continue
        path = args.gold / f"{LISTS.get(name, name)}.json"
        gold = json.loads(path.read_text()) if path.is_file() else None
        row = measure(site, gold, args.folder / "cache" / name, args.pages)
        missing = row.pop("missing", [])
        print(f"{name}: {json.dumps(row)}")
        if missing:
            print(f"  not found: {', '.join(missing[:30])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
