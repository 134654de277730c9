"""Numbers that cannot be are refused on every command line of the runtime, with the value."""

import argparse
from collections.abc import Callable

import pytest

from runtime.command_numbers import size_bytes
from runtime.coordinator.options import parse_options as parse_coordinator
from runtime.profiler.main import main as profile
from runtime.whole_model.main import parse_options as parse_serve

COORDINATOR = ["--server", "http://helix.example.org", "--data-dir", "x"]
SERVE = ["--checkpoint", "x"]
PROFILE = ["--checkpoint", "x"]


@pytest.mark.parametrize(
    ("parse", "needed", "option", "value", "told"),
    [
        (parse_coordinator, COORDINATOR, "--port", "http", "'http' is no port; give 0 to 65535"),
        (parse_coordinator, COORDINATOR, "--data-port", "65536", "'65536' is no port"),
        (parse_coordinator, COORDINATOR, "--port", "८१२३", "'८१२३' is no port; give 0 to"),
        (parse_coordinator, COORDINATOR, "--traces-per-s", "२", "'२' requests a second cannot"),
        (parse_coordinator, COORDINATOR, "--advertise", "h:७१२३", "'h:७१२३' is no address"),
        (parse_coordinator, COORDINATOR, "--request-timeout", "३", "'३' is not a number of"),
        (parse_serve, SERVE, "--memory-budget-bytes", "२४GB", "'२४GB' is no size above 0"),
        (parse_serve, SERVE, "--relative-speed", ".५", "'.५' is not a number above 0"),
        (profile, PROFILE, "--threads", "९" * 5000, "is not a whole number above 0"),
        (parse_coordinator, COORDINATOR, "--metrics-port", "-1", "'-1' is no port"),
        (
            parse_coordinator, COORDINATOR, "--request-timeout", "soon",
            "'soon' is not a number of seconds above 0",
        ),
        (parse_coordinator, COORDINATOR, "--migrate-after", "0", "'0' is not a number of seconds"),
        (parse_coordinator, COORDINATOR, "--shutdown-grace", "inf", "'inf' is not a number of"),
        (parse_coordinator, COORDINATOR, "--traces-per-s", "all", "'all' requests a second cannot"),
        (parse_coordinator, COORDINATOR, "--traces-per-s", "nan", "'nan' requests a second cannot"),
        (
            parse_coordinator, COORDINATOR, "--trusted-proxies", "10.0.0.1/8",
            "10.0.0.1/8 has host bits set; give networks like 127.0.0.1,192.0.2.0/28",
        ),
        (parse_serve, SERVE, "--port", "70000", "'70000' is no port; give 0 to 65535"),
        (parse_serve, SERVE, "--memory-budget-bytes", "0", "'0' is no size above 0; give bytes"),
        (parse_serve, SERVE, "--memory-budget-bytes", "24Gb/s", "'24Gb/s' is no size above 0"),
        (parse_serve, SERVE, "--relative-speed", "2", "'2' is not a number above 0 and up to 1"),
        (parse_serve, SERVE, "--request-timeout", "nan", "'nan' is not a number of seconds"),
        (parse_serve, SERVE, "--shutdown-grace", "-1", "'-1' is not a number of seconds above 0"),
        (profile, PROFILE, "--threads", "0", "'0' is not a whole number above 0"),
        (profile, PROFILE, "--relative-speed", "-1", "'-1' is not a number above 0 and up to 1"),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_is_refused_with_its_value_and_what_would_be_right(
    capsys: pytest.CaptureFixture[str],
    parse: Callable[[list[str]], object],
    needed: list[str],
    option: str,
    value: str,
    told: str,
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*needed, f"{option}={value}"])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("220000000", 220_000_000),
        ("220M", 220_000_000),
        ("220 MB", 220_000_000),
        ("0.5G", 500_000_000),
        ("24GiB", 24 << 30),
        ("1.5Ti", 3 << 39),
        ("7b", 7),
    ],
)
def test_sizes_may_have_a_unit(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1e9", "24iB", "0K", "24GiBs", "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size above 0; give bytes, or"):
        size_bytes(text)
