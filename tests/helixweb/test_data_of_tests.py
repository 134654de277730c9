"""Tests have a data folder of their own: a site that runs from the checkout never sees them."""

import os
import tempfile
from pathlib import Path

from django.conf import settings

from helixweb.celery import app

TEMPORARY = Path(tempfile.gettempdir()).resolve()


def test_data_of_tests_are_in_a_temporary_folder() -> None:
    assert TEMPORARY in Path(settings.DATA_DIR).resolve().parents
    assert Path(os.environ["HELIX_DATA_DIR"]) == Path(settings.DATA_DIR)


def test_the_queue_of_tests_is_in_their_folder() -> None:
    folder = Path(app.conf.broker_transport_options["data_folder_out"])
    assert Path(settings.DATA_DIR) in folder.parents
