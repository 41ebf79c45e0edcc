"""The report's pictures, as SVG that stands inline in HTML.

Shapes live in nested `svg` elements that stretch with the page, text outside of them: so the type keeps its size
from a phone's width to a wall's. Colours come from the page's style sheet, by class.
"""

from __future__ import annotations

import math
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass

from syspilot.timeline import Group, Lane, Timeline

LABEL_SHARE = 18.0  # percent of the width, left of the plots
UNITS = 2000  # of a plot's width
AREA_PX, LANE_PX, ROW_PX, HEAD_PX, AXIS_PX = 84, 13, 17, 22, 24
OTHERS_PX = 2 * LANE_PX
NAME_CHARS = 24
DOT_ROW_PX = 38
MAX_DOT_ROWS = 30


def visible(text: str, most: int | None = None) -> str:
    """Text from outside, such that what is read is what is there.

    Control characters, lone surrogates and characters without a shape (among them those that turn the direction of
    writing) become escapes; line feeds and tabs stay. Longer text than `most` characters is cut.
    """
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _HIDDEN else _escape(c) for c in text)


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def figure(value: float, digits: int = 3) -> str:
    """A number for people: significant digits, no exponent unless it needs one."""
    if not math.isfinite(value):
        return "unbounded" if value > 0 else str(value)
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round numbers from `low` to `high`, a step of 1, 2 or 5 times a power of ten apart."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((f * power for f in (1.0, 2.0, 5.0) if f * power >= raw), 10.0 * power)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


# -------------------------------------------------------------------- timeline


def timeline_svg(line: Timeline, *, key: str, title: str, cores: int, span_s: float, top: float) -> str:
    """The timeline of one run.

    Args:
        line: what is drawn.
        key: makes the ids of this picture unique in the page.
        title: its name.
        cores: CPUs that the application could use at once.
        span_s: seconds that the width stands for.
        top: threads that the area chart's height stands for.
    """
    return _TimelinePicture(line, span_s).draw(key, title, cores, top)


def summary(line: Timeline, cores: int) -> str:
    """The picture in words."""
    total = line.cpu_s + line.delay_s
    waited = f" ({100 * line.delay_s / total:.0f} % of their runnable time)" if total > 0 and line.delay_s else ""
    return (
        f"{_count(line.threads, 'thread')} in {_count(line.processes, 'process', 'es')}. While the application was "
        f"busy, {figure(line.busy_mean, 2)} threads on average ran or waited for a CPU, {figure(line.peak, 2)} at the "
        f"peak, on {_count(cores, 'core')}. The threads ran {figure(line.cpu_s)} s and waited for a CPU "
        f"{figure(line.delay_s)} s{waited}."
    )


def lane_label(lane: Lane) -> str:
    """A lane's name beside it."""
    if lane.tid is None:
        return f"{lane.name} (sum)"
    return f"{'main' if lane.main else lane.tid} {visible(lane.name, NAME_CHARS)}"


def group_label(group: Group) -> str:
    """A process's name above its lanes."""
    how = {"root": ", the command", "fork": ", forked"}.get(group.started, "")
    hidden = group.threads - len(group.lanes)
    shown = f", {len(group.lanes)} shown" if hidden > 0 else ""
    return f"{visible(group.exe, 40)} {group.pid}{how}: {_count(group.threads, 'thread')}{shown}"


def lane_words(lane: Lane) -> str:
    """A lane in words."""
    share = f" ({100 * lane.waiting_share:.0f} % of its runnable time)" if lane.delay_s > 0 else ""
    return (
        f"{lane_label(lane)}: ran {figure(lane.cpu_s)} s, waited {figure(lane.delay_s)} s{share}, "
        f"seen from {figure(lane.first_s)} to {figure(lane.last_s)} s"
    )


def _count(n: int, word: str, plural: str = "s") -> str:
    return f"{n:,} {word}{plural if n != 1 else ''}".replace(",", "\u202f")


