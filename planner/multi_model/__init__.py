"""Several models on one cluster: which nodes serve which, and each one's plan.

The use case is `plan_models.py`.
"""
