"""Text of strangers, made fit to stand in a prompt: visible, bounded, and fenced so that it cannot end its own fence.

Sources and documentation are data. Every line of them starts with a mark that no line of ours has, the block stands
between two lines that carry a digest of its content, and what a reader cannot see, or what a server could take for
the end of a message, is spelled out.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

MAX_BLOCK_CHARS = 4_000
MAX_WORD_CHARS = 200
LINE_MARK = "| "
_TAG_DIGITS = 12
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Words that chat formats give a meaning; servers differ in whether they look for them inside of messages.
_CONTROL_WORDS = re.compile(
    r"<(?=[|\uff5c])|(?<=[|\uff5c])>|"
    r"<(?=/?(?:s|unk|pad|bos|eos|mask|sep|cls|think|thinking|tool_call|tool_response|tools|function_calls?|system|user|"
    r"assistant|start_of_turn|end_of_turn|start_of_image|end_of_text|eot_id|begin_of_text|im_start|im_end)\s*>)|"
    r"<(?=</?SYS>>)|\[(?=/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT|gMASK|CLS|SEP|MASK)\])",
    re.IGNORECASE,
)
_WORD_EXTRA = frozenset("_.-+*/:()=, ")


class Safe(str):
    """Text that may be printed into a prompt: made by the functions of this module alone."""

    __slots__ = ()


def visible(text: str) -> str:
    """Text in which every character can be seen: no controls, no bidirectional marks, no words of chat formats."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = "".join(c if _can_stand(c) else spelled(c) for c in text)
    return _CONTROL_WORDS.sub(lambda m: spelled(m[0]), shown)


def _can_stand(c: str) -> bool:
    if c in "\n\t" or " " <= c <= "~":
        return True
    # Variation selectors are marks by category, and carry hidden text all the same.
    return unicodedata.category(c) not in _INVISIBLE and not ("\ufe00" <= c <= "\ufe0f" or c >= "\U000e0100")


def spelled(text: str) -> str:
    r"""Characters by their number: `\u{202e}`."""
    return "".join(f"\\u{{{ord(c):x}}}" for c in text)


def tag_of(text: str) -> str:
    """A name for a block that its content cannot contain: it would have to hold a digest of itself."""
    for n in range(1_000):
        tag = hashlib.sha256(f"{n}\0{text}".encode()).hexdigest()[:_TAG_DIGITS]
        if tag not in text:
            return tag
    raise ValueError("no tag is free")  # a thousand digests in one bounded text


def block(text: str, name: str, max_chars: int = MAX_BLOCK_CHARS) -> Safe:
    """A block of data under a name of ours.

    Args:
        text: whatever it is.
        name: identifier that the model cites it by.
        max_chars: how much of it is shown; the rest is counted.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise ValueError(f"`{name[:64]}` is no name of a block")
    cut = text[:max_chars]
    left = len(text) - len(cut)
    shown = visible(cut)
    tag = tag_of(shown)
    lines = [f"[data {name} {tag}]", *(LINE_MARK + line for line in shown.split("\n"))]
    if left:
        lines.append(f"[{left} characters more are left out]")
    lines.append(f"[end {name} {tag}]")
    return Safe("\n".join(lines))


def word(text: str, max_chars: int = MAX_WORD_CHARS) -> Safe:
    """A name of a stranger inside of a sentence of ours: between backticks, on one line, of few characters."""
    shown = "".join(c if (c.isascii() and c.isalnum()) or c in _WORD_EXTRA else spelled(c) for c in text[:max_chars])
    return Safe(f"`{shown}{'...' if len(text) > max_chars else ''}`")
