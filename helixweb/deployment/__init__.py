"""Plans at work: deployments, what every node shall run and does run, and the doors by which agents
and the coordinator dial in. `monitoring` may import it; it imports planning and inventory.
"""
