"""ASGI entry point: `uvicorn helixweb.asgi:application`."""

import warnings

from helixweb.django_loading import django_loaded

# WhiteNoise gives files in pieces and Django reads them whole under ASGI; the largest has 5 MB.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")
with django_loaded():
    from helixweb.common.rest.handler import Application

    application = Application()  # loads middleware and all addresses
