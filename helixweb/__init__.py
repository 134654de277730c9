"""The web: remembers, lets people act, and draws. Django, DRF, Celery, plotly.

Layers: monitoring > deployment > planning > inventory > charts | common. Enters the runtime only by
`runtime.protocol`; never imports torch; never in the path of a token.
"""
