"""Alerts: rules over what the apps below know, who is told, and what became of telling them.

Nothing below imports it; the demo and the URL map may.
"""
