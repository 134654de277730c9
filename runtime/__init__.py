"""What runs on machines: agent (control), stage (the model), coordinator (clients).

No Django, no Celery, no plotly. helixweb enters only by `runtime.protocol`.
"""
