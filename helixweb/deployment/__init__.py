"""Plans at work: deployments, what every node must run and does run, and the REST API of agents
and coordinators. `monitoring` may import it; it imports planning and inventory.
"""
