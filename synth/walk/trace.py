"""What the walk of one file asked the index of its release, so that the answers can be compared the next time.

The tables of the index are replaced by ones that write down each look-up. The result of a file holds as long as its own
bytes are the same and every look-up would be answered as before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import fields
from typing import Any

from synth.cache import digest
from synth.walk.index import PackageIndex
from synth.walk.python_facts import Facts
from synth.walk.python_wrappers import Wrapper
from synth.walk.stored import NotStorableError, decode, encode

Asked = tuple[str, Any]  # (table, key); a whole table has the key None
_BYTES = frozenset({"_sources", "_trees", "_opened"})  # tables by path: who looks there depends on a file's bytes
_TABLES = ("imports", "constants", "functions", "classes", "lazy", "instances")  # of the facts of a file
_ROUNDS = 3
_PLAIN = (str, int, float, bool, type(None))


class UntraceableError(Exception):
    """An answer cannot be compared with a later one."""


class _Table(dict[Any, Any]):
    """A dictionary that writes down what is looked up."""

    def __init__(self, name: str, content: dict[Any, Any], log: list[Asked]) -> None:
        super().__init__(content)
        self._name, self._log = name, log

    def __getitem__(self, key: Any) -> Any:
        self._log.append((self._name, key))
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._log.append((self._name, key))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._log.append((self._name, key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[Any]:
        self._log.append((self._name, None))
        return super().__iter__()

    def __len__(self) -> int:
        self._log.append((self._name, None))
        return super().__len__()

    def keys(self) -> Any:
        self._log.append((self._name, None))
        return super().keys()

    def values(self) -> Any:
        self._log.append((self._name, None))
        return super().values()

    def items(self) -> Any:
        self._log.append((self._name, None))
        return super().items()

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


class _Memo(_Table):
    """What is found out once for all files: who uses it depends on the value, and that on all that was asked for it."""

    def __init__(self, name: str, content: dict[Any, Any], log: list[Asked]) -> None:
        super().__init__(name, content, log)
        self.asked: dict[Any, tuple[Asked, ...]] = {}
        self.starts: dict[Any, int] = {}

    def _use(self, key: Any) -> None:
        if dict.__contains__(self, key):
            self._log.append((self._name, key))
        else:
            self.starts.setdefault(key, len(self._log))

    def __getitem__(self, key: Any) -> Any:
        self._use(key)
        return dict.__getitem__(self, key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._use(key)
        return dict.get(self, key, default)

    def __contains__(self, key: object) -> bool:
        self._use(key)
        return dict.__contains__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        start = self.starts.pop(key, 0)
        self.asked[key] = tuple(dict.fromkeys(self._log[start:]))
        self._log[start:] = [(self._name, key)]
        dict.__setitem__(self, key, value)


class _Names(set[Any]):
    """A set that writes down what is looked up."""

    def __init__(self, name: str, content: set[Any], log: list[Asked]) -> None:
        super().__init__(content)
        self._name, self._log = name, log

    def __contains__(self, key: object) -> bool:
        self._log.append((self._name, key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[Any]:
        self._log.append((self._name, None))
        return super().__iter__()


class Trace:
    """Writes down look-ups in one index, and answers them again.

    Args:
        index: complete; its tables are replaced.
        contents: digest of the bytes of each file by path.
        faces: digest of what other files see of a file's facts apart from its tables, by path.
    """

    def __init__(self, index: PackageIndex, contents: dict[str, str], faces: dict[str, str]) -> None:
        """Replace the tables of the index."""
        self.index, self.contents, self.faces = index, contents, faces
        self.log: list[Asked] = []
        self._known: dict[Asked, str] = {}
        self._plain: dict[str, dict[Any, Any] | set[Any]] = {}
        for field in fields(index):
            value = getattr(index, field.name)
            self._plain[field.name] = value
            if field.name == "memo":
                self._memo = _Memo(field.name, value, self.log)
                setattr(index, field.name, self._memo)
            elif isinstance(value, dict):
                setattr(index, field.name, _Table(field.name, value, self.log))
            elif isinstance(value, set):
                setattr(index, field.name, _Names(field.name, value, self.log))
            else:
                raise UntraceableError(f"`{field.name}` is neither a table nor a set")
        for facts in dict.values(self._plain["files"]) if isinstance(self._plain["files"], dict) else ():
            self._open(facts)

    def _open(self, facts: Facts) -> None:
        """Replace the tables of one file's facts: who asks for one name does not depend on the others."""
        for name in _TABLES:
            content = getattr(facts, name)
            table = f"{name}@{facts.file}"
            self._plain[table] = content
            setattr(facts, name, _Table(table, content, self.log))

    def recorded(self, walk: Callable[[], Any], own: str) -> tuple[Any, list[Asked]]:
        """The result of the walk of a file, and what it asked about others, each once."""
        self.log.clear()
        self._memo.starts.clear()
        result = walk()
        mine = f"@{own}"  # its own bytes decide what is said of it
        return result, [
            (name, key)
            for name, key in dict.fromkeys(self.log)
            if not (name.endswith(mine) or (name in _BYTES and key == own))
        ]

    def memos(self, but: Container[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """(name, value with what was asked for it) of what was found out once, in the order it was found."""
        for key, asked in self._memo.asked.items():
            if key in but:
                continue
            try:
                text = asked_to_json(asked)
                answers = self.answers(asked_from_json(text))
                yield str(key), {"asked": text, "answers": answers, "value": encode(dict.__getitem__(self._memo, key))}
            except (UntraceableError, NotStorableError):
                continue

    def restore(self, memos: Iterable[tuple[str, Any]]) -> int:
        """Take over what was found out before, as far as it would be found again."""
        left, taken = dict(memos), 0
        for _ in range(_ROUNDS):  # one can depend on another
            held = [key for key, stored in left.items() if self._restored(key, stored)]
            taken += len(held)
            for key in held:
                del left[key]
            if not held:
                break
        return taken

    def _restored(self, key: str, stored: Any) -> bool:
        try:
            asked = asked_from_json(stored["asked"])
            if dict.__contains__(self._memo, key) or self.answers(asked) != stored["answers"]:
                return False
            value = decode(stored["value"])
        except (UntraceableError, ValueError, TypeError, KeyError, IndexError, RecursionError):
            return False
        dict.__setitem__(self._memo, key, value)
        self._memo.asked[key] = tuple(asked)
        return True

    def answers(self, asked: Iterable[Asked]) -> str:
        """Digest of the answers of now.

        Raises:
            UntraceableError: one of them cannot be compared.
        """
        known = self._known
        parts: list[str] = []
        for item in asked:
            answer = known.get(item)
            if answer is None:
                answer = known[item] = self._found(*item)
            parts.append(answer)
        return digest("\n".join(parts))

    def _memo_value(self, key: Any) -> str:
        if not dict.__contains__(self._memo, key):
            raise UntraceableError(f"memo {key}")
        try:
            return digest(json.dumps(encode(dict.__getitem__(self._memo, key))))
        except NotStorableError as error:
            raise UntraceableError(str(error)) from error

    def _found(self, name: str, key: Any) -> str:
        if name in _BYTES and key is not None:
            return self.contents.get(key, "-")
        if name == "memo":
            return self._memo_value(key)
        table = self._plain.get(name)
        if table is None or name in _BYTES:
            raise UntraceableError(name)
        if key is None:
            items = table.items() if isinstance(table, dict) else ((k, True) for k in table)
            return digest(*sorted(f"{k!r} {self._value(v)}" for k, v in items))
        if isinstance(table, set):
            return str(set.__contains__(table, key))
        return self._value(dict.__getitem__(table, key)) if dict.__contains__(table, key) else "-"

    def _value(self, value: Any) -> str:
        if isinstance(value, Facts):
            face = self.faces.get(value.file)
            if face is None:
                raise UntraceableError(value.file)
            return face
        if isinstance(value, Wrapper):
            return self._wrapper(value)
        if isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value)):
            return repr(value)
        try:
            return json.dumps(encode(value, positions=False))
        except NotStorableError as error:
            raise UntraceableError(str(error)) from error

    def _wrapper(self, value: Wrapper) -> str:
        """A wrapper is what its file says, and that of the one inside."""
        parts: list[str] = []
        current: Wrapper | None = value
        modules = self._plain["modules"]
        while current is not None and len(parts) < 40 and isinstance(modules, dict):
            for module in (current.entity[0], current.pyfile.module):
                facts = dict.get(modules, module)
                parts.append(self.contents.get(facts.file, "-") if isinstance(facts, Facts) else "-")
            parts.append(repr((current.entity, current.key, current.deferred)))
            current = current.inner
        return digest(*parts)


def asked_to_json(asked: Iterable[Asked]) -> str:
    """Look-ups as text, by table.

    Raises:
        UntraceableError: a key is neither text nor a pair of texts.
    """
    rows: dict[str, list[Any]] = {}
    for name, key in asked:
        fits = key is None or isinstance(key, str) or (isinstance(key, tuple) and all(isinstance(k, str) for k in key))
        if not fits:
            raise UntraceableError(f"{name}: {key!r}")
        rows.setdefault(name, []).append(list(key) if isinstance(key, tuple) else key)
    return json.dumps(rows, separators=(",", ":"))


def asked_from_json(text: Any) -> list[Asked]:
    """What `asked_to_json` wrote; nothing else gives an answer that fits."""
    rows = json.loads(text) if isinstance(text, str) else None
    found: list[Asked] = []
    for name, keys in rows.items() if isinstance(rows, dict) else ():
        whole = keys if isinstance(keys, list) else []
        found += [(name, tuple(key) if isinstance(key, list) else key) for key in whole]
    return found
