"""`tools/conformance.py`: its lists agree, and results are counted as it says."""

import json
import subprocess
import sys

from tools.conformance import ROOT, ListedTest, passed, read_differences, read_tests, report

ID = "dynamo/test_misc.py::MiscTests::test_boolarg"


def test_every_difference_is_a_test_with_a_reason():
    known = {test.id for test in read_tests()}
    differences = read_differences()
    assert len(known) == len(read_tests())
    assert not differences.keys() - known
    assert all(len(reason.split()) > 3 for reason in differences.values())


def test_few_tests_differ_on_purpose():
    assert len(read_differences()) <= 0.06 * len(read_tests())


def test_a_test_without_the_graph_is_not_passed():
    assert passed(ListedTest(ID, graphs=True), {"outcome": "passed", "graphs": 1})
    assert not passed(ListedTest(ID, graphs=True), {"outcome": "passed", "graphs": 0})
    assert passed(ListedTest(ID, graphs=False), {"outcome": "passed", "graphs": 0})
    assert not passed(ListedTest(ID, graphs=False), {"outcome": "failed", "graphs": 1})


def test_the_report_counts_by_file():
    tests = [ListedTest(f"a.py::T::{name}", graphs=False) for name in "xyz"]
    results = {t.id: {"outcome": o} for t, o in zip(tests, ("passed", "failed", "crash"), strict=1)}
    for result in results.values():
        result["graphs"] = 0
    page = report(tests, results, {tests[1].id: "because it has to"})
    assert "| `a.py` | 3 | 1 | 1 | 1 |" in page
    assert "| because it has to | 1 |" in page


PYTORCHS = """
import torch
import torch._dynamo.testing
import torch._dynamo.test_case

class T(torch._dynamo.test_case.TestCase):
    def test_passes(self):
        counter = torch._dynamo.testing.CompileCounter()
        result = torch.compile(lambda x: x + 1, backend=counter, fullgraph=True)(torch.ones(2))
        self.assertEqual(result, torch.ones(2) + 1)
        self.assertEqual(counter.frame_count, 1)

    def test_fails(self):
        with self.assertRaises(torch._dynamo.exc.Unsupported):
            torch.compile(lambda x: x + 1, fullgraph=True)(torch.ones(2))

    def test_dies(self):
        import os
        os._exit(3)

    def test_is_not_wanted(self):
        raise AssertionError
"""


def test_a_file_is_run_in_processes_that_may_die(tmp_path):
    folder = tmp_path / "dynamo"
    folder.mkdir()
    (folder / "test_some.py").write_text(PYTORCHS)
    # All that PyTorch's `TestCase` needs of a package that need not be installed.
    (tmp_path / "expecttest.py").write_text("from unittest import TestCase\n")
    names = ("passes", "fails", "dies")
    ids = [f"dynamo/test_some.py::T::test_{name}" for name in names]
    code = (
        "import json, pathlib, sys; from tools.conformance import run_file;"
        "results = run_file(pathlib.Path(sys.argv[1]), 'dynamo/test_some.py', sys.argv[2:]);"
        "print(json.dumps(results))"
    )
    command = [sys.executable, "-c", code, str(tmp_path), *ids]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    results = json.loads(output)
    outcomes = [results[test]["outcome"] for test in ids]
    assert outcomes == ["passed", "failed", "crash"]
    assert results[ids[0]]["graphs"] >= 1
