"""The planner's shell commands, one file each, and what they share.

Only `planner.__main__` imports them.
"""
