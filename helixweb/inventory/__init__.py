"""The inventory: clusters, nodes, links, models, profiles, and the tokens that admit machines.

Planning, deployment and monitoring may import it; it imports charts, common and the planner.
"""
