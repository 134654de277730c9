"""Plan runs and the plans they find: a problem snapshot in, a checked placement and flow out.

Imports inventory and charts. Deployment and monitoring may import it.
"""
