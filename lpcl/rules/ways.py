"""Rules about the ways to set a control: variables, calls, parameters, and when they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from lpcl import model as m
from lpcl.rules.base import NAME, Finding, Found
from lpcl.rules.view import View

# Names that no contract may set: they load code, redirect traffic, or hold secrets.
_FORBIDDEN = re.compile(
    r"^(LD_.*|DYLD_.*|PYTHON(PATH|HOME|STARTUP|INSPECT|BREAKPOINT|EXECUTABLE|USERBASE|WARNINGS|PYCACHEPREFIX)"
    r"|PATH|HOME|SHELL|IFS|ENV|BASH_ENV|GCONV_PATH|NODE_OPTIONS|PERL5(LIB|OPT)|RUBY(LIB|OPT)|JAVA_TOOL_OPTIONS"
    r"|OMP_TOOL.*|OCL_ICD_.*|CUDA_INJECTION.*|MALLOC_TRACE|NVBLAS_CONFIG_FILE|GLIBC_TUNABLES|GIT_.*|SSH_.*|PIP_.*"
    r"|UV_(?!THREADPOOL).*|AWS_.*|OPENAI_.*"
    r"|.*_PROXY|.*(TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIALS?|PRIVATE_KEY).*)$",
    re.IGNORECASE,
)
# When the library starts: what is read then is read once in a process.
_EARLY = frozenset({"build", "process_start", "load", "import"})


def settable(name: str) -> bool:
    """Whether a contract may set this environment variable."""
    return bool(NAME.match(name)) and not _FORBIDDEN.match(name)


def _variables(v: View) -> Iterator[tuple[str, m.Span]]:
    for control in v.contract.controls:
        yield from ((w.name, w.span) for w in control.ways if w.kind == "env")
    for x in v.contract.mitigations:
        yield from ((name, x.span) for name in x.env)


def variable_twice(v: View) -> Found:
    """A control reads one variable twice, and the second one never decides."""
    for control in v.contract.controls:
        for way in _behind(control):
            if way.kind == "env":
                yield Finding(f"`{control.name}` reads `{way.name}` twice", control.span)


def _behind(control: m.Control) -> Iterator[m.Way]:
    """Ways that never decide: an earlier one is the same and holds wherever they do."""
    seen: set[tuple[object, ...]] = set()
    for way in control.ways:
        here = (way.kind, way.name, way.parameters)
        if here in seen or (*here, way.condition, way.versions) in seen:
            yield way
        always = way.condition is None and way.versions is None
        seen.add(here if always else (*here, way.condition, way.versions))


def variable_claimed(v: View) -> Found:
    """Two controls claim one variable in the same place of the order."""
    claimed: dict[str, m.Control] = {}
    for control in v.contract.controls:
        names = control.env_names()
        if not names:
            continue
        other = claimed.setdefault(names[0], control)
        if other is not control:
            message = f"`{control.name}` and `{other.name}` both claim `{names[0]}`"
            yield Finding(message, control.span, "one variable sets one control: merge them")


def variable_name(v: View) -> Found:
    """What is no name of a variable."""
    for name, span in _variables(v):
        if not NAME.match(name):
            yield Finding(f"`{name}` is no name of an environment variable", span)


def forbidden_variable(v: View) -> Found:
    """A variable that no contract may set."""
    for name, span in _variables(v):
        if NAME.match(name) and _FORBIDDEN.match(name):
            help_text = "it can load code, redirect traffic or hold a secret; leave it out"
            yield Finding(f"`{name}` may not be set through a contract", span, help_text)


def no_way(v: View) -> Found:
    """A control that nothing can set."""
    for control in v.contract.controls:
        if not control.ways:
            help_text = "add `env`, `call`, `param` or `config`, or drop the control"
            yield Finding(f"nothing sets `control {control.name}`", control.span, help_text)


def way_never(v: View) -> Found:
    """A way with a condition that never holds."""
    for control in v.contract.controls:
        for way in control.ways:
            if isinstance(way.condition, m.Truth) and not way.condition.value:
                yield Finding(f"`{way.label}` never applies", way.span, "drop it")


def way_twice(v: View) -> Found:
    """One call, parameter or key stands twice in a control."""
    for control in v.contract.controls:
        for way in _behind(control):
            if way.kind != "env":
                yield Finding(f"`{way.label}` stands twice in `{control.name}`", way.span, "drop one of the lines")


def way_for_no_release(v: View) -> Found:
    """A way of releases that the contract is not about."""
    packages = [p.versions for p in v.contract.packages]
    if not packages:
        return
    for control in v.contract.controls:
        for way in control.ways:
            if way.versions and not any(_meet(way.versions, p or "") for p in packages):
                message = f"no release in the contract's range is {way.versions}"
                yield Finding(message, way.span, "drop the way, or widen the range of the package")


def _meet(a: str, b: str) -> bool:
    """Whether some release is in both ranges; true if one of them is no range."""
    try:
        both = SpecifierSet(f"{a},{b}".strip(","))
        found = {Version("0"), Version("999999")}
        for s in both:
            found |= set(_around(Version(s.version.removesuffix(".*"))))
        return any(both.contains(x, prereleases=True) for x in found)
    except (InvalidSpecifier, InvalidVersion, ValueError):
        return True


def _around(x: Version) -> Iterator[Version]:
    """A release and its neighbours: a range that holds any release holds one of these."""
    yield x
    yield Version(f"{x.epoch}!{'.'.join(map(str, (*x.release, 0, 1)))}")
    parts = list(x.release)
    for i in range(len(parts)):
        yield Version(f"{x.epoch}!{'.'.join(map(str, (*parts[:i], parts[i] + 1)))}")
        if parts[i]:
            yield Version(f"{x.epoch}!{'.'.join(map(str, (*parts[:i], parts[i] - 1, 999999)))}")


def too_late(v: View) -> Found:
    """A control that is said to change while running, though it is read once only."""
    for control in v.contract.controls:
        early = bool(control.ways) and all(w.binding in _EARLY for w in control.ways)
        # A new child reads anew what it is started with.
        if early and control.switch in {"live", "session"} and control.effect != "children":
            message = f"`{control.name}` cannot be changed `{control.switch}`: it is read once, at the start"
            yield Finding(message, control.span, "write `switch process`")


def variable_for_a_thread(v: View) -> Found:
    """A control of one thread that only variables set, which all threads share."""
    for control in v.contract.controls:
        if control.effect == "thread" and control.ways and all(w.kind == "env" for w in control.ways):
            message = f"`{control.name}` is said to reach one thread, but a variable reaches all of them"
            yield Finding(message, control.span, "write `effect process`, or add the call that sets one thread")


def lasting_variable(v: View) -> Found:
    """A variable is not set for a while."""
    for control in v.contract.controls:
        for way in control.ways:
            if way.kind == "env" and way.lasts is not None:
                message = f"`{way.name}` is a variable: it does not hold for a `{way.lasts}`"
                yield Finding(message, way.span, f"drop `lasts {way.lasts}`")


def inherited_by_none(v: View) -> Found:
    """A control that nobody inherits, and somebody does."""
    for control in v.contract.controls:
        heirs = control.inherited
        if "none" in heirs and len(set(heirs)) > 1:
            other = next(h for h in heirs if h != "none")
            yield Finding(f"`{control.name}` is inherited by `none` and by `{other}`", control.span, "keep one of them")
