"""Limit and offset, 50 at a time, at most 1000."""

from rest_framework.pagination import LimitOffsetPagination


class Pages(LimitOffsetPagination):
    default_limit = 50
    max_limit = 1000
