import pytest

from pliant.base.errors import InvalidOptionError
from pliant.dynamic.sources import gather, matches, matching, parse

VARIABLES = "PLIANT_DYNAMIC_SOURCES TORCH_COMPILE_DYNAMIC_SOURCES".split()


@pytest.mark.parametrize(
    "text, source, meant",
    [
        ("L['x']", "L['x']", True),
        ("L['x']", "L['xs']", False),
        ("L['x']", "L['x'].grad", False),
        ("L['x']", "Lx", False),  # a name, not the expression it could also be
        ("L['x'].y", "L['x']_y", False),
        (" L['y'] , L['x'] ", "L['x']", True),
        ('L["x"]', "L['x']", True),
        ("", "L['x']", False),
        (" , ,", "L['x']", False),
        (r"L\['x.*'\]", "L['x']", True),
        (r"L\['x.*'\]", "L['xs'][0]", True),  # from the start, not to the end
        (r"L\['x.*'\]$", "L['xs'][0]", False),
        (r"L\['x.*'\]", "L['y']", False),
        (r"L\['x.*'\]", "G['L']", False),
        (".*", "G['anything']", True),
        (".*weight", "L['self'].layers[0].weight", True),
        (r"L\['x{1,2}'\]", "L['xx']", True),  # its comma doesn't end the entry
        ("L['a,b']", "L['a,b']", True),
        ("L['z-a']", "L['z-a']", True),  # a name that is no regular expression
        ("L['a*b']", "L['a*b']", True),
        ("stack_0", "stack_0", True),
        ("stack_1", "stack_10", False),
    ],
)
def test_matching(text, source, meant):
    assert matches(parse(text), source) is meant


@pytest.mark.parametrize(
    "text, source",
    [
        ("L['self']._modules['layer']._parameters['weight']", "L['self'].layer.weight"),
        ("L['self']._modules['layers']._modules['0']._buffers['b']", "L['self'].layers[0].b"),
        ('L["self"]._modules["layer"].scale', "L['self'].layer.scale"),
        (r"L\['self'\]\._modules\['layer'\].*", "L['self'].layer.weight"),
        (r"L\['self'\]._modules\['0'\]\..*", "L['self'][0].weight"),
    ],
)
def test_the_spelling_of_torch(text, source):
    assert matches(parse(text), source)


def test_dimensions():
    for text in ("L['x']:1", r"L\['.*'\] : 1", "L['x'].size()[1]", "L['x'].shape[1]"):
        patterns = parse(text)
        assert [matches(patterns, "L['x']", dim) for dim in range(3)] == [False, True, False]
    assert matches(parse("L['n']:1"), "L['n']")  # a number has no dimensions
    two = parse("L['x']:0, L['x']:2")
    assert [matches(two, "L['x']", dim) for dim in range(3)] == [True, False, True]


@pytest.mark.parametrize("text", [r"L\['(x", "L['x'", "(", r"*L\['x'\]", "L['x'], L['y"])
def test_a_bad_expression(text):
    with pytest.raises(InvalidOptionError, match="PLIANT_DYNAMIC_SOURCES: .* is neither") as caught:
        parse(text, "PLIANT_DYNAMIC_SOURCES")
    assert "what to do: give names such as L['x']" in str(caught.value)


def test_option_and_variables_add_up(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert gather("dynamic_sources", "") == ()
    assert [p.text for p in gather("dynamic_sources", "L['a']")] == ["L['a']"]
    for variable, text in zip(VARIABLES, ("L['b']", "L['c']"), strict=True):
        monkeypatch.setenv(variable, text)
    found = gather("dynamic_sources", "L['a']")
    assert [p.giver for p in found] == ["dynamic_sources", *VARIABLES]
    pattern = matching(found, "L['c']")
    assert pattern is not None and pattern.giver == "TORCH_COMPILE_DYNAMIC_SOURCES"
    assert gather("unbacked_sources", "") == ()


def test_a_list_is_compiled_once():
    assert parse("L['once']", "here") is parse("L['once']", "here")


def test_the_option_of_pytorch_counts_too():
    config = pytest.importorskip("torch.compiler.config")
    with config.patch(dynamic_sources="L['a']", unbacked_sources="L['b']"):
        [pattern] = gather("dynamic_sources", "")
        assert pattern.giver == "torch.compiler.config.dynamic_sources"
        assert matches(gather("unbacked_sources", "L['c']"), "L['b']")
        assert matches(gather("unbacked_sources", "L['c']"), "L['c']")
    assert not gather("dynamic_sources", "")
