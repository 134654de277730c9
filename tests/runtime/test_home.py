"""Users without a home folder, as containers with any user id have them."""

import os
from pathlib import Path

import pytest

from helixweb.command_line import settings_file
from helixweb.places import default_data_dir
from runtime.agent import join, vllm_environment

NO_USERS_ID = 2**31 - 7


def test_programs_of_a_user_without_a_home_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: NO_USERS_ID)
    assert settings_file.path_of({}) == Path("/.config/helixweb/config.toml")
    assert join.default_data_dir({}) == Path("/.local/state/helix-agent")
    assert vllm_environment.user_dir({}).is_relative_to("/.local/share")
    assert default_data_dir({}, above=tmp_path) == Path("/.local/state/helixweb")
