"""Diagnoses problems of a site on this machine, each with its remedy. Reads only.

`findings` defines findings; `machine`, `services`, `reach` and `members` look for them.
"""
