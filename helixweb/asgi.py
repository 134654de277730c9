"""ASGI entry point: `uvicorn helixweb.asgi:application`."""

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
# WhiteNoise gives files in pieces and Django reads them whole under ASGI; the largest has 5 MB.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")
application = get_asgi_application()
