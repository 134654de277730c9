"""What apps above are told, so that this one need not know them."""

from django.dispatch import Signal

# Somebody's roles are others now; sent in the transaction that makes them so, without arguments.
rights_changed = Signal()
