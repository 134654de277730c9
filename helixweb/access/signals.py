"""What apps above are told, so that this one need not know them."""

from django.dispatch import Signal

# A user's roles have changed; sent in the transaction that changes them, without arguments.
rights_changed = Signal()
