"""How a process of any role belongs to its cluster: identity, joining, hardware, data address.

Agents and coordinators use it; torch-free.
"""
