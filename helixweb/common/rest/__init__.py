"""Base of all REST collections: ETags, idempotency keys, lists, bulk edits.

The API of every app builds on it; it knows no product noun.
"""
