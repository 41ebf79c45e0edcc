"""The report: what it says, that it is one harmless file, and that it stays small."""

import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from lpcl.corpus import load, shipped
from lpcl.machine import Facts, facts
from syspilot.app import Application
from syspilot.charts import figure, ticks, visible
from syspilot.decision import ClauseSeen, Conflict, Decision, HazardSeen, LibrarySeen, Sample, Trial
from syspilot.records import Disturbance, ProcessTrace, Run, ThreadTrace, Usage
from syspilot.report import render
from syspilot.session import Options, Session
from syspilot.timeline import timeline
from syspilot.tune import doctor, tune
from syspilot.verify import SettingSeen

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cluster_and_project.py"
HOSTILE = "<script>alert('x')</script>\"&<b>é𝔘\u202e\x1b[31m\udc80\x00</svg>-->"
SETTING = {"OPENBLAS_NUM_THREADS": "1"}
SECTIONS = ["settings", "conflicts", "timeline", "pools", "libraries", "trials", "machine", "reproduce", "notes"]


# --------------------------------------------------------------------- records


def machine(**changes):
    values = {
        "logical": 4,
        "online": 4,
        "affinity": 2,
        "physical": 2,
        "quota_cores": None,
        "memory_bytes": 8 << 30,
        "memory_limit_bytes": None,
        "numa_nodes": 1,
        "schedstat": True,
    }
    return Facts(**(values | changes))


def thread(tid, steps=(), *, pid=100, name="python", first_s=0.0, last_s=2.0):
    return ThreadTrace(
        pid=pid,
        tid=tid,
        name=name,
        parent=1,
        first_s=first_s,
        last_s=last_s,
        cpu_s=sum(s[1] for s in steps),
        delay_s=sum(s[2] for s in steps),
        steps=tuple(steps),
    )


def process(pid=100, **changes):
    values = {"parent": 1, "exe": "python3.11", "cmdline": "python app.py", "started": "root", "last_s": 2.0}
    return ProcessTrace(pid=pid, **(values | changes))


def run(threads=(), times=(0.5, 1.0, 1.5, 2.0), *, processes=None, **changes):
    values = {"status": "ok", "wall_s": 2.0, "usage": Usage(user_s=2.0)}
    processes = (process(),) if processes is None else processes
    return Run(threads=tuple(threads), sample_times_s=tuple(times), processes=processes, **(values | changes))


def trial(index, configuration, objective, **changes):
    values = {
        "phase": "confirm",
        "status": "ok",
        "cause": "",
        "wall_s": 2.0,
        "cpu_s": 3.0,
        "run_delay_s": 0.5,
        "involuntary": 40,
        "disturbed": False,
    }
    return Trial(index=index, configuration=configuration, objective=objective, **(values | changes))


def decision(**changes):
    values = {
        "mode": "tune",
        "command": ("python", "app.py"),
        "objective": "wall_s",
        "maximise": False,
        "machine": machine(),
        "libraries": (),
        "uncovered": (),
        "pools": (),
        "conflicts": (),
        "hazards": (),
        "configuration": {},
        "settings": (),
        "default": Sample(median=2.0, values=(2.0, 2.1), cv=0.03, n=2),
        "best": Sample(median=2.0, values=(2.0, 2.1), cv=0.03, n=2),
        "ratio": None,
        "ci95": None,
        "pairs": 0,
        "improved": False,
        "runs": 2,
        "seconds_spent": 4.0,
        "trials": (),
        "reason": "leave it as it is: no conflict between pools is predicted or seen",
    }
    return Decision(**(values | changes))


