"""The fuzzer finds planted mistakes, shrinks them, survives crashes and hangs; and a short run."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import pliant
from tools.fuzzing import campaign as campaigns
from tools.fuzzing import rounding
from tools.fuzzing.accepted import reason
from tools.fuzzing.check import Finding, Invalid, check
from tools.fuzzing.deadline import TimeUp
from tools.fuzzing.generate import generate
from tools.fuzzing.program import Argument, Program
from tools.fuzzing.shrink import shrink, statements_of

CHUNK = 10


@pytest.mark.own_default
@pytest.mark.parametrize("start", range(0, 240, CHUNK))
def test_short_run(start: int) -> None:
    with pliant.config.patch(raise_on_fallback=False):
        findings = {seed: check_seed(seed) for seed in range(start, start + CHUNK)}
    assert {seed: finding for seed, finding in findings.items() if finding} == {}


def check_seed(seed: int) -> Finding | None:
    """What is found, unless it is one of the differences that stay."""
    program = generate(seed)
    finding = check(program)
    accepted = finding is not None and reason(program, asdict(finding)) is not None
    return None if accepted else finding


def test_a_seed_gives_the_same_program_each_time() -> None:
    for seed in range(20):
        assert generate(seed).to_json() == generate(seed).to_json()


def test_a_program_survives_json() -> None:
    program = generate(7)
    assert Program.from_json(program.to_json()) == program


def tensor(name: str = "a", **fields) -> Argument:
    return Argument(name, "tensor", **{"shape": [3], **fields})


def program(*body, calls=None) -> Program:
    return Program(0, list(body), calls or [[tensor()]])


def broken(change):
    """A compiler that does something else afterwards."""

    def compile(function, **options):
        def run(*args):
            return change(function(*args), args)

        return run

    return compile


def add_to_argument(result, args):
    args[0].add_(1)
    return result


def share(result, args):
    return args[0].view(result.shape)


def draw(result, args):
    torch.rand(1)
    return result


def fail(result, args):
    raise RuntimeError("no")


PLANTED = {
    "values": lambda result, args: result + 0.01,
    "sign of zero": lambda result, args: torch.where(result == 0, -result, result),
    "dtype": lambda result, args: result.double(),
    "shape": lambda result, args: result[None],
    "stride": lambda result, args: torch.stack([result, result], -1)[..., 0],
    "type": lambda result, args: 3,
    "structure": lambda result, args: [result],
    "identity": lambda result, args: args[0],
    "random state": draw,
    "error": fail,
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_mistake_is_found(kind: str) -> None:
    finding = check(program("return a.clone()", calls=[[zeros()]]), broken(PLANTED[kind]))
    assert finding is not None
    assert finding.kind == kind


def zeros() -> Argument:
    return tensor(values="zeros")


def test_a_write_to_an_argument_is_found() -> None:
    finding = check(program("return a + 1"), broken(add_to_argument))
    assert finding is not None and finding.kind == "values" and "argument.0" in finding.text


def test_shared_memory_is_found() -> None:
    finding = check(program("return a.clone()"), broken(share))
    assert finding is not None and finding.kind == "sharing of memory"


def test_an_error_that_is_missing_is_found() -> None:
    def compile(function, **options):
        return lambda *args: None

    finding = check(program("raise ValueError('x')"), compile)
    assert finding is not None and finding.kind == "no error"


def test_a_program_that_needs_much_memory_is_none() -> None:
    huge = program("return torch.ones(1 << 30)")
    with pytest.raises(Invalid, match="memory"):
        check(huge)


def test_to_need_more_memory_than_eager_is_a_finding() -> None:
    def double(result, args):
        return torch.ones(1 << 30)

    finding = check(program("return a"), broken(double))
    assert finding is not None and finding.kind == "error"


def test_more_dimensions_than_pytorch_computes_with() -> None:
    deep = program("for _ in range(70): a.unsqueeze_(0)", "return a")
    assert check(deep) is None
    finding = check(deep, broken(add_to_argument_in_place))
    assert finding is not None and finding.kind == "values"


def add_to_argument_in_place(result, args):
    args[0].data.squeeze().fill_(7)
    return result


def test_the_order_of_a_sum_of_integers_as_floats_is_no_finding() -> None:
    numbers = [[tensor(shape=[4], dtype="int64", values="special", seed=3)]]

    def other_order(result, args):
        return args[0].float().flip(0).cumsum(0)[-1].clone()

    total = program("return a.sum(dtype=torch.float32)", calls=numbers)
    assert check(total, broken(other_order)) is None


def test_random_numbers_that_rounding_decides_about_are_no_finding() -> None:
    one = [[tensor(shape=[1], dtype="bfloat16")]]
    drawn = program("torch.poisson(F.layer_norm(a + 1000, a.shape).abs())", calls=one)
    assert check(drawn, broken(draw)) is None


def test_rounding_is_no_finding_but_more_is() -> None:
    big = [[tensor(shape=[1000], values="random")]]

    def other_order(result, args):
        return args[0].flip(0).cumsum(0)[-1].clone()

    assert check(program("return a.sum()", calls=big), broken(other_order)) is None

    def less_exact(result, args):
        return args[0].bfloat16().float().sum()

    finding = check(program("return a.sum()", calls=big), broken(less_exact))
    assert finding is not None and finding.kind == "values"


def test_a_unit_in_the_last_place_of_a_tiny_number_is_no_finding() -> None:
    tiny = program("return torch.exp(a * 0 - 103)", calls=[[tensor()]])
    assert check(tiny, broken(lambda result, args: result + 1e-45)) is None
    finding = check(tiny, broken(lambda result, args: result + 1e-42))
    assert finding is not None and finding.kind == "values"


def test_rounding_that_cancels_is_no_finding() -> None:
    body = "return torch.logaddexp2(a * 0 - 1, a * 0 - 1)"
    many = program(body, calls=[[tensor(shape=[2000], dtype="float64")]])
    assert check(many, broken(lambda result, args: torch.zeros_like(result))) is None


def test_rounding_in_place_and_of_a_logarithm_of_about_one() -> None:
    x = torch.tensor([9.0, 3.0, 2.0], dtype=torch.float64)
    functions = {torch.float32: lambda: x.float().log_().double()}
    functions[torch.float64] = lambda: x.log_softmax(0)
    for dtype, function in functions.items():
        eager, others = function(), rounded(function)
        unit = torch.finfo(dtype).eps
        assert rounding.accepted(eager + unit, eager, others).all()
        assert not rounding.accepted(eager + 1000 * unit, eager, others).any()


def test_rounding_of_a_variance_that_eager_adds_one_by_one() -> None:
    x = torch.diag_embed(torch.ones(33, 1, 9, dtype=torch.float64))
    variance, mean = torch.var_mean(x, correction=0)
    better = (x - mean) * (variance + 1e-5).rsqrt()

    def function():
        return torch.nn.functional.batch_norm(x, None, None, training=True)

    eager, others = function(), rounded(function)
    assert rounding.accepted(better, eager, others).all()
    assert not rounding.accepted(better * (1 + 1e-11), eager, others).any()


def test_rounding_does_not_explain_another_value_than_an_infinity() -> None:
    x = torch.tensor([0.0])
    for function in (x.log, lambda: x.clone().log_()):
        assert not rounding.accepted(torch.ones(1), function(), rounded(function))


def rounded(function) -> list[torch.Tensor]:
    results = []
    for seed in range(rounding.RUNS):
        with rounding.Rounding(seed):
            results.append(function())
    return results


def test_an_infinity_is_no_finding_next_to_a_pole() -> None:
    infinite = torch.tensor(torch.inf)
    near, other_side = torch.tensor(-6e7), torch.tensor(4e7)
    assert rounding.accepted(infinite, near, [near, other_side])
    assert not rounding.accepted(infinite, near, [near, near * 1.5])
    assert not rounding.accepted(infinite, torch.tensor(-1.0), [torch.tensor(1.0)])
    assert rounding.accepted(infinite / infinite, near, [near, other_side])


def test_the_sign_of_an_infinity_is_no_finding_where_rounding_decides_it() -> None:
    infinite = torch.tensor(torch.inf)
    assert rounding.accepted(infinite, -infinite, [-infinite, infinite])
    assert not rounding.accepted(infinite, -infinite, [-infinite, -infinite])


def test_what_eager_cannot_tell_of_a_view_is_not_compared() -> None:
    body = ["v = a[:2]", "v.view(2)[0:].fill_(0)", "return v"]
    views = program(*body, calls=[[tensor(requires_grad=True)]])
    assert check(views, broken(lambda result, args: result)) is None


def test_effects_lost_before_an_error_are_told_from_others() -> None:
    body = ["SEEN.append(1)", "a.add_(1)", "raise ValueError"]

    def compile(function, **options):
        def run(a):
            a.add_(1)
            raise ValueError

        return run

    finding = check(program(*body), compile)
    assert finding is not None and finding.kind == "structure after an error"
    assert reason(program(*body), vars(finding)) is not None
    drawn = program("torch.rand(3)", "SEEN.append(1)", "raise ValueError")
    assert reason(drawn, vars(finding)) is not None
    assert reason(program("SEEN.append(1)", "raise ValueError"), vars(finding)) is None


def test_a_unit_in_the_last_place_of_a_subnormal_seen_in_float64_is_no_finding() -> None:
    tiny = program("return torch.erfc(a * 0 + 10).double()", calls=[[tensor()]])
    assert check(tiny, broken(lambda result, args: result + 1.4013e-45)) is None
    finding = check(tiny, broken(lambda result, args: result + 1e-42))
    assert finding is not None and finding.kind == "values"


def test_remainders_by_next_to_nothing_are_told_from_others() -> None:
    def why(line: str, kind: str = "values", text: str = "eager nan, pliant 0.0") -> str | None:
        return reason(program(line), {"kind": kind, "text": text, "place": ""})

    assert why("return torch.fmod(a, 1e-45)") is not None
    assert why("return a.remainder(1e-45)") is not None
    assert why("return torch.fmod(a, 0.5)") is None
    assert why("return a.fmod_(F.group_norm(a, 1))") is not None
    assert why("return a.fmod_(F.group_norm(a, 1))", text="eager 1.0, pliant 0.0") is None
    assert why("return torch.signbit(a % a).nonzero()", "shape") is not None
    assert why("return torch.signbit(torch.float_power(a, a))", "values") is not None
    assert why("return torch.signbit(a + a).nonzero()", "shape") is None


def test_a_view_behind_a_break_may_be_none() -> None:
    text = "result (torch.bool): 1 differ; at (): eager tensor(True), pliant tensor(False)"
    finding = {"kind": "values", "text": text, "place": ""}
    branch = [["if bool((v > 0).any()):", ["w = v._is_view()"]], ["else:", ["w = 0"]]]
    assert reason(program("v = a.unfold(0, 1, 1)", branch, "return w"), finding) is not None
    assert reason(program("v = a.unfold(0, 1, 1)", "return v._is_view()"), finding) is None
    other_way = {**finding, "text": text.replace("True), pliant tensor(False", "False), pliant t")}
    assert reason(program("v = a.sin()", branch, "return w"), other_way) is None


def test_memory_that_nobody_wrote_is_no_finding() -> None:
    odd = program("return torch.empty(1000)")
    assert check(odd, broken(lambda result, args: result + 1)) is None


def test_a_fallback_is_a_finding(monkeypatch) -> None:
    def fails(*args, **kwargs):
        raise AssertionError("planted")

    monkeypatch.setattr("pliant.driver.pipeline.capture", fails)
    with pliant.config.patch(raise_on_fallback=False):
        finding = check(program("return a + 1"))
    assert isinstance(finding, Finding) and finding.kind == "fallback"
    assert "planted" in finding.text


def test_shrinking_leaves_a_few_lines() -> None:
    body = [
        "v1 = a + 1",
        [["if a.dim() == 1:", ["v2 = v1.sin()", "v3 = v2 * 2"]], ["else:", ["v3 = a"]]],
        "v4 = torch.cat([v3, a])",
        "v5 = v4.exp()",
        "v6 = b * 17",
        "return v6, v5, v1",
    ]
    calls = [[tensor(shape=[n]), tensor("b", shape=[4, n])] for n in (5, 7, 33)]
    big = Program(0, body, calls, grad=True, threads=3)

    def with_cat(candidate: Program) -> bool:
        return any("torch.cat" in line for line in statements_of(candidate))

    small = shrink(big, with_cat)
    assert len(statements_of(small)) <= 2
    assert len(small.calls) == 1 and len(small.parameters) == 1
    assert sum(small.calls[0][0].shape) == 0
    assert len(big.calls) == 3  # the original is as it was


def run_campaign(monkeypatch, *bodies: str) -> campaigns.Campaign:
    """Each body is a program that a worker runs instead of a random one."""

    def check_body(self, seconds=None, **request):
        if "seed" in request:
            request = {"program": program(bodies[request["seed"]]).to_json()}
        return original(self, seconds, **request)

    original = campaigns.Worker.check
    monkeypatch.setattr(campaigns.Worker, "check", check_body)
    campaign = campaigns.Campaign(seconds=3.0, shrink_seconds=0.0, tell=lambda text: None)
    campaign.run(range(len(bodies)), jobs=1, minutes=None)
    return campaign


@pytest.mark.own_default
def test_a_crash_and_a_hang_are_findings(monkeypatch) -> None:
    when_compiled = "if pliant.is_compiling(): __import__"
    campaign = run_campaign(
        monkeypatch,
        f"{when_compiled}('os').abort()",
        f"{when_compiled}('time').sleep(1000)",
        "__import__('os').abort()",  # eager does it, too
        "return a + 1",
    )
    assert campaign.programs == 4
    assert sorted(case.finding["kind"] for case in campaign.cases.values()) == ["crash", "hang"]
    assert "-6" in campaigns.report(campaign)


SECONDS = 30.0  # until a campaign has to be over; most of it is for a busy machine


@pytest.mark.own_default
def test_a_campaign_stops_what_runs_at_the_deadline(monkeypatch, tmp_path) -> None:
    begun = tmp_path / "begun"
    body = [f"open({str(begun)!r}, 'w').close()", "__import__('time').sleep(1000)"]
    workers = []

    def check_body(self, seconds=None, **request):
        workers.append(self)
        return original(self, seconds, program=program(*body).to_json())

    original = campaigns.Worker.check
    monkeypatch.setattr(campaigns.Worker, "check", check_body)
    campaign = campaigns.Campaign(tell=lambda text: None)
    running = threading.Thread(target=campaign.run, args=(range(100), 2, None), daemon=True)
    running.start()
    wait_for(begun)
    processes = [worker.process for worker in workers]
    campaign.deadline.end_now()
    running.join(SECONDS)
    assert not running.is_alive()
    assert campaign.programs == 0 and not campaign.cases  # to be stopped is no hang
    assert all(process is None or process.poll() is not None for process in processes)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_campaign_without_time_checks_nothing() -> None:
    campaign = campaigns.Campaign(tell=lambda text: None)
    campaign.run(range(1_000_000_000), jobs=2, minutes=0.0)
    assert campaign.programs == 0


def planted_campaign(monkeypatch, answer, **fields) -> campaigns.Campaign:
    """Workers give `answer(campaign, seed)` to seeds, and to programs when `seed` is None."""

    def check_request(self, seconds=None, **request):
        seed = request.get("seed")
        shown = Program.from_json(request["program"]) if seed is None else generate(seed)
        return shown, answer(campaign, seed)

    monkeypatch.setattr(campaigns.Worker, "check", check_request)
    campaign = campaigns.Campaign(tell=lambda text: None, **fields)
    return campaign


def planted(kind: str = "values", place: str = "") -> dict:
    return {"kind": kind, "text": place, "call": 0, "place": place}


def test_shrinking_is_cut_short_at_the_deadline(monkeypatch, tmp_path) -> None:
    candidates = []

    def answer(campaign, seed):
        if seed is None:
            candidates.append(seed)
            if len(candidates) == 3:
                campaign.deadline.end_now()
                raise TimeUp
        return planted()

    report = tmp_path / "report.txt"
    campaign = planted_campaign(monkeypatch, answer, report=report)
    campaign.run(range(100), jobs=1, minutes=None)
    assert len(candidates) == 3 and campaign.programs == 1
    (case,) = campaign.cases.values()
    assert case.cut_short and len(case.program.calls) < len(generate(0).calls)
    assert "shrinking was cut short" in report.read_text()


def test_the_report_is_renewed_with_each_finding(monkeypatch, tmp_path) -> None:
    report = tmp_path / "report.txt"
    reports = []

    def answer(campaign, seed):
        reports.append(report.read_text())
        return planted("fallback", f"place {seed}")

    campaign = planted_campaign(monkeypatch, answer, report=report, shrink_seconds=0.0)
    campaign.run(range(3), jobs=1, minutes=None)
    counts = [[f"place {seed}" in text for seed in range(3)].count(True) for text in reports]
    assert counts == [0, 1, 2]
    assert os.listdir(tmp_path) == ["report.txt"]


def test_a_mistake_of_the_campaign_ends_it(monkeypatch) -> None:
    def answer(campaign, seed):
        if seed == 5:
            raise ZeroDivisionError
        return None

    campaign = planted_campaign(monkeypatch, answer)
    with pytest.raises(ZeroDivisionError):
        campaign.run(range(1_000_000_000), jobs=2, minutes=None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_campaign_with_its_report(number: int, tmp_path) -> None:
    report = tmp_path / "report.txt"
    process = subprocess.Popen(
        [sys.executable, "tools/fuzz.py", "--count", "1000000", "--report", str(report)],
        cwd=campaigns.ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(report)
        os.killpg(process.pid, number)  # as a terminal and `timeout` do
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert "interrupted" in output and "programs, " in output
    assert "crash" not in output
    assert "programs, " in report.read_text()


def test_an_empty_tensor_that_pytorch_cannot_compute_with_is_compared() -> None:
    """One of a negative size."""
    negative = program("return a.sum().expand(-1, 0)")
    assert check(negative, broken(lambda result, args: result)) is None
    finding = check(negative, broken(lambda result, args: result.new_empty(0, 0)))
    assert finding is not None and finding.kind == "shape"


def test_the_summary_is_short_and_the_report_has_scripts(monkeypatch) -> None:
    campaign = campaigns.Campaign()
    for seed in range(40):
        finding = {"kind": "values", "text": "x" * 3000, "call": 0, "place": ""}
        campaign.cases[str(seed)] = campaigns.Case(generate(seed), finding, seeds=[seed])
    assert len(campaigns.report(campaign, 10_000)) <= 10_000
    assert campaigns.full_report(campaign).count("def f(") == 80


def test_a_script_shows_both_results(capfd) -> None:
    script = program("return a + 1").script()
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("eager: tensor(") and lines[2].startswith("pliant: tensor(")


ZEROS = Argument("z", "code", "torch.zeros(3, dtype=torch.int64)")
EFFECTS = {
    "a number": (["box.count = box.count + 1"], Argument("box", "code", "Box(value=a, count=0)")),
    "an item": (["table['k'] = a"], Argument("table", "code", "{'k': z}")),
    "an order": (["items.reverse()"], Argument("items", "code", "[a, z]")),
    "a length": (["items.append(a)"], Argument("items", "code", "[a, z]")),
}


@pytest.mark.own_default
@pytest.mark.parametrize("name", EFFECTS)
def test_effects_before_an_error_may_be_missing_if_tensors_are_written(name: str) -> None:
    body, argument = EFFECTS[name]
    calls = [[tensor(), ZEROS, argument]]
    writes = program(*body, "z.fmod_(z)", calls=calls)
    finding = check(writes)
    assert finding is not None
    assert reason(writes, asdict(finding)) is not None
    reads = program(*body, "v = z.fmod(z)", calls=calls)
    assert check(reads) is None
    assert reason(reads, asdict(finding)) is None


def test_contents_of_tensors_after_an_error_are_compared() -> None:
    def compile(function, **options):
        def run(*args):
            try:
                function(*args)
            finally:
                args[0].add_(1)

        return run

    raising = program("z.add_(1)", "raise ValueError('twice')", calls=[[tensor(), ZEROS]])
    finding = check(raising, compile)
    assert finding is not None
    assert reason(raising, asdict(finding)) is None


def test_strides_behind_a_mask_among_the_arguments() -> None:
    calls = [[tensor(), tensor("m", dtype="bool")]]
    finding = asdict(Finding("stride of a dimension of size 1", "", 0))
    assert reason(program("return a[m].unfold(0, 1, 2)", calls=calls), finding) is not None
    assert reason(program("return a[a].unfold(0, 1, 2)", calls=calls), finding) is None


def test_strides_where_a_tensor_says_how_often_to_repeat() -> None:
    finding = asdict(Finding("stride of an empty tensor", "", 0))
    repeats = program("return torch.atleast_2d(a.repeat_interleave(torch.arange(len(a)).abs()))")
    assert reason(repeats, finding) is not None
    assert reason(program("return a.repeat_interleave(2, 0)"), finding) is None


def test_strides_where_a_tensor_is_a_size() -> None:
    finding = {"kind": "stride of a dimension of size 1", "text": "", "place": ""}
    calls = [[Argument("a", (1,), dtype="int64")]]
    assert reason(program("return a.expand(a, *a.shape)", calls=calls), finding) is not None
    assert reason(program("return a.expand(1, 1)", calls=calls), finding) is None
    calls = [[Argument("a", (1,))]]
    assert reason(program("return a.expand(a, *a.shape)", calls=calls), finding) is None


def raising(function, **options):
    """A compiler whose functions raise at each call."""

    def run(*args):
        raise RuntimeError("Halving dimension must be even, but dimension 0 is size 9")

    return run


def test_an_error_that_rounding_decides_is_no_finding() -> None:
    sized_by_rounding = program(
        "v = torch.unique((a * 1.1).tanh() * 1e7 % 3)",
        "return F.glu(v, 0)",
        calls=[[tensor(shape=[64])]],
    )
    assert check(sized_by_rounding, raising) is None
    finding = check(program("return F.glu(torch.cat([a, a]), 0)"), raising)
    assert finding is not None and finding.kind == "error"


def test_functions_of_integers_are_computed_in_float32() -> None:
    def off_by(relative):
        def compile(function, **options):
            def run(*args):
                function(*args)
                args[0].mul_(1 + relative)

            return run

        return compile

    integers = tensor("b", dtype="int64")
    wide = program("torch.exp(b, out=a)", calls=[[tensor(dtype="float64"), integers]])
    assert check(wide, off_by(1e-7)) is None
    finding = check(wide, off_by(1e-4))
    assert finding is not None and finding.kind == "values"


def test_numbers_in_the_data_that_are_out_of_range() -> None:
    text = "eager: RuntimeError: value cannot be converted to type float without overflow"
    finding = {"kind": "no error", "text": text, "place": ""}
    assert reason(program("return torch.full((2,), a.mean().item())"), finding) is not None
    assert reason(program("return torch.full((2,), 1e300)"), finding) is None


def test_the_sign_of_a_zero_beside_a_product() -> None:
    finding = {"kind": "sign of zero", "text": "", "place": ""}
    for product in ("torch.addmm(a, a, a)", "torch.matmul(a, a.mT)", "torch.bmm(a, a)", "a @ a"):
        assert reason(program(f"return {product}"), finding) is not None
    assert reason(program("return torch.add(a, a)"), finding) is None


def test_a_count_of_what_a_norm_makes_of_numbers_out_of_range() -> None:
    special = [[tensor(values="special")]]
    finding = {"kind": "values", "text": "result (torch.int64): 1 differ", "place": ""}
    counted = "return F.layer_norm(a, a.shape).count_nonzero(0)"
    assert reason(program(counted, calls=special), finding) is not None
    assert reason(program(counted, calls=[[tensor()]]), finding) is None
    assert reason(program("return a.sin().count_nonzero(0)", calls=special), finding) is None


def changed(change):
    """A compiler whose functions return what `change` makes of the results."""

    def compile(function, **options):
        return lambda *args: change(function(*args))

    return compile


SIZED_BY_ROUNDING = "torch.unique((a * 1.1).tanh() * 1e7 % 3)"


def test_a_size_that_rounding_decides_is_no_finding() -> None:
    calls = [[tensor(shape=[64])]]
    sized = program(f"return {SIZED_BY_ROUNDING}", calls=calls)
    assert check(sized, changed(lambda v: v[1:])) is None
    for wrong in (lambda v: v[None], lambda v: v.repeat(1000), lambda v: v.double()):
        finding = check(sized, changed(wrong))
        assert finding is not None and finding.kind in ("shape", "dtype")
    finding = check(program("return torch.unique(a)", calls=calls), changed(lambda v: v[1:]))
    assert finding is not None and finding.kind == "shape"
    finding = check(program("return (a * 1.1).tanh()", calls=calls), changed(lambda v: v[1:]))
    assert finding is not None and finding.kind == "shape"


def test_what_stands_beside_such_a_size_is_compared() -> None:
    calls = [[tensor(shape=[64])]]
    sized = program(f"return {SIZED_BY_ROUNDING}, a + 1", calls=calls)
    assert check(sized, changed(lambda v: (v[0][1:], v[1]))) is None
    finding = check(sized, changed(lambda v: (v[0][1:], v[1] + 1)))
    assert finding is not None and finding.kind == "values"


def test_what_a_norm_of_one_element_leaves_decides_a_size() -> None:
    one = [[tensor(shape=[1], dtype="bfloat16")]]
    body = "return a.masked_select(F.layer_norm(a, a.shape, a, None, 2) != 0)"
    assert check(program(body, calls=one), changed(lambda v: v[:0])) is None


def test_fallbacks_are_told_apart_by_their_messages() -> None:
    def symptom(text: str, place: str = "graph/lower.py:run") -> str:
        finding = {"kind": "fallback", "text": text, "call": 0, "place": place}
        return campaigns.Case(program("return a"), finding).symptom

    first = symptom("""RuntimeError("can't cast 'v3' to 'int64' of size 4")""")
    assert first == symptom("""RuntimeError("can't cast 'v5' to 'int8' of size 12")""")
    assert first != symptom("""RuntimeError("can't view 'v3' as 'int64' of size 4")""")
    assert first != symptom("""ValueError("can't cast 'v3' to 'int64' of size 4")""")
    assert first != symptom("""RuntimeError("can't cast 'v3' to 'int64' of size 4")""", "")
    assert symptom("KeyError('v3')") == symptom("KeyError('v4')")
    assert symptom("ZeroDivisionError('a\nb')") != symptom("ZeroDivisionError('a\nc')")


def test_how_many_items_rounding_decides_is_no_finding() -> None:
    calls = [[tensor(shape=[64])]]
    body = f"return {SIZED_BY_ROUNDING}.tolist(), [a + 1]"
    listed = program(body, calls=calls)
    assert check(listed, changed(lambda v: (v[0][1:], v[1]))) is None
    for wrong in (lambda v: (v[0][1:], []), lambda v: (v[0][1:], [v[1][0] + 1])):
        finding = check(listed, changed(wrong))
        assert finding is not None and finding.kind in ("structure", "values")
    exact = program("return torch.unique(a).tolist()", calls=calls)
    finding = check(exact, changed(lambda v: v[1:]))
    assert finding is not None and finding.kind == "structure"


def test_what_is_by_the_place_of_the_element_is_out_of_range() -> None:
    special = [[tensor(values="special")]]

    def accepted(line: str, text: str, calls=special) -> bool:
        finding = {"kind": "values", "text": text, "place": ""}
        return reason(program(f"return {line}", calls=calls), finding) is not None

    infinite = "result (torch.float32): 1 differ; at (0,): eager tensor(inf), pliant tensor(2.)"
    finite = "result (torch.float32): 1 differ; at (0,): eager tensor(1.), pliant tensor(2.)"
    assert accepted("a.cosh()", infinite)
    assert not accepted("a.cosh()", finite)
    assert not accepted("a.cosh()", infinite, calls=[[tensor()]])
    assert accepted("torch.arange(100).cosh() + a", infinite, calls=[[tensor()]])
    lost = "(torch.bfloat16): 1 differ; at (2, 0): eager tensor(0., dtype=torch.bfloat16), pliant 1"
    assert accepted("a.erf()", lost)
    assert not accepted("a.erf()", lost.replace("bfloat16", "float32"))
    assert not accepted("a.sin()", lost)


def test_last_digits_are_accepted_in_memory_of_integers() -> None:
    def accepted(line: str, eager: int, ours: int, dtype: str = "int64") -> bool:
        text = f"argument.0 (torch.{dtype}): 1 differ; at (0,): eager tensor({eager}), "
        finding = {"kind": "values", "text": f"{text}pliant tensor({ours})", "place": ""}
        return reason(program(line), finding) is not None

    rounds = "a.view(torch.float32).log1p_()"
    assert accepted(rounds, 0, 1)
    assert accepted(rounds, 5 << 32, 7 << 32)  # the second of two floats
    assert not accepted(rounds, 0, 1 << 20)
    assert not accepted("a.view(torch.float64).log1p_()", 5 << 32, 7 << 32)
    assert not accepted("a.log1p_()", 0, 1)
    assert not accepted(rounds, 0, 1, "int16")


def test_a_fallback_is_accepted_only_for_a_negative_size() -> None:
    finding = {"kind": "fallback", "text": "negative dimension -1: [-1, 0]", "place": ""}
    assert reason(program("v = a.sum().expand(-1, 0)", "v[a.long()] = 0"), finding) is not None
    assert reason(program("v = a.expand(2, 3)", "v[a.long()] = 0"), finding) is None
