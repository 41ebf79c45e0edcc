"""The main path of the synthesiser: target -> release -> evidence -> draft -> checked contract on disk."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from lpcl import model as m
from lpcl.check import check
from lpcl.corpus import CONTRACT, EVIDENCE, METADATA, REVIEWS, shipped
from lpcl.diagnostics import Diagnostic
from lpcl.format import file_text
from lpcl.parse import parse
from synth.draft import Rejected, draft
from synth.evidence import collect, read_jsonl, write_jsonl
from synth.fetch import fetch
from synth.ground import Ungrounded, ground, without
from synth.indexes import IndexConfig
from synth.progress import Notify, Step
from synth.records import Evidence, Release, Skipped, SynthError, Walk
from synth.targets import parse_target
from synth.walk.tree import walk_release

DRAFTER = "rules"


@dataclass(frozen=True, slots=True)
class Options:
    """How to synthesise.

    Attributes:
        out: corpus folder to write into; one sub-folder a package.
        cache: where archives are kept between runs.
        force: replace an entry that a person has worked on, or one of the shipped corpus.
    """

    out: Path
    cache: Path
    config: IndexConfig
    prefer: Literal["sdist", "wheel"] = "sdist"
    offline: bool = False
    force: bool = False
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one target.

    Attributes:
        folder: the corpus entry that was written, None if none was.
        nothing: why there is nothing to state about this package, or "".
        dropped: clauses that the checker or the grounding refused.
        seconds: time of fetching, walking and drafting.
    """

    target: str
    release: Release | None = None
    folder: Path | None = None
    contract: m.Contract | None = None
    evidence: int = 0
    rejected: tuple[Rejected, ...] = ()
    dropped: tuple[Ungrounded, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    nothing: str = ""
    error: SynthError | None = None


def synthesise(targets: Sequence[str], options: Options, notify: Notify = lambda _: None) -> list[Result]:
    """Work through targets, one after the other; one that fails is a result and does not stop the others.

    Raises:
        SynthError: the output folder cannot be used.
    """
    _check_out(options)
    results = []
    for text in targets:
        started = time.monotonic()
        try:
            result = _one(text, options, notify)
        except SynthError as error:
            result = Result(text, error=error)
        except OSError as error:
            reason = f"cannot write to `{options.out}`: {(error.strerror or str(error)).lower()}"
            result = Result(text, error=SynthError(reason, help_text="choose another folder with --out"))
        results.append(replace(result, seconds=round(time.monotonic() - started, 3)))
    return results


def _check_out(options: Options) -> None:
    try:
        out = options.out.resolve()
    except (OSError, RuntimeError) as error:
        raise SynthError(f"`{options.out}` cannot be used", help_text="choose another folder with --out") from error
    if out == shipped().resolve() and not options.force:
        raise SynthError(
            f"`{options.out}` is the shipped corpus", help_text="choose another folder with --out, or add --force"
        )
    if out.exists() and not out.is_dir():
        raise SynthError(f"`{options.out}` is not a folder", help_text="choose a folder with --out")


def _one(text: str, options: Options, notify: Notify) -> Result:
    target = parse_target(text)
    skipped: list[Skipped] = []
    with TemporaryDirectory(prefix="syspilot-synth-") as work:
        notify(Step(text, "fetch"))
        release = fetch(
            target,
            config=options.config,
            cache_dir=options.cache,
            work_dir=Path(work),
            prefer=options.prefer,
            offline=options.offline,
            progress=lambda done, total: notify(Step(text, "fetch", done, total)),
            on_skip=skipped.append,
        )
        walk = walk_release(
            release, jobs=options.jobs, progress=lambda done, total, _file: notify(Step(text, "walk", done, total))
        )
        notify(Step(text, "draft"))
        evidence = collect(walk)
        drafted = draft(release.name, release.version, evidence)
        contract, ungrounded = ground(drafted.contract, evidence)
        contract, refused = _accepted(contract)
        result = Result(
            text,
            release,
            contract=contract,
            evidence=len(evidence),
            rejected=drafted.rejected,
            dropped=(*ungrounded, *refused),
            skipped=(*skipped, *walk.skipped),
            files=walk.files,
            bytes=walk.bytes,
        )
        if not contract.clauses:
            return replace(result, nothing=_nothing(walk))
        folder = _write(release, contract, evidence, options)
    return replace(result, folder=folder)


def _nothing(walk: Walk) -> str:
    if not walk.files:
        return "the release holds no source that can be read"
    return f"no control, pool or signal in {walk.files} files"


def _accepted(contract: m.Contract) -> tuple[m.Contract, tuple[Ungrounded, ...]]:
    """The clauses that parse and check without an error; the loop ends, since each turn drops at least one."""
    refused: list[Ungrounded] = []
    while True:
        text = file_text(m.File(m.LANGUAGE_VERSION, (contract,)))
        parsed = parse(text)
        if not parsed.ok or parsed.file is None:
            # The printer is held to the parser by tests; if it fails all the same, nothing is better than wrong.
            reasons = "; ".join(d.message for d in parsed.diagnostics[:3])
            raise SynthError(
                f"the draft does not parse: {reasons}", help_text="please report it with the package", code=3
            )
        errors = [d for d in check(parsed.file) if d.severity == "error"]
        bad = {c.name: d for d in errors if (c := _clause_at(parsed.file.contracts[0], d)) is not None}
        if not bad:
            if errors:
                raise SynthError(f"the draft is not valid: {errors[0].message}", help_text="please report it", code=3)
            return contract, tuple(refused)
        refused += [Ungrounded(name, f"{d.rule}: {d.message}") for name, d in bad.items()]
        contract, lost = without(contract, set(bad))
        refused += lost


def _clause_at(contract: m.Contract, diagnostic: Diagnostic) -> m.Clause | None:
    start = diagnostic.span.start
    return next((c for c in contract.clauses if c.span.start <= start < c.span.end), None)


# --------------------------------------------------------------------- on disk


def _write(release: Release, contract: m.Contract, evidence: Sequence[Evidence], options: Options) -> Path:
    """Write an entry whole or not at all."""
    folder = options.out / release.name
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise SynthError(f"`{folder}` is no folder", help_text="move it away, or choose another folder with --out")
    if folder.exists() and not options.force:
        _refuse_edited(folder)
    options.out.mkdir(parents=True, exist_ok=True)
    fresh = options.out / f".{release.name}.{os.getpid()}.new"
    old = options.out / f".{release.name}.{os.getpid()}.old"
    try:
        fresh.mkdir()
        (fresh / CONTRACT).write_text(file_text(m.File(m.LANGUAGE_VERSION, (contract,))), "utf-8")
        write_jsonl(fresh / EVIDENCE, evidence)
        (fresh / METADATA).write_text(_metadata(release), "utf-8")
        for kept in folder.iterdir() if folder.exists() else ():
            if kept.name not in {CONTRACT, EVIDENCE, METADATA} and kept.is_file():
                shutil.copy2(kept, fresh)  # a person's, such as allow.toml
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _refuse_edited(folder: Path) -> None:
    try:
        by_person = any(e.vouched == "person" for e in read_jsonl(folder / EVIDENCE))
    except SynthError as error:
        if not (folder / EVIDENCE).exists():
            return
        raise SynthError(
            f"`{folder}` cannot be read, so a person may have worked on it: {error}",
            help_text="write to another folder with --out, or add --force",
        ) from error
    if by_person or (folder / REVIEWS).exists():
        raise SynthError(
            f"`{folder}` was reviewed by a person", help_text="write to another folder with --out, or add --force"
        )


def _metadata(release: Release) -> str:
    lines = {
        "name": release.name,
        "kind": "package",
        "version": release.version,
        "read": f"{release.filename} ({release.kind}, sha256 {release.sha256}, {release.verified})",
        "drafter": DRAFTER,
    }
    # JSON strings are TOML basic strings, but for DEL.
    return "".join(f"{k} = {_quoted(str(v))}\n" for k, v in lines.items())


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
