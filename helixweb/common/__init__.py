"""Shared base of all apps: auth, event outbox, problem documents, leases, page shell.

Knows no product noun. Every app may import it; it imports only settings and celery.
"""
