"""The measurements for GPUs, gone through on the CPU: only that they work, no figure."""

import tomllib

from benchmarks.gpu.run_all import HERE, Bench


def test_everything_is_measured_in_one_call() -> None:
    parameters = tomllib.loads((HERE / "dry_run.toml").read_text(encoding="utf-8"))
    found = Bench("cpu", parameters).run_all()
    assert all(of["tokens_equal"] for of in found["equality"].values())
    assert set(found["equality"]) == {"float32", "bfloat16"}
    for name in ("decode_1", "decode_4", "prefill"):
        assert found[name]["step_s"] > 0
        assert found[name]["profile"]
    assert set(found["rows"]) == {"pinned_s", "other_s"}
    assert "dry run" in found["device"]


def test_a_dry_run_has_the_same_parameters_as_a_real_one() -> None:
    dry, real = (
        tomllib.loads((HERE / name).read_text(encoding="utf-8"))
        for name in ("dry_run.toml", "parameters.toml")
    )
    assert {key: set(value) for key, value in dry.items() if isinstance(value, dict)} == {
        key: set(value) for key, value in real.items() if isinstance(value, dict)
    }
    assert set(dry) == set(real)
