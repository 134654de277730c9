"""ASGI entry point: `uvicorn helixweb.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
application = get_asgi_application()
