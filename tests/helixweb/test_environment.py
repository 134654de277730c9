"""Settings from the environment: what is wrong is refused by name, with what would be right."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from helixweb import environment


@pytest.mark.parametrize("value", ["host:6379", "http://host", "redis", "://", "my://u:hunter2@h"])
def test_a_wrong_url_is_refused_by_example(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("STORE_URL", value)
    known = {"schemes": ("redis",), "example": "redis://x"}
    with pytest.raises(ImproperlyConfigured, match=r"STORE_URL .*like redis://x") as refusal:
        environment.url("STORE_URL", **known)
    assert "hunter2" not in str(refusal.value)
    for right in ("redis://host:1/0", ""):
        monkeypatch.setenv("STORE_URL", right)
        assert environment.url("STORE_URL", **known) == right


def level(name: str) -> str:
    return environment.choice(name, "INFO", choices=("DEBUG", "INFO"))


def most(name: str) -> int:
    return environment.number(name, 100, least=1, most=500)


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (level, "loud", "X is 'LOUD'; use one of DEBUG, INFO"),
        (environment.networks, "10.1.0.1/16", r"X: .*give networks like"),
        *(
            (most, value, r"X is .*give a number from 1 to 500")
            for value in ("0", "501", "many", "-1", "1.5", "²", "9" * 30)
        ),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[str], object], value: str, said: str
) -> None:
    monkeypatch.setenv("X", value)
    with pytest.raises(ImproperlyConfigured, match=said):
        read("X")


def test_right_values_and_what_counts_without_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (level("X"), most("X")) == ("INFO", 100)
    monkeypatch.setenv("X", "debug")
    assert level("X") == "DEBUG", "also in small letters"
    monkeypatch.setenv("X", "10.1.0.0/16, fd00::/8")
    assert [str(one) for one in environment.networks("X")] == ["10.1.0.0/16", "fd00::/8"]


def test_a_folder_is_made_or_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = environment.folder("FOLDER", tmp_path / "a" / "b")
    assert made.is_dir()
    assert made.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    monkeypatch.setenv("FOLDER", str(tmp_path / "file" / "c"))
    with pytest.raises(ImproperlyConfigured, match=r"FOLDER is .*file/c.*choose another"):
        environment.folder("FOLDER", tmp_path)
