"""Writes `helixweb/client/generated/` from the OpenAPI document of the site.

    python manage.py spectacular --format openapi-json | python -m helixweb.client.generator

Types become TypedDicts, so rows are plain dicts at run time; operations become methods, grouped by
the first word of their path. Nothing else writes there.
"""

from helixweb.client.generator.files import generated_files

__all__ = ["generated_files"]
