"""`pliant.explain`: what was compiled, and why each size is what it is."""

from __future__ import annotations

import torch

import pliant


def scaled(x, n):
    rows = x.view(-1, 4) * n
    if rows.size(0) > 3:
        rows = rows + 1
    return rows.sum()


def test_one_call() -> None:
    explanation = pliant.explain(scaled)(torch.ones(8), 3)
    assert explanation.result == scaled(torch.ones(8), 3)
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)
    assert explanation.op_count == sum(
        node.op.startswith("call_") for node in explanation.graphs[0].graph.nodes
    )
    assert "L['n'] == 3" in map(str, explanation.guards)
    [size] = explanation.symbols
    assert (str(size.source), size.state, size.expr) == ("L['x'].size()[0]", "static", 8)
    assert size.why == "has not changed so far"


def test_of_a_compiled_function_all_its_compilations() -> None:
    compiled = pliant.compile(scaled)
    compiled(torch.ones(8), 3)
    explanation = pliant.explain(compiled)(torch.ones(16), 5)
    assert len(explanation.captured) == 2
    why = {str(one.source): (one.state, one.why) for one in explanation.captured[1].symbols}
    assert why == {
        "L['x'].size()[0]": ("dynamic", "size changed from 8 to 16 (automatic dynamic)"),
        "L['n']": ("dynamic", "value changed from 3 to 5 (automatic dynamic)"),
    }
    assert "L['x'].size()[0]//4 >= 4" in map(str, explanation.guards)


def test_who_made_a_constant_of_a_size() -> None:
    def f(x):
        return x.view(5) + 1

    [size] = pliant.explain(f, dynamic=True)(torch.ones(5)).symbols
    assert (size.state, size.expr, size.asker) == ("specialised", 5, "view")
    assert size.position.source_line() == "return x.view(5) + 1"


def test_breaks_and_text() -> None:
    def f(x):
        y = x + 1
        pliant.graph_break()
        return y * 2

    explanation = pliant.explain(f)(torch.ones(2))
    assert explanation.graph_break_count == 1 and explanation.breaks[0].code == "user"
    text = str(explanation)
    assert text.startswith("2 compilations, 2 graphs with 2 operations, 1 graph break\n")
    assert "pliant.graph_break()" in text and "[user]" in text
    assert "  why: " in text and "  what to do: " in text
    assert "type(L['x']) is Tensor" not in text  # that is a detail
    assert "type(L['x']) is Tensor" in explanation.details()
    assert explanation.details().startswith(text.partition("\n")[0])


def test_breaks_are_counted_as_the_counters_do() -> None:
    def f(x, layers):
        for layer in layers.values():
            x = layer(x)
            pliant.graph_break()
        return x

    pliant.reset()
    layers = {"sin": torch.sin, "cos": torch.cos}
    explanation = pliant.explain(f)(torch.ones(2), layers)
    assert explanation.graph_break_count == pliant.counters["graph_breaks"]
    assert any(broken.follows for broken in explanation.breaks)


def test_a_size_that_became_a_constant_is_shown() -> None:
    text = str(pliant.explain(lambda x: x.view(5) + 1, dynamic=True)(torch.ones(5)))
    assert "constant: L['x'].size()[0] is specialised (5)" in text


def test_in_a_notebook() -> None:
    def f(x):
        y = x + 1
        pliant.graph_break()
        return y * (2 if x.size(0) < 3 else 1)

    page = pliant.explain(f)(torch.ones(2))._repr_html_()
    assert page.startswith("<pre>2 compilations, 2 graphs")
    assert page.count("<details>") == page.count("</details>") == 2
    assert "def forward(self" in page
    assert "<locals>" not in page  # what is text is escaped


def test_modules_and_methods() -> None:
    layer = torch.nn.Linear(3, 4)
    assert pliant.explain(layer)(torch.ones(2, 3)).graph_count == 1
    assert pliant.explain(layer.forward)(torch.ones(2, 3)).graph_count == 1
    assert pliant.explain(pliant.compile(layer))(torch.ones(2, 3)).op_count == 1


def test_a_break_in_a_library_is_shown_by_the_call_of_the_program(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "site-packages"
    (folder / "somebody").mkdir(parents=True)
    (folder / "somebody" / "__init__.py").write_text("")
    (folder / "somebody" / "parts.py").write_text(
        "import pliant\n\ndef part(x):\n    pliant.graph_break()\n    return x + 1\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    from somebody.parts import part

    def step(x):
        return part(x * 2) * 3

    explanation = pliant.explain(step)(torch.ones(2))
    for text in (str(explanation), explanation.details()):
        lines = [line.strip() for line in text.splitlines()]
        at = next(n for n, line in enumerate(lines) if line.startswith("breaks at"))
        assert f"{__file__.rpartition('/')[2]}:" in lines[at + 1] and "in test_a_" in lines[at + 1]
        assert lines[at + 2] == "return part(x * 2) * 3"
        assert "in somebody.parts.part, line 4" in lines[at + 3 : at + 5]
        assert "pliant.graph_break()" in lines[at + 4 : at + 6]
    assert str(folder) not in str(explanation)
