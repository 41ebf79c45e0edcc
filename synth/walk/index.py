"""What the files of a Python release say about each other: modules, re-exports, constants, who calls whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node, Tree

from synth.records import Role, When
from synth.walk.cython_source import include_module
from synth.walk.environment import mentions_environment, touches_environment
from synth.walk.python_facts import Facts, Function, gather
from synth.walk.python_scope import PyFile, Scope, dotted, parse_python
from synth.walk.python_values import UNKNOWN, Value
from synth.walk.python_wrappers import CONSTRUCTORS, Wrapper, find_wrappers
from synth.walk.roles import role_of
from synth.walk.syntax import PARSE_SECONDS, NotParsedError

Entity = tuple[str, str]  # (module, qualified name inside it)
RUNS = frozenset({Role.LIBRARY, Role.VENDORED})  # roles whose module level runs in an application
KEPT_BYTES = 40_000_000  # of source whose trees are kept; a tree takes ten times its source, parsing again is cheap
_HOPS = 12  # imports followed for one name


@dataclass
class PackageIndex:
    """Cross-file facts of one release; build it with `PackageIndex.build`.

    Attributes:
        modules: facts by dotted module name; `files` by path.
        wrappers: environment readers by entity.
        failed: files that could not be read, with the reason.
        touching: files that run in an application and whose code, not only its prose, speaks of the environment.
    """

    modules: dict[str, Facts] = field(default_factory=dict)
    files: dict[str, Facts] = field(default_factory=dict)
    wrappers: dict[Entity, Wrapper] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    _trees: dict[str, tuple[int, Tree]] = field(default_factory=dict)
    _sources: dict[str, bytes] = field(default_factory=dict)
    _opened: dict[str, PyFile] = field(default_factory=dict)
    _public: dict[Entity, str] = field(default_factory=dict)
    _heirs: dict[Entity, str] = field(default_factory=dict)
    _imported: set[Entity] = field(default_factory=set)
    _first_use: set[Entity] = field(default_factory=set)
    touching: set[str] = field(default_factory=set)
    memo: dict[str, object] = field(default_factory=dict)  # what a walker found out once for all files

    @classmethod
    def build(
        cls,
        sources: Mapping[str, bytes],
        *,
        role: Callable[[str], Role] = role_of,
        keep: Callable[[bytes], bool] = lambda _source: True,
        seconds: float = PARSE_SECONDS,
        known: Mapping[str, Facts] | None = None,
    ) -> PackageIndex:
        """Parse every Python file once and resolve what crosses files.

        Args:
            sources: path relative to the release's root -> bytes, Python files only.
            role: role of a path.
            keep: whether the tree of a file is worth keeping for its walk.
            seconds: parse limit for each file.
            known: facts of files that need not be parsed for them.
        """
        index = cls()
        packages = packages_of(sources)
        given = known or {}
        deferred: list[str] = []
        kept = 0
        for path in sorted(sources, key=lambda p: (role(p) not in RUNS, p.count("/"), p)):
            source = sources[path]
            if role(path) not in RUNS and not mentions_environment(source):
                continue  # it says nothing about what the package does in an application
            facts = given.get(path)
            if facts is None:
                try:
                    tree = parse_python(source, seconds=seconds)
                except NotParsedError as error:
                    index.failed[path] = str(error)
                    continue
                name, is_package = module_name(path, packages)
                try:
                    facts = gather(PyFile(tree.root_node, name, is_package=is_package), path, role(path))
                except Exception as error:  # noqa: BLE001 - one odd file must not lose the package
                    index.failed[path] = f"the index failed: {type(error).__name__}: {error}"
                    continue
                kept += len(source)
                if kept < KEPT_BYTES and keep(source):
                    index._trees[path] = (len(source), tree)
            index.files[path] = facts
            index.modules.setdefault(facts.module, facts)
            index._sources[path] = source
            if facts.role in RUNS and touches_environment(source):
                deferred.append(path)
        index.touching = set(deferred)
        find_wrappers(index, [path for path in deferred if index._readable(path)])
        index._find_public()
        index._find_heirs()
        index._find_imported()
        index._find_first_use()
        return index

    # files

    def pyfile(self, file: str, source: bytes, *, seconds: float = PARSE_SECONDS) -> PyFile:
        """The parsed file, from the pre-pass where it is kept there."""
        opened = self._opened.get(file)
        if opened is not None and self._sources.get(file) is source:
            return opened
        kept = self._trees.get(file)
        tree = kept[1] if kept and kept[0] == len(source) else parse_python(source, seconds=seconds)
        facts = self.files.get(file)
        name, is_package = (facts.module, facts.is_package) if facts else module_name(file, set())
        pyfile = PyFile(tree.root_node, name, is_package=is_package)
        pyfile.index = self
        return pyfile

    def _readable(self, file: str) -> bool:
        """Whether a file parses again within its time: its facts may be of an earlier run."""
        try:
            self.kept(file)
        except NotParsedError:
            return False
        return True

    def kept(self, file: str) -> PyFile:
        """The parsed file, kept for the next time: those that touch the environment are looked at again and again.

        Raises:
            NotParsedError: as it did in the pre-pass.
        """
        if file not in self._opened:
            self._opened[file] = self.pyfile(file, self._sources[file])
        return self._opened[file]

    def opened(self, module: str) -> PyFile | None:
        """The parsed file of a module of the release, kept for the next time."""
        facts = self.modules.get(module)
        if facts is None:
            return None
        try:
            return self.kept(facts.file)
        except NotParsedError:
            return None

    def source(self, file: str) -> bytes:
        """Bytes of a Python file of the release."""
        return self._sources.get(file, b"")

    def wrapper_names(self) -> set[str]:
        """Last components of the wrappers' names: what a file must contain to call one."""
        return {entity[1].rpartition(".")[2] for entity in self.wrappers}

    # names

    def constant(self, module: str, name: str) -> Value:
        """Value of a module's constant or class attribute, through re-exports."""
        for _ in range(_HOPS):
            facts = self.modules.get(module)
            if facts is None:
                return UNKNOWN
            if name in facts.constants:
                return facts.constants[name].value
            head, _, rest = name.partition(".")
            if head in facts.imports:
                source, attribute = facts.imports[head]
                if attribute and f"{source}.{attribute}" in self.modules and rest:
                    module, name = f"{source}.{attribute}", rest
                elif attribute or rest:
                    module, name = source, ".".join(part for part in (attribute, rest) if part)
                else:
                    return UNKNOWN
                continue
            if f"{module}.{head}" in self.modules and rest:
                module, name = f"{module}.{head}", rest
                continue
            star = next((s for s in facts.stars if s in self.modules and name in self.modules[s].constants), None)
            if star is None:
                return UNKNOWN
            module = star
        return UNKNOWN

    def constant_at(self, module: str, name: str) -> tuple[Facts, str] | None:
        """File and key of the definition that `constant` finds."""
        for _ in range(_HOPS):
            facts = self.modules.get(module)
            if facts is None:
                return None
            if name in facts.constants:
                return facts, name
            if name not in facts.imports or not facts.imports[name][1]:
                return None
            module, name = facts.imports[name]
        return None

    def bases(self, module: str, qualname: str) -> list[Entity]:
        """Classes of the release that a class inherits from, nearest first."""
        found: list[Entity] = []
        queue: list[Entity] = [(module, qualname)]
        while queue and len(found) < 30:
            here, name = queue.pop(0)
            facts = self.modules.get(here)
            known = facts.classes.get(name) if facts is not None else None
            for base in known.bases if known is not None else []:
                entity = self.resolve(here, base)
                if entity is not None and entity not in found and entity != (module, qualname):
                    found.append(entity)
                    queue.append(entity)
        return found

    def ancestry(self, module: str, qualname: str) -> list[str]:
        """Absolute dotted names of all bases of a class, those outside the release included."""
        found: list[str] = []
        for here, name in [(module, qualname), *self.bases(module, qualname)]:
            facts = self.modules.get(here)
            known = facts.classes.get(name) if facts is not None else None
            found.extend(self.absolute(here, base) for base in (known.bases if known is not None else []))
        return found

    def absolute(self, module: str, name: str) -> str:
        """Dotted name with its first component replaced by what it was imported as."""
        facts = self.modules.get(module)
        head, _, rest = name.partition(".")
        source = facts.imports.get(head) if facts is not None else None
        if source is None:
            return name
        return ".".join(part for part in (*source, rest) if part)

    def resolve(self, module: str, name: str) -> Entity | None:
        """The function or class of the release that a dotted name means in a module."""
        for _ in range(_HOPS):
            name = name.replace("()", "")
            facts = self.modules.get(module)
            if facts is None or not name:
                return None
            if name in facts.functions or name in facts.classes:
                return module, name
            head, _, rest = name.partition(".")
            if head in facts.classes:
                return self._member(module, head, rest)
            step = self._step(facts, head, rest)
            if step is None or step == (module, name):
                return None
            module, name = step
        return None

    def _step(self, facts: Facts, head: str, rest: str) -> tuple[str, str] | None:
        """One hop from a name towards its definition."""
        tail = f".{rest}" if rest else ""
        if head in facts.imports:
            source, attribute = facts.imports[head]
            if not attribute:
                return self._longest(source, rest)
            if f"{source}.{attribute}" in self.modules:
                target = self.modules.get(source)
                shadowed = target is not None and (attribute in target.functions or attribute in target.classes)
                if not shadowed:
                    return (f"{source}.{attribute}", rest) if rest else None
            return source, attribute + tail
        if head in facts.lazy:
            source, attribute = facts.lazy[head]
            return source, attribute + tail
        if facts.instances.get(head) and rest:
            return facts.module, facts.instances[head] + tail
        alias = facts.constants.get(head)
        if alias is not None and re.fullmatch(r"[A-Za-z_][\w.]*", alias.text) and alias.text != head:
            return facts.module, alias.text + tail
        for star in facts.stars:
            target = self.modules.get(star)
            if target is not None and self._has(target, head):
                return star, head + tail
        if f"{facts.module}.{head}" in self.modules and rest:
            return f"{facts.module}.{head}", rest
        return None

    def _has(self, facts: Facts, name: str) -> bool:
        return name in facts.functions or name in facts.classes or name in facts.imports

    def _longest(self, module: str, rest: str) -> tuple[str, str] | None:
        parts = rest.split(".") if rest else []
        while len(parts) > 1 and f"{module}.{parts[0]}" in self.modules:
            module = f"{module}.{parts.pop(0)}"
        return (module, ".".join(parts)) if parts else None

    def _member(self, module: str, klass: str, rest: str) -> Entity | None:
        if not rest:
            return module, klass
        for here, name in [(module, klass), *self.bases(module, klass)]:
            facts = self.modules.get(here)
            if facts is not None and f"{name}.{rest}" in facts.functions:
                return here, f"{name}.{rest}"
        return None

    def is_class(self, entity: Entity | None) -> bool:
        """Whether an entity is a class of the release."""
        facts = self.modules.get(entity[0]) if entity is not None else None
        return facts is not None and entity is not None and entity[1] in facts.classes

    def function(self, entity: Entity | None) -> Function | None:
        """Facts of a function."""
        facts = self.modules.get(entity[0]) if entity is not None else None
        return facts.functions.get(entity[1]) if facts is not None and entity is not None else None

    def called(self, module: str, scope: str, name: str) -> Entity | None:
        """The entity that a call by `name` inside function `scope` reaches."""
        facts = self.modules.get(module)
        if facts is None:
            return None
        owner, _, rest = name.partition(".")
        if owner in ("self", "cls", "super()", "self()"):
            parts = scope.split(".")
            for size in range(len(parts) - 1, 0, -1):
                klass = ".".join(parts[:size])
                if klass in facts.classes:
                    skip = 1 if owner == "super()" else 0
                    lineage = [(module, klass), *self.bases(module, klass)][skip:]
                    found = (self._member(here, base, rest) for here, base in lineage)
                    return next((entity for entity in found if entity is not None), None)
            return None
        parts = scope.split(".") if scope else []
        for size in range(len(parts), 0, -1):
            inner = ".".join([*parts[:size], name])
            known = facts.functions.get(inner)
            if known is not None and not known.in_class:
                return module, inner
        return self.resolve(module, name)

    # when code runs

    def when(self, module: str, scope: Scope, offset: int | None = None) -> When:
        """When code in a scope of a module runs, more precisely with its byte offset."""
        function = scope.function()
        if function is None:
            return When.CALL if scope.in_lambda else When.IMPORT
        entity = (module, function.qualname)
        if entity in self._imported:
            return When.IMPORT
        known = self.function(entity)
        if known is not None and known.guarded and not known.cached and offset is not None:
            inside = any(start <= offset < end for start, end in known.spans)
            return When.FIRST_USE if inside else When.CALL
        return When.FIRST_USE if entity in self._first_use else When.CALL

    def _targets(self, module: str, scope: str, names: set[str]) -> Iterator[Entity]:
        for name in sorted(names):
            entity = self.called(module, scope, name)
            if entity is None:
                continue
            facts = self.modules[entity[0]]
            if entity[1] in facts.classes:
                found = (self._member(*entity, constructor) for constructor in CONSTRUCTORS)
                yield from (constructor for constructor in found if constructor is not None)
            else:
                yield entity

    def _find_imported(self) -> None:
        queue: list[Entity] = []
        for facts in self.modules.values():
            if facts.role in RUNS and not facts.module.endswith("__main__"):
                queue.extend(self._targets(facts.module, "", facts.calls))
        while queue:
            entity = queue.pop()
            if entity in self._imported:
                continue
            self._imported.add(entity)
            known = self.function(entity)
            if known is not None:
                queue.extend(self._targets(entity[0], entity[1], known.calls))

    def _find_first_use(self) -> None:
        callers: dict[Entity, set[Entity]] = {}
        for facts in self.modules.values():
            for known in facts.functions.values():
                caller = (facts.module, known.qualname)
                if known.guarded:
                    self._first_use.add(caller)
                if facts.role in RUNS:
                    for target in self._targets(facts.module, known.qualname, known.calls):
                        callers.setdefault(target, set()).add(caller)
        for _ in range(3):
            for target, known_callers in callers.items():
                if target[1].rpartition(".")[2].startswith("_") and known_callers <= self._first_use:
                    self._first_use.add(target)

    # what an application can name

    def public(self, module: str, qualname: str) -> str | None:
        """Shortest public dotted name of a function, class or method; `None` if it has none."""
        if (module, qualname) in self._public:
            return self._public[(module, qualname)]
        owner, _, name = qualname.rpartition(".")
        if not owner or name.startswith("_"):
            return None
        facts = self.modules.get(module)
        if facts is None or owner not in facts.classes:
            return None
        outer = self.public(module, owner) or self._heirs.get((module, owner))
        return f"{outer}.{name}" if outer else None

    def offered(self, module: str, qualname: str) -> bool:
        """Whether a module on the way of something's public name says that it is for others.

        It lists the name in `__all__`, or is a package that imports it from where it is defined.
        """
        top = qualname.partition(".")[0]
        path = self._public.get((module, top))
        if path is None:
            return False
        place, _, name = path.rpartition(".")
        facts = self.modules.get(place)
        if facts is None:
            return False
        return (facts.exports is not None and name in facts.exports) or (facts.is_package and place != module)

    def reachable(self, module: str, qualname: str) -> str | None:
        """Dotted name of something without an underscore that its module leaves out of `__all__`."""
        facts = self.modules.get(module)
        path = f"{module}.{qualname}"
        if facts is None or facts.role not in RUNS or any(part.startswith("_") for part in path.split(".")):
            return None
        owner = qualname.rpartition(".")[0]
        return path if not owner or owner in facts.classes else None

    def _find_public(self) -> None:
        for facts in sorted(self.modules.values(), key=lambda f: (f.module.count("."), f.module)):
            hidden = any(part.startswith("_") for part in facts.module.split("."))
            if facts.role not in RUNS or hidden:
                continue
            for name in self.exported(facts):
                entity = self.resolve(facts.module, name)
                entity = entity or self._instance(facts.module, name)
                if entity is None or "." in entity[1]:
                    continue
                path = f"{facts.module}.{name}"
                known = self._public.get(entity)
                if known is None or _better(path, known):
                    self._public[entity] = path

    def _find_heirs(self) -> None:
        """The methods of a private class are public through its public subclasses."""
        for entity, path in sorted(self._public.items(), key=lambda item: (item[1].count("."), item[1])):
            for base in self.bases(*entity) if self.is_class(entity) else []:
                if base not in self._public:
                    self._heirs.setdefault(base, path)

    def _instance(self, module: str, name: str) -> Entity | None:
        """The module-level instance of a class of the release that a name means."""
        place = self.constant_at(module, name)
        if place is None or place[1] not in place[0].instances:
            return None
        home, variable = place[0].module, place[1]
        made = self.resolve(home, place[0].instances[variable])
        return (home, variable) if self.is_class(made) else None

    def exported(self, facts: Facts, depth: int = 0) -> list[str]:
        """Names that a module offers."""
        if facts.exports is not None:
            top = facts.module.partition(".")[0]
            near = [n for n, (m, a) in facts.imports.items() if a and m.partition(".")[0] == top and n[0] != "_"]
            # what a binary module offers is listed at run time, if at all
            starred = [self.modules[star] for star in facts.stars if star in self.modules]
            stubs = [module for module in starred if module.file.endswith(".pyi")]
            bound = [name for stub in stubs for name in self.exported(stub, 4) if depth < 4]
            return list(dict.fromkeys([*facts.exports, *facts.lazy, *(near if facts.is_package else []), *bound]))
        own = [*facts.functions, *facts.classes, *facts.instances, *facts.lazy]
        own += [n for n, c in facts.constants.items() if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", c.text)]
        names = [name for name in own if "." not in name]
        if facts.is_package:
            names += [name for name, (_, attribute) in facts.imports.items() if attribute]
        else:  # a public module that takes names from a private one beside it offers them
            beside = facts.module.rpartition(".")[0]
            names += [
                name
                for name, (module, attribute) in facts.imports.items()
                if attribute and module.rpartition(".")[0] == beside and module.rpartition(".")[2].startswith("_")
            ]
        for star in facts.stars if depth < 4 else []:
            target = self.modules.get(star)
            if target is not None and target is not facts:
                names += self.exported(target, depth + 1)
        return [name for name in dict.fromkeys(names) if not name.startswith("_")]

    def wrapper_at(self, pyfile: PyFile, call: Node) -> Wrapper | None:
        """The wrapper that a call reaches, if any."""
        name = dotted(call.child_by_field_name("function"))
        function = pyfile.scope(call).function()
        entity = self.called(pyfile.module, function.qualname if function is not None else "", name)
        return self.wrappers.get(entity) if entity is not None else None


def _better(path: str, known: str) -> bool:
    return (path.count("."), len(path), path) < (known.count("."), len(known), known)


_INITS = frozenset({"__init__.py", "__init__.pyi", "__init__.pyx"})


def packages_of(sources: Iterable[str]) -> set[str]:
    """Folders that hold an `__init__`."""
    return {path.rpartition("/")[0] for path in sources if path.rpartition("/")[2] in _INITS}


def module_name(path: str, packages: set[str]) -> tuple[str, bool]:
    """Dotted name that a file is imported by, and whether it is a package's `__init__`.

    `packages` are the folders that hold an `__init__`: the first folder above that does not is the import root.
    """
    folder, _, name = path.rpartition("/")
    own = include_module(name) if ".pxi" in name else name.partition(".pyx")[0] if ".pyx" in name else ""
    own = own or name.rpartition(".")[0] or name
    parts = [] if name in _INITS else [own]
    while folder in packages and folder:
        folder, _, last = folder.rpartition("/")
        parts.insert(0, last)
    return ".".join(parts) or "__init__", name in _INITS
