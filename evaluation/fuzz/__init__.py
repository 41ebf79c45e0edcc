"""Look for texts on which the language breaks: damaged ones, derived ones, random models, and bombs.

For every text: `parse`, `check`, `format` and the JSON form return and never raise; they end in time; every span lies
inside the text; the canonical form reads back to an equal file and is its own canonical form, and so does JSON. A share
of the texts goes on to be composed, compared, annotated, edited and read from a damaged folder. Each case runs in a
child process under a watchdog, so that a hang or a crash is a finding too. A finding is cut down, written to a file,
and can be replayed, by its file or by the number of its case:

  python -m evaluation.fuzz --cases 1000000 --seed 7
  python -m evaluation.fuzz --minutes 30
  python -m evaluation.fuzz --seed 7 --first 1234 --cases 1
  python -m evaluation.fuzz --replay out/fuzz/parse-IndexError-7-1234.lpcl
"""

from evaluation.fuzz.bombs import BOMBS
from evaluation.fuzz.holds import Problem, examine
from evaluation.fuzz.texts import make_case
from evaluation.fuzz.workers import Plan, run, shrink

__all__ = ["BOMBS", "Plan", "Problem", "examine", "make_case", "run", "shrink"]
