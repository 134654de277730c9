"""The overview, live and recorded metrics, and the playground.

The top of the web apps: it imports deployment, planning and inventory; only `urls` imports it.
"""
