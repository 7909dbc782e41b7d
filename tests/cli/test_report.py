"""`pliant report`: files that are not what they should be."""

import torch

import pliant
from pliant.base import events, records
from pliant.cli import main


def log_of(path):
    with events.listening(records.JsonLog(str(path))):
        pliant.compile(lambda x: x + 1, backend="eager")(torch.ones(2))


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere.jsonl"), "-o", str(tmp_path / "r.html")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_file_of_something_else(tmp_path, capsys):
    log = tmp_path / "other.jsonl"
    for text in ("hello\n", '{"a": 1}\n', "[]\n"):
        log.write_text(text)
        assert main(["report", str(log), "-o", str(tmp_path / "r.html")]) == 2
        message = f"pliant report: {log} is not a file that PLIANT_LOGS_JSON has written\n"
        assert capsys.readouterr().err == message
    assert not (tmp_path / "r.html").exists()


def test_half_a_line_is_left_out(tmp_path, capsys):
    """As a process leaves it that is killed while it writes."""
    log, page = tmp_path / "events.jsonl", tmp_path / "r.html"
    log_of(log)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines) + lines[0][:30])
    assert main(["report", str(log), "-o", str(page)]) == 0
    shown = capsys.readouterr()
    assert f"1 line of {log} can't be read, the first of them line {len(lines) + 1}" in shown.err
    assert shown.out == f"{page}\n" and page.exists()
