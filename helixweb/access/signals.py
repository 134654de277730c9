"""Signals to the apps above, which this one must not import."""

from django.dispatch import Signal

# A user's roles have changed; sent in the transaction that changes them, without arguments.
rights_changed = Signal()
