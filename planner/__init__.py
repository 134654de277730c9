"""Placement of an LLM over mixed GPUs: the nouns and the mathematics, usable from a shell.

Pure Python: no Django, no Celery, no plotly, no torch. Everyone may import it;
runtime takes only `planner.domain`, `planner.routers` and `planner.latency_model`.
"""
