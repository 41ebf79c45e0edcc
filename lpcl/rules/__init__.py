"""The rules of the language, one small function each.

A new rule is a function from a `view.View` to findings, a line in `table.TABLE`, a section of the reference with a bad
and a good example, and a file of cases in the tests. A rule looks at one contract and at nothing else.
"""