def gain(**changes):
    trials = [trial(1, {}, 2.0, phase="profile"), trial(2, SETTING, 0.5, phase="screen", run_delay_s=0.01)]
    trials += [trial(3, {}, 2.1), trial(4, SETTING, 0.5), trial(5, SETTING, 0.6), trial(6, {}, 2.0, disturbed=True)]
    clause = ClauseSeen(
        contract="openblas", clause="demand workers", trust="reviewed", evidence=("src.c:12", "src.c:40")
    )
    values = {
        "configuration": SETTING,
        "settings": (
            SettingSeen(
                name="OPENBLAS_NUM_THREADS",
                value="1",
                affects=("openblas.workers",),
                in_effect="yes",
                how_seen="openblas.pool_size reads 1, expected 1; once more",
            ),
        ),
        "conflicts": (
            conflict("two_spinning_pools", "confirmed", (clause,)),
            conflict("crowded_pool", "refuted", (clause,)),
        ),
        "best": Sample(median=0.5, values=(0.5, 0.5, 0.6), cv=0.11, n=3),
        "ratio": 3.81,
        "ci95": (3.1, 4.7),
        "pairs": 2,
        "improved": True,
        "trials": tuple(trials),
        "runs": 6,
        "seconds_spent": 7.75,
        "reason": "better than the default in 2 fresh interleaved pairs",
    }
    return decision(**(values | changes))


def conflict(kind, verdict, clauses=()):
    return Conflict(
        id=f"{kind}:a.b",
        kind=kind,
        claim=f"the claim of {kind}",
        pools=("openblas.workers", "libgomp.team"),
        verdict=verdict,
        strength=0.7,
        clauses=tuple(clauses),
        predicts=("CPU seconds fall",),
        observed={"cores": 2},
        remedy=SETTING,
        figures={"objective_ratio": 4.0, "cpu_seconds_ratio": 1.0, "default_runs": 3, "remedy_runs": 3},
    )


def two_runs():
    busy = [(i, 0.3, 0.2) for i in range(4)]
    before = run([thread(100, [(i, 0.5, 0.0) for i in range(4)]), thread(101, busy), thread(102, busy)])
    after = run(
        [thread(100, [(0, 0.5, 0.0)], last_s=0.5)], (0.25, 0.5), wall_s=0.5, configuration=SETTING, processes=()
    )
    return before, after


# --------------------------------------------------------------------- reading


