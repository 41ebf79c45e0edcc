"""The Rust walker: from one file to observations."""

from __future__ import annotations

from collections.abc import Iterator

from synth.records import Kind, Observation, Role, When
from synth.walk.rust_api import walk_api
from synth.walk.rust_env import Read, reads_of, writes_of
from synth.walk.rust_index import RUST_SUFFIXES, RustFile, RustIndex, rust_role
from synth.walk.rust_macros import composed_reads
from synth.walk.rust_pools import statement_lines, walk_rust_pools
from synth.walk.syntax import Cited

__all__ = ["RUST_SUFFIXES", "RustIndex", "rust_role", "walk_rust"]


def walk_rust(source: bytes, file: str, role: Role, *, index: RustIndex | None = None) -> list[Observation]:
    """Observe one Rust file.

    Args:
        source: raw bytes.
        file: path relative to the release's root.
        role: role of the file.
        index: cross-file facts; of this file alone if not given.

    Raises:
        NotParsedError: the file could not be parsed.
    """
    facts = index if index is not None else RustIndex.build({file: source})
    opened = facts.file(file)
    cited = Cited(source, file, role, "rust")
    found = [*_reads(facts, opened, cited), *_writes(facts, opened, cited)]
    if role is not Role.TEST:
        found += walk_rust_pools(facts, opened, cited)
        found += walk_api(facts, opened, cited)
        found += composed_reads(facts, opened, cited)
    return sorted(found, key=lambda seen: (seen.line, seen.end_line, seen.kind, seen.name))


def _reads(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    for read in reads_of(index, file.path):
        function = index.place_name(file, read.path)
        when = When.BUILD if read.build else index.when(file, read.path)
        for name in read.names:
            seen = cited.observe(
                Kind.ENV_READ,
                name,
                statement_lines(read.node, read.path),
                function=function,
                when=when,
                value=read.use.default,
                value_type=read.use.value_type,
                detail=_detail(read),
            )
            yield seen.model_copy(update={"chain": read.chain, "order": read.order, "feeds": read.use.feeds})


def _detail(read: Read) -> str:
    return "; ".join(part for part in (read.detail, read.use.notes) if part)


def _writes(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    for write in writes_of(index, file.path):
        yield cited.observe(
            Kind.ENV_WRITE,
            write.name,
            statement_lines(write.node, write.path),
            function=index.place_name(file, write.path),
            when=index.when(file, write.path),
            value=write.value,
            target=write.target,
            unless_set=write.unless_set,
            detail=write.detail,
        )
