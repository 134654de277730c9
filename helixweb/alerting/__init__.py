"""Alerts: rules over data of the apps below, notification channels, and their deliveries.

Nothing below imports it; the demo and the URL map may.
"""
