"""Environment variables whose names are composed from the keys of a configuration.

Three ways of it: a package that turns every variable with a prefix into a key (`PREFIX_A__B` -> `a.b`) and asks for
keys by literal names, the table of defaults that it ships beside, and settings classes whose fields are variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from synth.records import Kind, Observation, Role
from synth.walk.index import RUNS, Entity, PackageIndex
from synth.walk.python_env import FileWalk
from synth.walk.python_environ import accesses, arguments_of
from synth.walk.python_flow import cited_lines
from synth.walk.python_scope import PyFile, dotted
from synth.walk.python_values import strings
from synth.walk.python_wrappers import argument
from synth.walk.syntax import Cited, brief, text_of

_KEY_PARAMETER = re.compile(r"^(key|name|option|path|pat|setting|opt|conf|config_key)s?$")
_GETTER = re.compile(r"^(get|get_\w*(option|config|setting|value|key)\w*|option|setting|config_get|lookup)$")
_YAML = re.compile(rb"[\w-]+\.ya?ml")
_LINE = re.compile(r"^(\s*)([A-Za-z_][\w.-]*)\s*:(?:\s+(.*?))?\s*$")
_UPPER = re.compile(r"^[A-Z][A-Z0-9_]{2,}$")


@dataclass(frozen=True)
class Family:
    """Variables that a package turns into keys.

    Attributes:
        prefix: of the variables; separator: what stands for a dot of the key.
        module: where it is done; top: the top package.
        getters: functions that are asked for a key, each with its key parameter.
    """

    prefix: str
    separator: str
    module: str
    top: str
    getters: tuple[tuple[Entity, str], ...]

    def variable(self, key: str) -> str:
        """Name of the variable that sets a key."""
        return self.prefix + key.upper().replace(".", self.separator).replace("-", "_")


def families(index: PackageIndex) -> list[Family]:
    """The families of a release."""
    found: list[Family] = []
    for facts in index.modules.values():
        if facts.file not in index.touching:
            continue
        pyfile = index.opened(facts.module)
        for access in accesses(pyfile) if pyfile is not None else []:
            if access.form == "each" and pyfile is not None:
                found.extend(_family(index, pyfile, access.node, strings(pyfile.value(access.key))))
    return found


def _family(index: PackageIndex, pyfile: PyFile, node: Node, prefixes: list[str]) -> Iterator[Family]:
    scope = pyfile.scope(node).function()
    body = text_of(scope.node if scope is not None else pyfile.root)
    if ".lower()" not in body or not prefixes or not prefixes[0]:
        return  # the names are not made into keys
    separator = "__" if re.search(r"""replace\(\s*['"]__['"]""", body) else "_"
    facts = index.modules[pyfile.module]
    getters: list[tuple[Entity, str]] = []
    for function in facts.functions.values():
        last = function.qualname.rpartition(".")[2]
        first = function.parameters[0].name if function.parameters else ""
        if _GETTER.match(last) and _KEY_PARAMETER.match(first):
            getters.append(((facts.module, function.qualname), first))
    if getters:
        yield Family(prefixes[0], separator, facts.module, facts.module.partition(".")[0], tuple(getters))


def walk_keys(walk: FileWalk, known: list[Family]) -> list[Observation]:
    """Observations of the keys that a file asks for, of settings classes and of command line options."""
    found: list[Observation] = []
    getters = {entity: (family, key) for family in known for entity, key in family.getters}
    names = {entity[1].rpartition(".")[2] for entity in getters}
    for node in walk.pyfile.tree.nodes:
        if node.type == "call":
            last = dotted(node.child_by_field_name("function")).rpartition(".")[2]
            if last in names:
                found.extend(_asked(walk, node, getters))
            found.extend(_command_line(walk, node))
    found.extend(_settings(walk))
    return found


def _asked(walk: FileWalk, node: Node, getters: dict[Entity, tuple[Family, str]]) -> Iterator[Observation]:
    function = walk.pyfile.scope(node).function()
    entity = walk.index.called(
        walk.pyfile.module,
        function.qualname if function is not None else "",
        dotted(node.child_by_field_name("function")),
    )
    if entity is None or entity not in getters:
        return
    family, parameter = getters[entity]
    maker = walk.index.function(entity)
    parameters = [(p.name, p.default) for p in maker.parameters] if maker is not None else []
    key = argument(node, parameter, parameters)
    positional, named = arguments_of(node)
    default = named.get("default", positional[1] if len(positional) > 1 else None)
    for name in strings(walk.pyfile.value(key)) if key is not None else []:
        if not re.fullmatch(r"[A-Za-z][\w.-]{1,80}", name):
            continue
        value = brief(default) if default is not None else None
        yield walk.cited.observe(
            Kind.ENV_READ,
            family.variable(name),
            cited_lines(walk.pyfile, node),
            function=walk.function(node),
            when=walk.when(node),
            value=None if value in ("None", "no_default") else value,
            detail=f"config key `{name}`, asked for with {'.'.join(entity)}()",
            key=name,
        )


def _command_line(walk: FileWalk, node: Node) -> Iterator[Observation]:
    _, named = arguments_of(node)
    for keyword in ("envvar", "env_var"):
        value = walk.pyfile.value(named.get(keyword)) if keyword in named else None
        for name in strings(value):
            if _UPPER.match(name):
                detail = "read by the command line, or by what this option is given to"
                yield walk.cited.observe(
                    Kind.ENV_READ,
                    name,
                    cited_lines(walk.pyfile, node),
                    function=walk.function(node),
                    when=walk.when(node),
                    detail=detail,
                )


# settings classes


def _settings(walk: FileWalk) -> Iterator[Observation]:
    facts = walk.index.modules.get(walk.pyfile.module)
    if facts is None or facts.file != walk.cited.file:
        return
    for klass in facts.classes.values():
        bases = walk.index.ancestry(facts.module, klass.qualname)
        if not any(base.rpartition(".")[2] == "BaseSettings" for base in bases):
            continue
        prefix = _prefix(walk, klass.qualname)
        for field in klass.fields:
            if field.name.startswith("_") or field.name == "model_config":
                continue
            own = re.search(r"\b(?:env|validation_alias|alias)\s*=\s*['\"](\w+)['\"]", field.default or "")
            name = own[1] if own else prefix + field.name
            given = re.match(r"(?:\w+\.)?Field\(\s*(?:default\s*=\s*)?([^,=()]+)[,)]", field.default or "")
            yield walk.cited.observe(
                Kind.ENV_READ,
                name.upper(),
                (field.line, field.line),
                function=klass.qualname,
                when=walk.index.when(facts.module, walk.pyfile.top)
                if klass.qualname in facts.instances.values()
                else walk.index.when(facts.module, walk.pyfile.classes[klass.qualname]),
                value=given[1].strip() if given else field.default,
                detail="field of a settings class",
            )


def _prefix(walk: FileWalk, qualname: str) -> str:
    scope = walk.pyfile.classes.get(qualname)
    match = re.search(r"env_prefix\s*=\s*['\"](\w*)['\"]", text_of(scope.node) if scope is not None else "")
    return match[1] if match else ""


# tables of defaults


def default_tables(index: PackageIndex, known: list[Family]) -> dict[str, Family]:
    """YAML files that the package of a family, or one that imports it, mentions: `top/name`, with the family."""
    found: dict[str, Family] = {}
    for family in known:
        for facts in index.modules.values():
            top = facts.module.partition(".")[0]
            near = top == family.top or any(m.partition(".")[0] == family.top for m, _ in facts.imports.values())
            if facts.role in RUNS and near:
                for match in _YAML.findall(index.source(facts.file)):
                    name = match.decode()
                    if "schema" not in name:
                        found.setdefault(f"{top}/{name}", family)
    return found


def walk_defaults(source: bytes, file: str, role: Role, family: Family) -> list[Observation]:
    """Observations of the keys with a plain default in a YAML file; weak evidence, the file is read by its lines."""
    cited = Cited(source, file, role, "text")
    found: list[Observation] = []
    stack: list[tuple[int, str]] = []
    for number, line in enumerate(source.decode("utf-8", "replace").split("\n"), start=1):
        match = _LINE.match(line.split(" #")[0])
        if match is None or line.lstrip().startswith("#"):
            continue
        depth = len(match[1])
        stack = [item for item in stack if item[0] < depth]
        key = ".".join([*(name for _, name in stack), match[2]])
        value = (match[3] or "").strip()
        if not value:
            stack.append((depth, match[2]))
            continue
        if value[:1] in "{[|>&*":
            continue
        seen = cited.observe(
            Kind.ENV_READ,
            family.variable(key),
            (number, number),
            value=None if value in ("null", "~") else value,
            detail=f"config key `{key}` with its default",
            key=key,
        )
        found.append(seen.model_copy(update={"method": "text"}))
    return found
