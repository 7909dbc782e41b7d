import threading
from dataclasses import FrozenInstanceError, fields

import pytest

from pliant.base import options
from pliant.base.errors import InvalidOptionError, UnknownOptionError
from pliant.base.options import Config, Options, resolve


@pytest.fixture
def config(monkeypatch):
    """A config of the test's own, also used by `resolve`."""
    made = Config()
    monkeypatch.setattr(options, "config", made)
    return made


def test_at_most_thirty_options_and_each_is_described():
    assert len(fields(Options)) <= 30
    for item in fields(Options):
        assert item.metadata["doc"] and item.metadata["kind"].accepts(item.default)
        assert item.name in options.describe()


def test_shared_names_have_torchs_defaults():
    dynamo = pytest.importorskip("torch._dynamo.config")
    for name in (
        "recompile_limit accumulated_recompile_limit fail_on_recompile_limit_hit specialize_int "
        "specialize_float automatic_dynamic_shapes assume_static_by_default"
    ).split():
        assert getattr(Options(), name) == getattr(dynamo, name)


def test_assignment_and_snapshot(config):
    before = config.snapshot()
    config.recompile_limit = 3
    assert config.recompile_limit == 3 and config.snapshot().recompile_limit == 3
    assert before.recompile_limit == 8
    with pytest.raises(FrozenInstanceError):
        before.recompile_limit = 1
    assert "recompile_limit=3" in repr(config) and "recompile_limit" in dir(config)


def test_unknown_names_are_errors_with_the_closest_match(config):
    with pytest.raises(UnknownOptionError, match="did you mean 'recompile_limit'"):
        config.recompile_limt = 3
    with pytest.raises(UnknownOptionError, match="did you mean 'check_ir'"):
        config.chek_ir
    with pytest.raises(UnknownOptionError):
        config.patch(nonsense=1)
    assert not hasattr(config, "nonsense")


@pytest.mark.parametrize(
    "name, value",
    [
        ("recompile_limit", "8"),
        ("recompile_limit", True),
        ("recompile_limit", -1),
        ("specialize_int", 1),
        ("oblivious", "sometimes"),
        ("guard_filter_fn", 3),
    ],
)
def test_wrong_values(config, name, value):
    with pytest.raises(InvalidOptionError, match=name):
        setattr(config, name, value)
    assert config.snapshot() == Options()


def test_no_deleting(config):
    with pytest.raises(InvalidOptionError):
        del config.recompile_limit


def test_three_ways_to_patch(config):
    for patch in (
        config.patch(recompile_limit=1),
        config.patch("recompile_limit", 1),
        config.patch({"recompile_limit": 1}),
    ):
        with patch:
            assert config.recompile_limit == 1
        assert config.recompile_limit == 8


def test_patch_restores_after_an_exception(config):
    with pytest.raises(KeyError), config.patch(recompile_limit=1):
        raise KeyError
    assert config.recompile_limit == 8


def test_a_bad_patch_changes_nothing(config):
    with pytest.raises(InvalidOptionError), config.patch(recompile_limit=1, check_ir="yes"):
        pass
    assert config.snapshot() == Options()


def test_patch_nests_and_is_reentrant(config):
    patch = config.patch(recompile_limit=1)
    with patch:
        config.recompile_limit = 5
        with patch, config.patch(check_ir=True):
            assert (config.recompile_limit, config.check_ir) == (1, True)
        assert (config.recompile_limit, config.check_ir) == (5, False)
    assert config.recompile_limit == 8


def test_patch_restores_only_what_it_changed(config):
    with config.patch(recompile_limit=1):
        config.check_ir = True
    assert config.check_ir is True and config.recompile_limit == 8


def test_patch_as_decorator(config):
    @config.patch(recompile_limit=2)
    def depth(n):
        """Recursive."""
        return (config.recompile_limit, *(depth(n - 1) if n else ()))

    assert depth(2) == (2, 2, 2) and depth.__doc__ == "Recursive."
    assert config.recompile_limit == 8


def test_assignments_from_several_threads_are_not_lost(config):
    def work(name):
        for _ in range(300):
            with config.patch({name: True}):
                assert getattr(config, name) is True

    names = ["check_ir", "specialize_int", "specialize_float", "raise_on_fallback"]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert config.snapshot() == Options()


def test_resolve(config):
    config.recompile_limit = 5
    made = resolve({"check_ir": True})
    assert (made.recompile_limit, made.check_ir) == (5, True)
    assert resolve(mode="max-autotune").mode == "max-autotune"
    assert resolve() == config.snapshot()


def test_resolve_refuses(config):
    with pytest.raises(UnknownOptionError, match="did you mean 'check_ir'"):
        resolve({"check_irs": True})
    with pytest.raises(InvalidOptionError, match="reduce-overhead"):
        resolve(mode="fastest")
    with pytest.raises(InvalidOptionError, match="both"):
        resolve({}, "default")
    with pytest.raises(InvalidOptionError, match="dict"):
        resolve("check_ir")


def test_resolve_leaves_the_backends_own_options(config):
    assert resolve({"max_autotune": True, "check_ir": True}, strict=False).check_ir