def page(*arguments):
    """The parsed report, after the checks that hold for every report."""
    html = render(*arguments)
    html.encode("utf-8")
    soup = BeautifulSoup(html, "html.parser")
    assert html.startswith("<!DOCTYPE html>")
    assert soup.html["lang"] == "en"
    assert not soup.find_all(["script", "link", "iframe", "img", "object", "embed", "base", "form", "image", "use"])
    policy = soup.find("meta", attrs={"http-equiv": "Content-Security-Policy"})["content"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert "script-src" not in policy
    for tag in soup.find_all(True):
        for name, value in tag.attrs.items():
            assert not name.startswith("on"), (tag.name, name)
            assert name not in {"src", "style", "srcdoc", "action"}, (tag.name, name)
            assert name != "href" or value.startswith("#"), value
            assert "http:" not in str(value)
            assert "https:" not in str(value)
    style = soup.style.string
    assert "url(" not in style
    assert "@import" not in style
    ids = [tag["id"] for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    for tag in soup.find_all(attrs={"aria-labelledby": True}):
        assert all(soup.find(id=name).get_text(strip=True) for name in tag["aria-labelledby"].split())
    for link in soup.find_all("a"):
        assert soup.find(id=link["href"][1:])
    drawings = drawings_of(html)
    assert len(drawings) == len(soup.select("svg.timeline, svg.dots"))
    for drawing in drawings:
        ET.fromstring(drawing)
    for table in soup.find_all("table"):
        columns = len(table.thead.find_all("th"))
        assert {len(row.find_all(["td", "th"], recursive=False)) for row in table.tbody.find_all("tr")} == {columns}
    assert not re.search(r"\b(None|nan|Undefined)\b", soup.body.get_text(" "))
    return soup


def drawings_of(html):
    """The text of each drawing; `svg` elements nest."""
    found, depth, start = [], 0, 0
    for tag in re.finditer(r"<svg\b[^>]*>|</svg>", html):
        if tag[0] == "</svg>":
            depth -= 1
            if depth == 0 and html.startswith(('<svg class="timeline"', '<svg class="dots"'), start):
                found.append(html[start : tag.end()])
        else:
            start = tag.start() if depth == 0 else start
            depth += 1
    assert depth == 0
    return found


def words(tag):
    return " ".join(tag.get_text(" ").split())


def lanes(soup):
    return [words(g.find("title")) for g in soup.select("svg.timeline g.lane")]


# ----------------------------------------------------------------------- tests


@pytest.mark.app
def test_a_real_session(tmp_path):
    entries, _ = load([shipped()])
    application = Application((sys.executable, str(EXAMPLE), "--rounds", "4"))
    options = Options(metric=re.compile(r"seconds ([0-9.]+)"), max_runs=5, cwd=tmp_path)
    session = Session(application, entries, facts(), dict(os.environ), options)
    result = tune(session)
    default = session.of({})[-1]
    best = session.of(result.configuration)[-1] if result.configuration else None
    soup = page(result, default, best)
    assert all(soup.find(id=name) for name in SECTIONS if name != "settings" or result.configuration)
    assert str(EXAMPLE) in words(soup.header)
    assert len(soup.select("svg.timeline")) == 1 + bool(result.configuration)
    drawn = len(default.threads) + (len(best.threads) if best else 0)
    assert len(lanes(soup)) == drawn
    assert len(soup.select("#trials tbody tr")) == len(session.runs) == result.runs
    assert {p["name"] for p in result.pools} == {words(x) for x in soup.select("#pools tbody th")}
    libraries = words(soup.find(id="libraries"))
    assert all(x.name in libraries for x in result.libraries)
    assert ("faster: set" in words(soup.h1)) == result.improved
    # The picture loses no time: the columns add up to what the threads used.
    line = timeline(default)
    widths = [b - a for a, b in zip(line.edges_s, line.edges_s[1:], strict=False)]
    ran = sum(r * dt for r, dt in zip(line.running, widths, strict=True))
    assert ran == pytest.approx(sum(t.cpu_s for t in default.threads), rel=0.1)


@pytest.mark.app
def test_a_real_diagnosis_with_nothing_to_find(tmp_path):
    script = tmp_path / "app.py"
    script.write_text("print(sum(range(10**6)))\n")
    session = Session(Application((sys.executable, str(script))), [], facts(), dict(os.environ), Options(cwd=tmp_path))
    result = doctor(session)
    soup = page(result, session.runs[0][1], None)
    assert words(soup.h1) == "Leave it as it is"
    assert len(soup.select("svg.timeline")) == 1
    assert soup.find(id="settings") is None


def test_the_answer_comes_first():
    soup = page(gain(), *two_runs())
    assert words(soup.h1) == "3.8x faster: set OPENBLAS_NUM_THREADS=1"
    assert words(soup.title) == "3.8x faster: set OPENBLAS_NUM_THREADS=1 - syspilot"
    shown = {words(d.dt): words(d.dd) for d in soup.select(".facts div")}
    assert shown == {
        "95 % interval": "3.10x to 4.70x",
        "median objective": "2.00 → 0.500 s",
        "fresh interleaved pairs": "2",
        "runs of the application": "6",
        "time spent running it": "7.75 s",
    }
    assert [s["id"] for s in soup.find_all("section")] == SECTIONS
    mark = soup.select_one("#settings .mark")
    assert (mark["class"], words(mark)) == (["mark", "yes"], "in effect")
    assert [words(x) for x in soup.select("#settings li")] == ["openblas.pool_size reads 1, expected 1", "once more"]


def test_what_a_setting_did_not_do_is_said():
    setting = gain().settings[0].model_copy(update={"in_effect": "no", "how_seen": "reads 4, expected 1"})
    soup = page(gain(settings=(setting,)), *two_runs())
    assert words(soup.select_one("#settings .mark")) == "not in effect"


def test_disturbance_is_said_at_the_top_and_at_the_run():
    before, after = two_runs()
    before = before.model_copy(update={"disturbance": Disturbance(others_share=0.3, steal_share=0.12)})
    soup = page(gain(), before, after)
    assert "1 of 6 runs were disturbed" in words(soup.header)
    captions = [words(c) for c in soup.select("figcaption")]
    assert ["Others took 42 % of the machine" in c for c in captions] == [True, False]
    assert "were disturbed" not in words(page(decision(), None, None).header)


def test_conflicts_with_figures_and_clauses():
    soup = page(gain(), *two_runs())
    [article] = soup.select("article.conflict")
    rows = [[words(c) for c in row.find_all(["th", "td"])] for row in article.select("table.figures tbody tr")]
    assert rows[0] == ["objective", "2.00", "0.500", "4.0x less"]
    assert rows[3] == ["waiting for a CPU, s", "0.500", "0.500", "1.0x less"]
    assert rows[-1] == ["runs", "3", "3", ""]
    assert "reviewed" in words(article)
    assert [words(x) for x in article.select("ul.mono li")] == ["src.c:12", "src.c:40"]
    assert "refuted" in words(soup.select_one("#other-conflicts"))


def test_figures_without_trials_are_the_recorded_ratios():
    soup = page(gain(trials=()), None, None)
    rows = [words(row) for row in soup.select("table.figures tbody tr")]
    assert rows == ["objective — — 4.0x less", "cpu seconds — — 1.0x less"]
    assert soup.select_one("svg.dots") is None
    assert "No run was kept to draw" in words(soup.find(id="timeline"))


def test_a_hazard_is_announced_at_the_top():
    hazard = HazardSeen(
        id="fork_after_use:libgomp.team",
        kind="fork_after_use",
        claim="2 processes forked after use",
        consequence="hang",
        remedies=("start workers with spawn",),
        clauses=(),
    )
    soup = page(gain(hazards=(hazard,)), *two_runs())
    assert "1 hazard" in words(soup.header.select_one(".alarm"))
    assert "start workers with spawn" in words(soup.find(id="hazards"))


def test_diagnosis_with_a_confirmed_conflict():
    found = gain(mode="doctor", configuration={}, settings=(), ratio=None, ci95=None, improved=False, reason="why not")
    soup = page(found, two_runs()[0], None)
    assert words(soup.h1) == "1 conflict confirmed: try OPENBLAS_NUM_THREADS=1"
    assert "4.0x better" in words(soup.select_one(".why"))
    undecided = found.model_copy(update={"conflicts": (conflict("crowded_pool", "undecided"),)})
    assert words(page(undecided, None, None).h1) == "1 possible conflict, none confirmed"


def test_nothing_to_gain():
    soup = page(decision(), two_runs()[0], two_runs()[0])
    assert words(soup.h1) == "Leave it as it is"
    assert words(soup.select_one(".why")) == "No conflict between pools is predicted or seen."
    assert len(soup.select("svg.timeline")) == 1
    assert words(soup.select_one("#timeline h2")) == "Timeline"


def test_interrupted():
    soup = page(gain(ratio=None, ci95=None, pairs=0, improved=False, interrupted=True), *two_runs())
    assert words(soup.h1) == "Best so far, not confirmed: OPENBLAS_NUM_THREADS=1"
    assert "interrupted" in words(soup.find(id="notes"))


@pytest.mark.parametrize(
    ("objective", "maximise", "word"),
    [
        ("wall_s", False, "faster"),
        ("seconds ([0-9.]+)", False, "faster"),
        (r"req/s (\d+)", True, "better"),
        (r"loss (\d+)", False, "better"),
        (r"time (\d+)", True, "better"),
    ],
)
def test_faster_only_where_it_is_a_time(objective, maximise, word):
    soup = page(gain(objective=objective, maximise=maximise), None, None)
    assert words(soup.h1).startswith(f"3.8x {word}: set")


def test_before_and_after_on_one_scale():
    soup = page(gain(), *two_runs())
    first, second = soup.select("svg.timeline")
    ticks_of = [[words(t) for t in svg.select(".axis text")] for svg in (first, second)]
    assert ticks_of[0] == ticks_of[1]
    assert ticks_of[0][:3] == ["seconds", "0.0", "0.5"]
    assert "Both runs have the same scales" in words(soup.find(id="timeline"))
    finish = [svg.select_one("path.finish")["d"] for svg in (first, second)]
    assert [int(re.match(r"M(\d+) ", d)[1]) for d in finish] == [1999, 500]
    assert [words(t) for t in first.select("text.strong")] == ["2 cores"]
    assert lanes(soup) == [
        "main python: ran 2.00 s, waited 0 s, seen from 0 to 2.00 s",
        "101 python: ran 1.20 s, waited 0.800 s (40 % of its runnable time), seen from 0 to 2.00 s",
        "102 python: ran 1.20 s, waited 0.800 s (40 % of its runnable time), seen from 0 to 2.00 s",
        "main python: ran 0.500 s, waited 0 s, seen from 0 to 0.500 s",
    ]
    caption = words(soup.select_one("figcaption"))
    assert "3 threads in 1 process." in caption
    assert "3.0 threads on average" in caption
    assert "on 2 cores" in caption


def test_lane_shapes():
    line = timeline(run([thread(100, [(0, 0.5, 0.0), (2, 0.25, 0.25)])]))
    [lane] = line.lanes
    assert lane.running == (1.0, 0.0, 0.5, 0.0)
    assert lane.waiting == (0.0, 0.0, 0.5, 0.0)
    soup = page(decision(), run([thread(100, [(0, 0.5, 0.0), (2, 0.25, 0.25)])]), None)
    lane = soup.select_one("g.lane")
    # Two units of height per pixel, 500 of width per interval of half a second.
    assert lane.select_one("path.run")["d"] == "M0 26v-26h500v26h500v-13h500v13h500V26z"
    assert lane.select_one("path.wait")["d"] == "M0 26v-26h500v26h500v-26h500v26h500V26z"


def test_a_wait_that_the_kernel_books_late_moves_back():
    line = timeline(run([thread(100, [(3, 0.1, 1.4)])]))
    assert line.lanes[0].waiting == pytest.approx((0.0, 1.0, 1.0, 0.8))
    assert line.lanes[0].running == pytest.approx((0.0, 0.0, 0.0, 0.2))


def test_processes_are_grouped_in_the_order_of_their_start():
    threads = [thread(300, pid=300), thread(201, pid=200), thread(200, pid=200), thread(100)]
    processes = (process(), process(300, first_s=0.1, started="fork"), process(200, first_s=0.2, started="exec"))
    soup = page(decision(), run(threads, processes=processes), None)
    heads = [words(t) for t in soup.select("svg.timeline text.head")][1:]
    assert heads == [
        "python3.11 100, the command: 1 thread",
        "python3.11 300, forked: 1 thread",
        "python3.11 200: 2 threads",
    ]
    assert [x.split(":")[0] for x in lanes(soup)] == ["main python", "main python", "main python", "201 python"]


def test_no_samples():
    soup = page(gain(), run([], ()), run([], (), configuration=SETTING))
    assert soup.select("svg.timeline") == []
    assert words(soup.find(id="timeline")).count("not sampled") == 2


@pytest.mark.parametrize("times", [(1.0,), (0.0, 0.0), (1.0, 0.5, 0.5, 2.0), (5e-324, 1e-300)])
def test_odd_samples(times):
    page(decision(), run([thread(100, [(0, 0.1, 0.1), (1, 0.1, 0.0), (99, 1.0, 1.0), (-1, 1.0, 0.0)])], times), None)


def test_the_machine_without_scheduler_statistics_is_named():
    soup = page(decision(machine=machine(schedstat=False)), two_runs()[0], None)
    assert "no scheduler statistics" in words(soup.find(id="timeline"))
    assert "could not be seen" in words(soup.find(id="notes"))


def test_500_threads_and_2000_samples():
    times = [0.05 * (i + 1) for i in range(2000)]
    threads = [
        thread(100 + n, [(i, 0.05 * ((i * 7 + n) % 10) / 10, 0.002 * (i % 9)) for i in range(n % 3, 2000, 1 + n % 2)])
        for n in range(500)
    ]
    default = run(threads, times, wall_s=100.1)
    best = run(threads, times, wall_s=100.1, configuration=SETTING)
    line = timeline(default)
    assert len(line.edges_s) - 1 <= 300
    assert len(line.lanes) == 41
    widths = [b - a for a, b in zip(line.edges_s, line.edges_s[1:], strict=False)]
    ran = sum(r * dt for r, dt in zip(line.running, widths, strict=True))
    assert ran == pytest.approx(sum(t.cpu_s for t in threads))
    busiest = sorted(threads, key=lambda t: -(t.cpu_s + t.delay_s))[:40]
    assert {x.tid for x in line.lanes} == {t.tid for t in busiest} | {None}
    html = render(gain(), default, best)
    assert len(html.encode()) < 1 << 20
    soup = page(gain(), default, best)
    assert len(lanes(soup)) == 82
    assert lanes(soup)[40].startswith("460 others (sum): ran")
    assert "python3.11 100, the command: 500 threads, 40 shown" in words(soup.select_one("svg.timeline"))


def test_one_more_thread_than_lanes_has_a_lane():
    assert timeline(run([thread(100 + n) for n in range(41)])).others is None
    assert timeline(run([thread(100 + n) for n in range(42)])).others.threads == 2


def test_uneven_samples_are_merged_by_time():
    times = [0.001 * (i + 1) for i in range(1000)] + [1.0 + 0.01 * (i + 1) for i in range(900)]
    line = timeline(run([thread(100, [(i, 0.0001, 0.0) for i in range(1900)])], times))
    assert 250 < len(line.edges_s) - 1 <= 300
    widths = [b - a for a, b in zip(line.edges_s, line.edges_s[1:], strict=False)]
    assert max(widths) < 3 * (10.0 / 300)
    assert sum(r * dt for r, dt in zip(line.running, widths, strict=True)) == pytest.approx(0.19)


def hostile(depth=1):
    text = HOSTILE * depth
    clause = ClauseSeen(contract=text, clause=text, trust=text, evidence=(text, "https://example.org/x"))
    bad = conflict("kind", "confirmed", (clause,)).model_copy(
        update={"claim": text, "remedy": {text: text}, "pools": (text,), "predicts": (text,), "kind": text}
    )
    pool = {"name": text, "amount": None, "idle": text, "awake_s": None, "spins": None, "created": text}
    return gain(
        command=("python", text, "http://example.org/?a=1&b=2"),
        objective=text,
        configuration={text: text},
        settings=(SettingSeen(name=text, value=text, affects=(text,), in_effect="not_read", how_seen=text),),
        conflicts=(bad, bad.model_copy(update={"verdict": "undecided"})),
        hazards=(HazardSeen(id=text, kind=text, claim=text, consequence=text, remedies=(text,), clauses=(clause,)),),
        libraries=(LibrarySeen(name=text, kind=text, version=text, copies=(text,), processes=1, contract=None),),
        uncovered=(text,),
        pools=({**pool, "scope": text, "fork": text},),
        trials=(trial(1, {text: text}, None, phase=text, status="failed", cause=text), trial(2, {text: text}, 1.0)),
        machine=machine(cpu_model=text, kernel=text, sources={"kernel": text}),
        reason=text,
    )


def hostile_run(**changes):
    return run(
        [thread(100, [(0, 0.1, 0.1)], name=HOSTILE), thread(101, name="")],
        processes=(process(exe=HOSTILE, cmdline=HOSTILE),),
        notes=(HOSTILE,),
        **changes,
    )


def test_hostile_text_is_only_text():
    result = hostile()
    soup = page(result, hostile_run(), hostile_run(configuration=result.configuration))
    text = soup.get_text()
    assert soup.find_all("b") == []
    assert text.count("<script>alert('x')</script>\"&<b>é𝔘") > 30
    # What cannot be seen, or turns the direction of writing, is spelled out.
    assert "\\u202e\\x1b[31m\\udc80\\x00" in text
    assert not set(text) & set("\u202e\x1b\udc80\x00")
    assert "http://example.org/?a=1&b=2" in words(soup.header)
    assert any(x.startswith("main <script>alert('x')</scr…: ran") for x in lanes(soup))


def test_very_long_text():
    result = hostile(60)
    html = render(result, hostile_run(), None)
    assert len(html) < 1 << 20
    page(result, hostile_run(), None)


def test_failed_and_disturbed_trials():
    trials = (
        trial(1, {}, 2.0),
        trial(2, SETTING, None, status="timeout", cause="no end within 5 s"),
        trial(3, {}, 3.0, disturbed=True),
        trial(4, {"A": "1"}, 250.0),
    )
    soup = page(decision(trials=trials), None, None)
    rows = [words(r) for r in soup.select("#trials tbody tr")]
    assert rows[1].endswith("timeout : no end within 5 s")
    assert rows[2].endswith("ok disturbed")
    labels = [words(t) for t in soup.select("svg.dots g.row > text")]
    assert labels == ["default", "A=1", "OPENBLAS_NUM_THREADS=1 (1 without a result)"]
    assert len(soup.select("svg.dots circle")) == 3
    assert len(soup.select("svg.dots circle.disturbed")) == 1
    notes = words(soup.find(id="notes"))
    assert "1 of 4 runs were disturbed" in notes
    assert "1 of 4 runs gave no result" in notes


@pytest.mark.parametrize("values", [(0.0, 0.0), (-3.0, 5.0), (1e-9, 1e9), (7.0,), (float("inf"), 1.0)])
def test_dots_of_any_objectives(values):
    trials = tuple(trial(i, {}, v) for i, v in enumerate(values, 1))
    soup = page(decision(trials=trials, objective="x"), None, None)
    for circle in soup.select("svg.dots circle"):
        assert 0 <= float(circle["cx"].rstrip("%")) <= 100


def test_all_trials_failed():
    trials = (trial(1, {}, None, status="failed", cause="exited with code 1"),)
    empty = Sample(median=None, values=(), cv=0.0, n=0)
    soup = page(decision(trials=trials, default=empty, best=empty), run([], (), status="failed"), None)
    assert soup.select_one("svg.dots") is None
    assert "Default: no run gave an objective." in words(soup.find(id="notes"))
    assert "default (failed)" in words(soup.find(id="timeline")).lower()


def test_how_to_reproduce():
    result = gain(
        command=("python", "my app.py", "--workers", "8"),
        configuration={"OMP_NUM_THREADS": "1", "workers": "2"},
        params={"workers": "--workers {}"},
        objective=r"t (\d+)",
        maximise=True,
    )
    shown = [p.get_text() for p in page(result, None, None).select("#reproduce pre")]
    assert shown == [
        "OMP_NUM_THREADS=1 python 'my app.py' --workers 2",
        "syspilot run -- python 'my app.py' --workers 8",
        r"syspilot tune --metric 't (\d+)' --maximise -- python 'my app.py' --workers 8",
    ]
    broken = result.model_copy(update={"params": {"workers": "--workers '{}"}})
    assert "my app.py" in words(page(broken, None, None).find(id="reproduce"))


def contrast(first, second):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_in_light_and_dark():
    style = page(decision(), None, None).style.string
    themes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    ]
    for theme in themes[:2]:
        for ground in ("page", "panel"):
            for text in ("text", "soft", "accent", "warn", "good"):
                assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
            for shape in ("run", "wait"):
                assert contrast(theme[shape], theme[ground]) >= 3, (shape, ground)
        assert contrast(theme["run"], theme["alive"]) >= 3
        assert contrast(theme["wait"], theme["alive"]) >= 3


def test_visible():
    assert visible("a\tb\nc é \U0001d518 —") == "a\tb\nc é \U0001d518 —"
    assert visible("\x1b\u202e\u200b\ud800\r") == "\\x1b\\u202e\\u200b\\ud800\\r"
    assert visible("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.386, "1.39"), (0.0988, "0.0988"), (132.4, "132"), (5e-7, "5e-07"), (float("inf"), "unbounded")],
)
def test_figure(value, text):
    assert figure(value) == text


def test_ticks():
    assert ticks(0, 1.5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4])
    assert ticks(0, 0) == [0]
    assert ticks(-3, 5) == pytest.approx([-3, -2, -1, 0, 1, 2, 3, 4, 5])