class _TimelinePicture:
    def __init__(self, line: Timeline, span_s: float) -> None:
        self.line = line
        self.span_s = span_s if span_s > 0 else 1.0
        self.xs = [self._x(edge) for edge in line.edges_s]
        self.root = ET.Element("svg", {"class": "timeline", "role": "img"})

    def draw(self, key: str, title: str, cores: int, top: float) -> str:
        self.root.set("aria-labelledby", f"{key}-title {key}-desc")
        _text(ET.SubElement(self.root, "title", {"id": f"{key}-title"}), title)
        words = " ".join([summary(self.line, cores), *map(lane_words, self.line.lanes)])
        _text(ET.SubElement(self.root, "desc", {"id": f"{key}-desc"}), words)
        y = 16
        _label(self.root, 0, 11, "threads that run or wait for a CPU", "head")
        self._area(y, cores, top)
        y += AREA_PX + 8
        for group in self.line.groups:
            _label(self.root, 0, y + 14, group_label(group), "head")
            y += HEAD_PX
            for lane in group.lanes:
                self._lane(lane, y, LANE_PX)
                y += ROW_PX
        if self.line.others is not None:
            y += 8
            self._lane(self.line.others, y, OTHERS_PX)
            y += OTHERS_PX + 4
        self._end(16, y)
        self._axis(y)
        self.root.set("height", str(y + AXIS_PX))
        return ET.tostring(self.root, encoding="unicode")

    def _x(self, time_s: float) -> int:
        return round(UNITS * min(1.0, max(0.0, time_s / self.span_s)))

    def _plot(self, parent: ET.Element, y: int, height: int) -> ET.Element:
        """A part that stretches: x in `UNITS`, y in half pixels."""
        return ET.SubElement(
            parent,
            "svg",
            {
                "x": f"{LABEL_SHARE:g}%",
                "y": str(y),
                "width": f"{100 - LABEL_SHARE:g}%",
                "height": str(height),
                "viewBox": f"0 0 {UNITS} {2 * height}",
                "preserveAspectRatio": "none",
            },
        )

    def _area(self, y: int, cores: int, top: float) -> None:
        group = ET.SubElement(self.root, "g", {"class": "area"})
        plot = self._plot(group, y, AREA_PX)
        ET.SubElement(plot, "path", {"class": "ground", "d": f"M0 0h{self._x(self.line.end_s)}v{2 * AREA_PX}H0z"})
        self._stack(plot, self.line.running, self.line.waiting, 2 * AREA_PX, top)
        level = round(2 * AREA_PX * (1 - cores / top))
        # The dashes lie on a band of the page's colour, so that they show on any of the areas.
        for kind in ("halo", "cores"):
            ET.SubElement(plot, "path", {"class": kind, "d": f"M0 {level}H{UNITS}"})
        _label(group, LABEL_SHARE - 1, y + level // 2 + 4, _count(cores, "core"), "tick end strong")
        if level > 28:
            _label(group, LABEL_SHARE - 1, y + 8, figure(top, 2), "tick end")
        if 2 * AREA_PX - level > 28:
            _label(group, LABEL_SHARE - 1, y + AREA_PX, "0", "tick end")

    def _lane(self, lane: Lane, y: int, height: int) -> None:
        group = ET.SubElement(self.root, "g", {"class": "lane"})
        _text(ET.SubElement(group, "title"), lane_words(lane))
        # A frame of its own cuts a name that is too long for the label's column.
        frame = ET.SubElement(
            group, "svg", {"x": "0", "y": str(y - 2), "width": f"{LABEL_SHARE - 1:g}%", "height": str(height + 4)}
        )
        _label(frame, 0, 12, lane_label(lane), "name")
        if lane.threads > 1:
            _label(frame, 0, 24, f"full height: {figure(lane.peak, 2)}", "name soft")
        plot = self._plot(group, y, height)
        start = next((a for a, b in zip(self.xs, self.line.edges_s[1:], strict=False) if b >= lane.first_s), 0)
        end = max(start + 1, self._x(lane.last_s))
        ET.SubElement(plot, "path", {"class": "ground", "d": f"M{start} 0H{end}V{2 * height}H{start}z"})
        self._stack(plot, lane.running, lane.waiting, 2 * height, 1.0 if lane.threads == 1 else lane.peak)

    def _stack(
        self, plot: ET.Element, running: Sequence[float], waiting: Sequence[float], height: int, top: float
    ) -> None:
        """Waiting stands on running; it is drawn as the sum, behind."""
        both = [a + b for a, b in zip(running, waiting, strict=True)]
        for name, values in (("wait", both), ("run", running)):
            shape = self._steps(values, height, top)
            if shape:
                ET.SubElement(plot, "path", {"class": name, "d": shape})

    def _steps(self, values: Sequence[float], height: int, top: float) -> str:
        """A step curve above the base line, in relative moves: thousands of these make up the page."""
        levels = [round(height * min(1.0, v / top)) if top > 0 else 0 for v in values]
        if not any(levels):
            return ""
        parts: list[str] = []
        level = 0
        x = drawn = self.xs[0]
        for i, new in enumerate(levels):
            if new != level:
                parts += [f"h{x - drawn}"] if x > drawn else []
                parts.append(f"v{level - new}")
                level, drawn = new, x
            x = self.xs[i + 1]
        parts += [f"h{x - drawn}"] if x > drawn else []
        return f"M{self.xs[0]} {height}{''.join(parts)}V{height}z"

    def _end(self, y: int, bottom: int) -> None:
        plot = self._plot(self.root, y, bottom - y)
        x = min(self._x(self.line.end_s), UNITS - 1)
        ET.SubElement(plot, "path", {"class": "finish", "d": f"M{x} 0V{2 * (bottom - y)}"})

    def _axis(self, y: int) -> None:
        group = ET.SubElement(self.root, "g", {"class": "axis"})
        plot = self._plot(group, y, 5)
        marks = ticks(0.0, self.span_s, 8 if self.span_s < 1000 else 4)  # long labels need room on a phone
        strokes = "".join(f"M{self._x(t)} 0v10" for t in marks)
        ET.SubElement(plot, "path", {"class": "rule", "d": f"M0 0H{UNITS}{strokes}"})
        step = marks[1] - marks[0] if len(marks) > 1 else 1.0
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        _label(group, LABEL_SHARE - 1, y + 17, "seconds", "tick end")
        for t in marks:
            share = t / self.span_s
            anchor = "tick" if share == 0 else "tick end" if share > 0.97 else "tick mid"
            _label(group, LABEL_SHARE + (100 - LABEL_SHARE) * share, y + 17, f"{t:.{decimals}f}", anchor)


def _text(element: ET.Element, text: str) -> None:
    element.text = visible(text)


def _label(parent: ET.Element, x_percent: float, y: int, text: str, kind: str) -> ET.Element:
    label = ET.SubElement(parent, "text", {"class": kind, "x": f"{x_percent:.4g}%", "y": str(y)})
    _text(label, text)
    return label


# -------------------------------------------------------------------- dot plot


@dataclass(frozen=True, slots=True)
class DotRow:
    """The runs of one configuration.

    Attributes:
        label: the configuration. values: (objective, confirming, disturbed) of each run that gave one.
        middle: their median, None without values. failed: runs that gave none. chosen: the answer.
    """

    label: str
    values: tuple[tuple[float, bool, bool], ...]
    middle: float | None
    failed: int = 0
    chosen: bool = False


def dots_svg(rows: Sequence[DotRow], *, title: str) -> str:
    """A dot per run, a row per configuration; empty if no run gave an objective."""
    numbers = [v for row in rows for v, _, _ in row.values if math.isfinite(v)]
    if not numbers:
        return ""
    rows = rows[:MAX_DOT_ROWS]
    scale = _Scale(min(numbers), max(numbers))
    root = ET.Element("svg", {"class": "dots", "role": "img", "aria-labelledby": "dots-title dots-desc"})
    _text(ET.SubElement(root, "title", {"id": "dots-title"}), title)
    words = (
        f"{row.label}: {', '.join(figure(v) for v, _, _ in row.values) or 'no result'}"
        f"{f', {row.failed} without a result' if row.failed else ''}."
        for row in rows
    )
    _text(ET.SubElement(root, "desc", {"id": "dots-desc"}), " ".join(words))
    y = 0
    for row in rows:
        _dot_row(root, row, y, scale)
        y += DOT_ROW_PX
    ET.SubElement(root, "line", {"class": "rule", "x1": "1%", "x2": "99%", "y1": str(y), "y2": str(y)})
    for value in scale.ticks:
        x = scale.percent(value)
        ET.SubElement(
            root, "line", {"class": "rule", "x1": f"{x:.4g}%", "x2": f"{x:.4g}%", "y1": str(y), "y2": str(y + 5)}
        )
        _label(root, x, y + 18, figure(value, 2), "tick" if x < 4 else "tick end" if x > 96 else "tick mid")
    root.set("height", str(y + AXIS_PX))
    return ET.tostring(root, encoding="unicode")


def _dot_row(root: ET.Element, row: DotRow, y: int, scale: _Scale) -> None:
    group = ET.SubElement(root, "g", {"class": "row chosen" if row.chosen else "row"})
    failed = f" ({row.failed} without a result)" if row.failed else ""
    _label(group, 1, y + 14, f"{visible(row.label, 90)}{failed}", "name strong" if row.chosen else "name")
    at = str(y + 26)
    ET.SubElement(group, "line", {"class": "grid", "x1": "1%", "x2": "99%", "y1": at, "y2": at})
    for value, confirming, disturbed in row.values:
        if not math.isfinite(value):
            continue
        kind = "dot disturbed" if disturbed else "dot confirm" if confirming else "dot"
        dot = ET.SubElement(
            group, "circle", {"class": kind, "cx": f"{scale.percent(value):.4g}%", "cy": at, "r": "4.5"}
        )
        _text(ET.SubElement(dot, "title"), f"{figure(value, 4)}{' (disturbed)' if disturbed else ''}")
    if row.middle is not None and math.isfinite(row.middle):
        x = f"{scale.percent(row.middle):.4g}%"
        line = {"class": "median", "x1": x, "x2": x, "y1": str(y + 18), "y2": str(y + 34)}
        ET.SubElement(group, "line", line)


class _Scale:
    """Objectives to percent of the width: from zero, or logarithmic where that would crush the small ones."""

    def __init__(self, low: float, high: float) -> None:
        self.log = low > 0 and high / low > 30
        if self.log:
            self.low, self.high = math.log10(low), math.log10(high)
            first, last = math.floor(self.low), math.ceil(self.high)
            self.ticks = [10.0**i for i in range(first, last + 1) if self.low <= i <= self.high]
            self.ticks = self.ticks or [low, high]
        else:
            self.low, self.high = min(0.0, low), max(0.0, high)
            if self.low == self.high:
                self.high = 1.0
            self.ticks = ticks(self.low, self.high)

    def percent(self, value: float) -> float:
        position = math.log10(value) if self.log else value
        return 2.0 + 96.0 * (position - self.low) / (self.high - self.low)
