"""Runs of applications that never ran, and the sessions that believe them."""

from functools import cache

from lpcl.corpus import load, shipped
from lpcl.machine import Facts
from syspilot.app import Application
from syspilot.records import InsideReport, ProcessTrace, Reading, Run, ThreadTrace, Usage
from syspilot.session import Options, Session

OPENBLAS = "/site/numpy.libs/libscipy_openblas64_-fdde5778.so"
LIBGOMP = "/site/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0"
TEAM, WORKERS = "libgomp.team", "openblas.workers"
SAMPLES = tuple(0.1 * n for n in range(1, 21))  # seconds


@cache
def entries():
    """The shipped contracts of the two runtimes that the made-up applications load."""
    return tuple(e for e in load([shipped()])[0] if e.contract.name in {"libgomp", "openblas"})


def machine(cores=2, quota=None):
    return Facts(
        logical=cores,
        online=cores,
        affinity=cores,
        physical=cores,
        quota_cores=quota,
        memory_bytes=8 << 30,
        memory_limit_bytes=None,
        numa_nodes=1,
    )


def process(pid, libraries=(), *, parent=1, first_s=0.0, last_s=2.0):
    return ProcessTrace(
        pid=pid,
        parent=parent,
        exe="python",
        cmdline="python app.py",
        libraries=tuple(libraries),
        first_s=first_s,
        last_s=last_s,
    )


def threads(pid, count, *, running=0.5):
    """Threads that want a CPU all the time, and get one for this share of it; the first is the main thread."""
    steps = tuple((n, 0.1 * running, 0.1 * (1 - running)) for n in range(len(SAMPLES)))
    return tuple(
        ThreadTrace(
            pid=pid,
            tid=pid + n,
            name="python",
            parent=1,
            first_s=0.0,
            last_s=2.0,
            cpu_s=sum(s[1] for s in steps),
            delay_s=sum(s[2] for s in steps),
            steps=steps,
        )
        for n in range(count)
    )


def inside(pid, *, parent=1, libraries=(), pool_size=None, team_size=None, threads_at_fork=None):
    """What the hook saw in a process; with `threads_at_fork` it was forked from a parent with so many threads."""
    sizes = {"openblas.pool_size": pool_size, "libgomp.team_size": team_size}
    return InsideReport(
        pid=pid,
        parent=parent,
        argv=("app.py",),
        modules={},
        readings=tuple(Reading(pid=pid, signal=k, value=v) for k, v in sizes.items() if v is not None),
        libraries=tuple(libraries),
        forked=threads_at_fork is not None,
        parent_threads_at_fork=threads_at_fork,
        executable="/usr/bin/python",
    )


def run(processes=(), traces=(), reports=(), **changes):
    return Run(
        **{
            "status": "ok",
            "wall_s": SAMPLES[-1],
            "usage": Usage(user_s=sum(t.cpu_s for t in traces)),
            "processes": tuple(processes),
            "threads": tuple(traces),
            "inside": tuple(reports),
            "sample_times_s": SAMPLES,
            **changes,
        }
    )


class MadeUp(Session):
    """A session whose runs come from a function of (configuration, number of the run)."""

    def believe(self, answer):
        self.answer = answer
        return self

    def measure(self, configuration, phase):
        result = self.answer(dict(configuration), len(self.runs))
        result = result.model_copy(update={"configuration": dict(configuration)})
        self.runs.append((phase, result))
        return result


def session(answer, *, tunables=(), environ=None, on=None, contracts=None, **options):
    application = Application(("python", "app.py"), tuple(tunables))
    contracts = entries() if contracts is None else contracts
    return MadeUp(application, contracts, on or machine(), environ or {}, Options(**options)).believe(answer)


def situation(result, *, environ=None, on=None):
    """What the tuner makes of a run, on the way that it takes itself."""
    return session(lambda *_: result, environ=environ, on=on).profile()
