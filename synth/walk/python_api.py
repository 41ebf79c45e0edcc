"""Public callables of a Python package that set, limit or report resources, and their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from synth.records import Kind, Observation, When
from synth.walk.python_env import FileWalk
from synth.walk.python_facts import Class, Function, Parameter
from synth.walk.python_params import PublicCallable, is_property, see, sets_any_option, telling, walk_parameters
from synth.walk.python_reach import per_thread
from synth.walk.python_scope import dotted
from synth.walk.syntax import descend
from synth.walk.words import (
    about_performance,
    about_pools,
    about_resources,
    counting_parameter,
    reports_resources,
)

_SETTER = re.compile(r"^(set|enable|disable|use|limit|configure|resize|reserve|reduce|clear|switch|reset)_|^set$")
_GETTER = re.compile(
    r"^(get|detect|num|count|n|max|available|effective|current)_|_(count|info|size|limit|layer|state|config)$"
)
_LIMITER = re.compile(r"limit|config|context|backend|threads?|parallel|workers|chunk|pool|affinity", re.IGNORECASE)


def walk_api(walk: FileWalk) -> list[Observation]:
    """Observations of public setters, reporters, context managers and parameters in a file."""
    found: list[Observation] = []
    for item in _callables(walk):
        item.scope = _scope(walk, item)
        if item.listed:
            found.extend(_setter(walk, item))
            found.extend(_getter(walk, item))
            found.extend(walk_parameters(walk, item))
        else:
            found.extend(_doubted(seen) for seen in _setter(walk, item))
    found.extend(_instances(walk))
    return found


def _callables(walk: FileWalk) -> Iterator[PublicCallable]:
    index, pyfile = walk.index, walk.pyfile
    facts = index.modules.get(pyfile.module)
    if facts is None or facts.file != walk.cited.file:
        return
    for scope in pyfile.inner.values():
        if scope.kind == "lambda":
            continue
        last = scope.qualname.rpartition(".")[2]
        listed = index.public(pyfile.module, scope.qualname)
        name = listed or index.reachable(pyfile.module, scope.qualname)
        if name is None:
            continue
        entity = (pyfile.module, scope.qualname)
        klass = facts.classes.get(scope.qualname) if scope.kind == "class" else None
        function = facts.functions.get(scope.qualname) if scope.kind == "function" else None
        if klass is not None:
            maker = index.function(index.resolve(pyfile.module, f"{scope.qualname}.__init__"))
            own = maker if maker is not None and maker.owner == scope.qualname else None
            parameters = own.parameters if own is not None else klass.fields if _is_record(klass) else []
            yield PublicCallable(
                name, entity, scope.node, klass.lines, parameters, klass.decorators, own, klass, bool(listed)
            )
        elif function is not None and last != "__init__" and not _shadowed(function, scope.node):
            parameters, decorators = function.parameters, function.decorators
            yield PublicCallable(
                name, entity, scope.node, function.lines, parameters, decorators, function, None, bool(listed)
            )


def _scope(walk: FileWalk, item: PublicCallable) -> str:
    """How far a setter or context manager reaches; what it does not look like is left open."""
    last = item.name.rpartition(".")[2]
    setting = sets_any_option(item.name) or bool(_SETTER.match(last)) or bool(_LIMITER.search(last))
    method = item.klass is None and "." in item.entity[1]
    if not setting or (item.klass is not None and not _limits(item, last) and not sets_any_option(item.name)):
        return ""
    index, (module, qualname) = walk.index, item.entity
    if item.klass is not None:
        methods = (f"{qualname}.{name}" for name in ("__enter__", "__init__"))
        entities = [entity for name in methods if (entity := index.resolve(module, name)) is not None]
    else:
        entities = [item.entity]
    if any(per_thread(index, entity) for entity in entities):
        return "thread"
    static = any(d in ("classmethod", "staticmethod") for d in item.decorators)
    if method and not static and not about_pools(last):
        return "object"
    managed = item.klass is None or _is_context_manager(walk, item)
    return "process" if managed and (sets_any_option(item.name) or about_resources(last)) else ""


def _doubted(seen: Observation) -> Observation:
    """An observation of a callable that its module does not list as public."""
    detail = seen.detail.removeprefix("weak: ")
    return seen.model_copy(update={"detail": f"weak: not listed in __all__; {detail}"})


def _shadowed(function: Function, node: Node) -> bool:
    """Whether this is an overload (or an earlier definition) and not the function that is called."""
    return function.lines[0] != node.start_point[0] + 1


def _is_record(klass: Class) -> bool:
    return any(
        "dataclass" in d or "attr." in d or "attrs" in d or d.startswith("define") for d in klass.decorators
    ) or any(
        base.rpartition(".")[2] in ("BaseModel", "BaseSettings", "NamedTuple", "Struct", "TypedDict")
        for base in klass.bases
    )


# setters and reporters


def _setter(walk: FileWalk, item: PublicCallable) -> Iterator[Observation]:
    last = item.name.rpartition(".")[2]
    taken = ", ".join(_written(parameter) for parameter in item.parameters[:8])
    settable = any(d.endswith(".setter") for d in item.decorators)
    if settable and about_resources(last):
        yield see(walk, Kind.API_SET, item, detail="settable property")
        return
    speaks = about_resources(last) or any(map(telling, item.parameters))
    if speaks and _limits(item, last) and _is_context_manager(walk, item):
        yield see(walk, Kind.API_SET, item, detail=f"context manager({taken})")
        return
    if sets_any_option(item.name):
        yield see(walk, Kind.API_SET, item, detail=f"weak: sets any option; takes ({taken})")
        return
    if item.klass is not None or is_property(item):
        return
    if _SETTER.match(last):
        if (about_performance(last) or about_resources(last)) and not _is_plain_config(last):
            strength = "" if about_resources(last) else "weak: by an engine word in its name; "
            yield see(walk, Kind.API_SET, item, detail=f"{strength}takes ({taken})")
        elif any(counting_parameter(p.name) for p in item.parameters) and not item.entity[1].count("."):
            yield see(walk, Kind.API_SET, item, detail=f"weak: by its parameters; takes ({taken})")
        return
    if about_pools(last) and "limit" in last:
        yield see(walk, Kind.API_SET, item, detail=f"takes ({taken})")
    elif last in ("limit", "wrap", "resize", "scale", "adapt") and about_pools(item.name):
        yield see(walk, Kind.API_SET, item, detail=f"weak: by its owner's name; takes ({taken})")


def _limits(item: PublicCallable, last: str) -> bool:
    """Whether a context manager's name says that it sets something, not that it is a pool."""
    if item.klass is not None and last[:1].isupper():
        return bool(re.search(r"limit|config|context|options|settings", last, re.IGNORECASE))
    return bool(_LIMITER.search(last))


