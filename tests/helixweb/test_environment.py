"""Settings from the environment: what is wrong is refused by name, with what would be right."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from helixweb import environment


@pytest.mark.parametrize("value", ["host:6379", "http://host", "redis", "://", "my://u:hunter2@h"])
def test_another_url_is_refused_with_an_example(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("STORE_URL", value)
    known = {"schemes": ("redis",), "example": "redis://x"}
    with pytest.raises(ImproperlyConfigured, match=r"STORE_URL .*like redis://x") as refusal:
        environment.url("STORE_URL", **known)
    assert "hunter2" not in str(refusal.value)
    for right in ("redis://host:1/0", ""):
        monkeypatch.setenv("STORE_URL", right)
        assert environment.url("STORE_URL", **known) == right


def test_a_choice_in_small_letters_is_one_of_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVEL", "debug")
    assert environment.choice("LEVEL", "INFO", choices=("DEBUG", "INFO")) == "DEBUG"
    monkeypatch.setenv("LEVEL", "loud")
    with pytest.raises(ImproperlyConfigured, match="LEVEL is 'LOUD'; use one of DEBUG, INFO"):
        environment.choice("LEVEL", "INFO", choices=("DEBUG", "INFO"))


def test_a_folder_is_made_or_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = environment.folder("FOLDER", tmp_path / "a" / "b")
    assert made.is_dir()
    assert made.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    monkeypatch.setenv("FOLDER", str(tmp_path / "file" / "c"))
    with pytest.raises(ImproperlyConfigured, match=r"FOLDER is .*file/c.*choose another"):
        environment.folder("FOLDER", tmp_path)


def test_a_number_is_one_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.number("MOST", 100, least=1, most=500) == 100
    for value in ("0", "501", "many", "-1", "1.5", "²", "9" * 30):
        monkeypatch.setenv("MOST", value)
        with pytest.raises(ImproperlyConfigured, match=r"MOST is .*give a number from 1 to 500"):
            environment.number("MOST", 100, least=1, most=500)


def test_networks_are_read_and_a_host_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETWORKS", "10.1.0.0/16, fd00::/8")
    assert [str(one) for one in environment.networks("NETWORKS")] == ["10.1.0.0/16", "fd00::/8"]
    monkeypatch.setenv("NETWORKS", "10.1.0.1/16")
    with pytest.raises(ImproperlyConfigured, match=r"NETWORKS: .*give networks like"):
        environment.networks("NETWORKS")
