"""`pliant doctor`."""

import pytest
import torch

import pliant
from pliant.cli import doctor, main


@pytest.mark.own_default
def test_everything_is_well(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"pliant:       {pliant.__version__}" in text
    assert f"torch:        {torch.__version__.partition('+')[0]}" in text
    on_gpu = "  GPU:          ok\n" if torch.cuda.is_available() else ""
    assert text.endswith(f"self-test\n  inference:    ok\n  training:     ok\n{on_gpu}")


def test_a_failure_is_shown_and_is_the_exit_status(monkeypatch, capsys):
    def raises():
        raise ValueError("broken")

    tests = {"first": lambda: "it differs", "second": raises, "third": lambda: None}
    monkeypatch.setattr(doctor, "TESTS", tests)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert text.endswith(
        "self-test\n  first:        it differs\n  second:       ValueError: broken\n"
        "  third:        ok\n"
    )


def test_environment(monkeypatch, capsys):
    monkeypatch.setenv("PLIANT_LOGS", "guards")
    main(["doctor"])
    assert "  PLIANT_LOGS:  guards\n" in capsys.readouterr().out


def test_a_cache_that_is_off(monkeypatch, capsys):
    monkeypatch.setenv("PLIANT_CACHE", "0")
    main(["doctor"])
    assert "  state:        turned off\n" in capsys.readouterr().out


def test_long_names_stand_apart_from_their_values(monkeypatch, capsys):
    monkeypatch.setenv("PLIANT_LOGS_JSON_FILE_OF_MINE", "here")
    main(["doctor"])
    assert "  PLIANT_LOGS_JSON_FILE_OF_MINE: here\n" in capsys.readouterr().out


def test_the_c_compiler(monkeypatch, capsys, tmp_path):
    compiler = tmp_path / "gcc"
    compiler.write_text("")
    compiler.chmod(0o755)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dict(doctor._machine())["C compiler"] == str(compiler)
    monkeypatch.setenv("PATH", "")
    assert dict(doctor._machine())["C compiler"].startswith("none")
