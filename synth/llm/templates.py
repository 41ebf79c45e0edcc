"""Prompts: Jinja2 templates in which nothing of a stranger can be printed but through `block` and `word`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from synth.llm.config import Task
from synth.llm.spotlight import Safe, block, word
from synth.records import Evidence, SynthError

SYSTEM = "system"
MAX_EVIDENCE = 60
MAX_EVIDENCE_CHARS = 40_000
_AROUND_CHARS = 400  # what stands around one piece of evidence, at most about


class TemplateError(SynthError):
    """A template and its variables do not fit; always a mistake of ours."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is shown.

    Attributes:
        digest: of the templates that it was made of.
        evidence: ids of the evidence that it shows; only these can be cited.
    """

    task: Task
    messages: tuple[Message, ...]
    digest: str
    evidence: tuple[str, ...]


def folder() -> Path:
    """The templates that come with the package: in a wheel inside of it, in a checkout beside it."""
    inside = Path(str(resources.files("synth").joinpath("_prompts")))
    return inside if inside.is_dir() else Path(__file__).resolve().parents[2] / "prompts"


def _finalize(value: object) -> object:
    """What `{{ ... }}` prints: counts, and text that was made safe; plain text may be a stranger's."""
    if isinstance(value, (Safe, jinja2.Undefined)) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TemplateError(f"a template prints a {type(value).__name__} without `block` or `word`")


@cache
def environment(root: Path) -> jinja2.Environment:
    """Templates of a folder: an undefined name is an error, and so is a plain text that is printed."""
    env = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader(root),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        # The output is no markup: it is held together by `block` and `word` instead.
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    env.filters = {"block": block, "word": word, "words": _words, "place": _place}
    env.globals = {}
    return env


def _words(values: Iterable[str]) -> Safe:
    return Safe(", ".join(word(v) for v in values) or "none")


def _place(evidence: Evidence) -> Safe:
    seen = evidence.seen
    where = f"{word(seen.file)} line {seen.line}"
    inside = f" in {word(seen.function)}" if seen.function else ""
    return Safe(f"{where}{inside}, {word(seen.kind.value)} of {word(seen.name)}, {seen.role.value} file")


def render(
    task: Task, variables: Mapping[str, Any], *, evidence: Sequence[Evidence] = (), root: Path | None = None
) -> Prompt:
    """Make a prompt.

    Args:
        task: the template's name.
        variables: exactly those that the template takes, besides `evidence` and `left_out`.
        evidence: best first; what is too much is left out, and counted.
        root: folder of the templates.

    Raises:
        TemplateError: a variable is missing or too many, or a template is wrong.
    """
    env = environment(root or folder())
    shown = _fitting(evidence)
    given = {**variables, "evidence": shown, "left_out": len(evidence) - len(shown)}
    names = (f"{SYSTEM}.jinja", f"{task}.jinja")
    try:
        sources = _sources(env, names)
        unknown = set(variables) - _wanted(env, sources)
        if unknown:
            raise TemplateError(f"the template `{task}` takes no `{min(unknown)}`")
        texts = [env.get_template(name).render(given if name != names[0] else {}) for name in names]
    except jinja2.TemplateError as error:
        raise TemplateError(f"the template `{task}`: {error}") from error
    content = "\0".join(f"{name}\0{text}" for name, text in sorted(sources.items()))
    messages = (Message("system", texts[0].strip()), Message("user", texts[1].strip()))
    ids = tuple(e.id for e in shown)
    return Prompt(task, messages, hashlib.sha256(content.encode()).hexdigest()[:16], ids)


def _fitting(evidence: Sequence[Evidence]) -> list[Evidence]:
    shown: list[Evidence] = []
    size = 0
    for item in evidence[:MAX_EVIDENCE]:
        size += len(item.seen.text) + _AROUND_CHARS
        if shown and size > MAX_EVIDENCE_CHARS:
            break
        shown.append(item)
    return shown


def _sources(env: jinja2.Environment, names: Iterable[str]) -> dict[str, str]:
    """Templates and all that they include, by name."""
    found: dict[str, str] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        loader = env.loader
        if loader is None:  # `environment` sets one
            raise TemplateError("no templates")
        found[name] = loader.get_source(env, name)[0]
        todo += [n for n in meta.find_referenced_templates(env.parse(found[name])) if n is not None]
    return found


def _wanted(env: jinja2.Environment, sources: Mapping[str, str]) -> set[str]:
    wanted: set[str] = set()
    for text in sources.values():
        wanted |= meta.find_undeclared_variables(env.parse(text))
    return wanted


def variables_of(task: Task, root: Path | None = None) -> set[str]:
    """The variables that a template takes, `evidence` and `left_out` included."""
    env = environment(root or folder())
    return _wanted(env, _sources(env, (f"{task}.jinja",)))
