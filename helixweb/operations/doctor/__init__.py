"""What may be wrong with a site on this machine, each with its remedy. Reads only.

`findings` says what a finding is; `machine`, `services`, `reach` and `members` look for them.
"""
