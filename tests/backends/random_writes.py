"""Random programs that write to views of their arguments and of tensors of their own, and read them
before and after."""

import random

VIEWS = [
    "{}[1:]",
    "{}[:-1]",
    "{}[::2]",
    "{}[0]",
    "{}[-1]",
    "{}[:, 1:3]",
    "{}[1:3, ::2]",
    "{}.t()",
    "{}.t()[1:]",
    "{}[:, 0]",
    "{}.diagonal()",
    "{}.view(-1)[3:9]",
    "{}.flatten()[::3]",
    "{}.unsqueeze(0)[0, 1:]",
    "{}.view(-1)",
    "{}.expand(2, -1, -1)[1]",
    "{}.chunk(2)[1]",
    "{}.unbind(1)[2]",
    "{}.as_strided((2, 3), (1, 2), 1)",
]
VALUES = [
    "{} * 2",
    "{} + {}",
    "{}.sum() * 0.1",
    "{}.cumsum(0)",
    "{} @ {}",
    "{}.clone()",
    "{}.flip(0)",
    "{}.amax(1, keepdim=True) - {}",
    "{}.softmax(1)",
    "{}[i]",
    "{}.gather(0, j)",
    "torch.zeros(n, n)",
    "torch.empty_like({}).copy_({})",
    "torch.linalg.inv_ex({})[1] + {}",
    "torch.cat([{}[:2], {}[2:]])",
]
WRITES = [
    "{v}.add_({s})",
    "{v}.mul_({s})",
    "{v}.copy_({s})",
    "{v}.fill_(2.5)",
    "{v}.zero_()",
    "{v}.clamp_(-1, 1)",
    "{v}.masked_fill_({v} > 0.5, 0.25)",
    "{v}.copy_({v}.flip(0) * 0.5)",
    "{v}.add_({v}.mean() * 0.5)",
    "{a}.index_add_(0, i, {b}[:2])",
    "{a}.index_copy_(0, i, {b}[1:3])",
    "{a}.index_put_((i,), {b}[0])",
    "{a}.index_put_((i,), {b}[:2], accumulate=True)",
    "{a}[i] += 1",
    "{a}.t().index_fill_(0, i, 0.5)",
    "{a}[1:].scatter_(0, j[1:] % (n - 1), {b}[1:])",
    "{a}.scatter_add_(0, j, {b})",
    "{a}[:, i] = {b}[:, :2]",
    "{a}[1:3] = {b}[:2] * 0.5",
    "{a}[0, 1] = 3.0",
    "{a}.copy_({a}.t() * 0.5)",
    "{a}.add_({b}.t())",
    "{a}.view(-1)[k:k + 3] = {b}.view(-1)[:3]",
    "{a}[k].mul_({b}[k])",
]


def program(seed, length=8):
    """The source of a function `f(x, y, i, j, k)`; tensors are n by n."""
    rng = random.Random(seed)
    names, lines, views = ["x", "y"], ["n = x.size(0)"], []

    def pick():
        return rng.choice(names[-3:] + ["x", "y"])

    def fill(form):
        return form.format(*[pick() for _ in range(2)])

    for at in range(length):
        kind = rng.random()
        if kind < 0.35:
            lines.append(f"t{at} = {fill(rng.choice(VALUES))}")
            if rng.random() < 0.8:
                lines[-1] = f"t{at} = ({lines[-1].partition(' = ')[2]}) + torch.zeros(n, n)"
                if "[i]" in lines[-1]:
                    lines[-1] = f"t{at} = {pick()} * {pick()}"
                names.append(f"t{at}")
            else:
                views.append(f"t{at}")
        elif kind < 0.5:
            lines.append(f"v{at} = {fill(rng.choice(VIEWS))}")
            views.append(f"v{at}")
        else:
            form = rng.choice(WRITES)
            view = rng.choice([*views[-2:], fill(rng.choice(VIEWS)), pick()])
            source = rng.choice(["0.5", f"{pick()}.sum() * 0.01", view, f"{pick()}[0, 0]"])
            lines.append(form.format(v=view, s=source, a=pick(), b=pick()))
    returned = [name for name in (*names, *views) if rng.random() < 0.5 or name == names[-1]]
    body = "\n    ".join([*lines, f"return {', '.join(returned)}"])
    return f"def f(x, y, i, j, k):\n    {body}\n"