def _is_plain_config(name: str) -> bool:
    return name in ("set_context", "set_low", "init_context")


def _written(parameter: Parameter) -> str:
    default = f"={parameter.default}" if parameter.default is not None else ""
    return f"{parameter.star}{parameter.name}{default}"


def _is_context_manager(walk: FileWalk, item: PublicCallable) -> bool:
    if any(d.rpartition(".")[2] in ("contextmanager", "asynccontextmanager") for d in item.decorators):
        return True
    if item.klass is None:
        return _returns_manager(walk, item)
    return walk.index.resolve(item.entity[0], f"{item.entity[1]}.__enter__") is not None


def _returns_manager(walk: FileWalk, item: PublicCallable) -> bool:
    """Whether a function returns a new instance of a class of the package that is a context manager."""
    for node in descend(item.node):
        if node.type == "return_statement" and node.named_children and node.named_children[0].type == "call":
            name = dotted(node.named_children[0].child_by_field_name("function"))
            if walk.index.is_class(walk.index.resolve(item.entity[0], name)):
                return walk.index.resolve(item.entity[0], f"{name}.__enter__") is not None
    return False


def _getter(walk: FileWalk, item: PublicCallable) -> Iterator[Observation]:
    last = item.name.rpartition(".")[2]
    function = item.function
    if item.klass is not None or function is None or _SETTER.match(last):
        return
    if any(parameter.required for parameter in item.parameters):
        return
    if not _GETTER.search(last) or not reports_resources(last) or function.effects:
        return
    doubt = _writes(walk, item)
    kind = "property" if is_property(item) else "no required argument"
    detail = f"weak: {kind}, but it {doubt}" if doubt else f"{kind}, no side effects seen"
    yield see(walk, Kind.API_GET, item, detail=detail)


def _writes(walk: FileWalk, item: PublicCallable) -> str:
    """What a function's body does besides reporting, in words; empty if nothing is seen."""
    for node in descend(item.node):
        if node.type == "call":
            name = dotted(node.child_by_field_name("function"))
            last = name.rpartition(".")[2].lstrip("_")
            if re.match(r"(set|reset|enable|disable|start|init|create|register|spawn|launch)_", last):
                return f"calls {name}()"
            if name in ("os.putenv", "os.environ.setdefault", "os.environ.update", "subprocess.Popen", "open"):
                return f"calls {name}()"
        elif node.type in ("global_statement", "delete_statement"):
            entity = walk.index.function(item.entity)
            if entity is None or not entity.guarded:
                return "changes a global"
    return ""


def _instances(walk: FileWalk) -> Iterator[Observation]:
    """Public module-level instances that are used as context managers or called as setters."""
    index, module = walk.index, walk.pyfile.module
    facts = index.modules.get(module)
    if facts is None or facts.file != walk.cited.file:
        return
    for variable, maker in facts.instances.items():
        name = index.public(module, variable)
        constant = facts.constants.get(variable)
        if name is None or constant is None or not about_resources(variable):
            continue
        made = index.resolve(module, maker)
        managed = made is not None and index.resolve(made[0], f"{made[1]}.__enter__") is not None
        if managed and index.is_class(made):
            yield walk.cited.observe(
                Kind.API_SET,
                name,
                constant.lines,
                when=When.CALL,
                value=constant.text,
                detail="public instance of a class of the package",
            )
