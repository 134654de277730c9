"""The product's settings, with data in a temporary folder, so that tests leave the checkout alone.

pytest loads them by `--ds` in pyproject.toml. Processes that tests start load the product's own.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_worker = os.environ.get("PYTEST_XDIST_WORKER")
if _worker:  # its parent has set HELIX_DATA_DIR to a temporary folder, and removes it
    _folder = Path(os.environ["HELIX_DATA_DIR"], _worker)
    _folder.mkdir(exist_ok=True)
else:
    _folder = Path(tempfile.mkdtemp(prefix="helixweb-tests-"))
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ["HELIX_DATA_DIR"] = str(_folder)
os.environ["DJANGO_SETTINGS_MODULE"] = "helixweb.settings"
os.environ.pop("REDIS_URL", None)  # never the queue of a real site

from helixweb.settings import *  # noqa: E402, F403
from helixweb.settings import DATABASES  # noqa: E402

if _template := os.environ.get("HELIX_TEST_TEMPLATE"):  # set by tests.on_postgres
    DATABASES["default"]["TEST"] = {"TEMPLATE": _template}
