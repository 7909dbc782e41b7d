"""The statements that random programs are made of, by kind, as templates.

Places in a template: {t} a tensor, {f} a float one, {i} an integer one, {b} a bool one; {y} a
tensor that broadcasts with the first, or a number; {s} one of the first one's sizes; {m} a mask for
the first; {x} indices; {c} a number; {k} a small int; {n} a size (an int expression); {d} and {e}
dimensions of the first; {D} what a reduction takes as `dim`; {p} a permutation; {q} a bool; {dt} a
dtype; {w} a tensor to write to. The generator fills them in and keeps what eager PyTorch accepts,
and a few of the others. `|` separates templates.
"""

from __future__ import annotations


def words(text: str) -> list[str]:
    return text.split()


def _split(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


UNARY = words("""
abs neg sign sgn square relu positive sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid erf erfc erfinv lgamma digamma
reciprocal floor ceil round trunc frac nan_to_num i0 logit isnan isinf isfinite isposinf
isneginf signbit logical_not bitwise_not sinc deg2rad rad2deg clone
""")
SPECIAL = words("""
entr erfcx expit expm1 i0e i1 log_ndtr ndtr ndtri xlog1py zeta bessel_j0 spherical_bessel_j0
""")
ACTIVATIONS = words("""
gelu silu softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid mish relu6 logsigmoid
softsign tanhshrink hardshrink softshrink relu tanh sigmoid
""")
BINARY = words("""
add sub mul div true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2
hypot copysign nextafter logaddexp logaddexp2 xlogy heaviside ldexp eq ne lt le gt ge
logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift
bitwise_right_shift gcd lcm rsub float_power
""")
OPERATORS = words("+ - * / // % ** == != < <= > >= & | ^ << >> + - * / + - *")

POINTWISE = [
    *(f"torch.{name}({{t}})" for name in UNARY),
    *(f"torch.special.{name}({{f}})" for name in SPECIAL if name not in ("xlog1py", "zeta")),
    *(f"F.{name}({{f}})" for name in ACTIVATIONS),
    *_split("""
F.gelu({f}, approximate='tanh') | F.softplus({f}, beta=2, threshold=1) | F.threshold({f}, {c}, {c})
F.elu({f}, 0.5) | F.glu({f}, {d}) | {t}.clamp({c}, {c}) | {t}.clamp(min={y}) | {t}.clamp(max={c})
{t}.nan_to_num({c}, {c}) | torch.round({f}, decimals={k}) | torch.logit({f}, 0.1) | {f}.mvlgamma(1)
torch.polygamma({k}, {f}) | -{t} | ~{i} | ~{b} | abs({t}) | {t}.view_as({t}) * 2
"""),
]
PAIRWISE = [
    *(f"torch.{name}({{t}}, {{y}})" for name in BINARY),
    *(f"{{t}} {operator} {{y}}" for operator in OPERATORS),
    *(f"{{c}} {operator} {{t}}" for operator in OPERATORS),
    *_split("""
torch.add({t}, {y}, alpha={c}) | torch.sub({t}, {y}, alpha={c}) | torch.where({m}, {t}, {y})
torch.where({b}, {c}, {t}) | torch.where({b}, {c}, {c}) | torch.lerp({f}, {s}, {c})
torch.lerp({f}, {s}, {s}) | torch.addcmul({f}, {s}, {s}, value={c}) | {t}.masked_fill({m}, {c})
torch.addcdiv({f}, {s}, {s}) | torch.div({t}, {y}, rounding_mode='floor')
torch.div({t}, {y}, rounding_mode='trunc') | torch.clamp({t}, {s}, {s}) | torch.isclose({f}, {s})
{t} + {t}.sum() | {t} * {t}.shape[{d}] | {t} / ({t}.numel() + 1) | {t} + True | {t} * {n}
torch.polar({f}, {f}).abs() | torch.complex({f}, {f}).angle() | torch.special.xlog1py({f}, {y})
torch.bitwise_and({i}, {k}) | {i} << {k} | {i} >> {k} | {t}.fmod({c}) | {t}.remainder({c})
torch.where({m}, {t}, {t}.mean() if {t}.is_floating_point() else {t}.sum()) | {t} ** {k}
F.mse_loss({f}, {s}, reduction='none') | F.smooth_l1_loss({f}, {s}) | F.huber_loss({f}, {s})
F.l1_loss({f}, {s}) | F.binary_cross_entropy_with_logits({f}, {s}) | F.kl_div({f}, {s})
F.mse_loss({f}, {y}, reduction='none') | F.huber_loss({f}, {y}, reduction='none')
F.cosine_similarity({f}, {s}, {d}) | F.pairwise_distance({f}, {s}) | torch.dist({f}, {s})
"""),
]
REDUCTIONS = [
    *(
        f"{{t}}.{name}({arguments})"
        for name in words("sum prod amax amin all any count_nonzero mean nansum nanmean")
        for arguments in ("", "{d}", "{D}")
    ),
    *(
        f"{{f}}.{name}({{d}}, keepdim={{q}})"
        for name in words("sum mean amax amin argmax argmin logsumexp var std prod all any norm")
    ),
    *_split("""
{t}.max() | {t}.min() | {t}.max({d}) | {t}.min({d}, keepdim={q}) | {t}.argmax() | {t}.argmin({d})
{f}.var() | {f}.std({D}) | {f}.var({d}, correction={k}) | torch.var_mean({f}, {d})
torch.std_mean({f}, {D}, keepdim={q}) | {f}.norm() | {f}.norm({c}, {d}) | {f}.norm(dim={d})
torch.linalg.vector_norm({f}, {k}, {D}) | torch.linalg.vector_norm({f}, inf) | {f}.median()
{f}.median({d}) | {f}.nanmedian() | {i}.mode({d}) | {t}.aminmax() | {t}.aminmax(dim={d})
{t}.sum(dtype={dt}) | {t}.sum({d}, dtype={dt}) | {t}.mean(dtype=torch.float32) | {t}.sum(({d}, {e}))
{t}.cumsum({d}) | {t}.cumprod({d}) | {t}.cummax({d}) | {t}.cummin({d}) | {f}.logcumsumexp({d})
{t}.cumsum({d}, dtype={dt}) | {t}.diff(dim={d}) | {t}.sort({d}, stable=True) | {t}.topk({k}, {d})
{t}.sort({d}, descending=True, stable=True) | {t}.argsort({d}, stable=True) | {t}.msort()
{f}.kthvalue(1, {d}) | {f}.quantile(0.5) | {f}.quantile(0.3, {d}) | torch.trapezoid({f}, dim={d})
torch.equal({t}, {s}) | torch.allclose({f}, {s}) | {t}.trace() | {f}.dist({s})
{f}.renorm(2, {d}, 1) | torch.histc({f}, 4, -2, 2) | torch.bincount({x}) | {t}.unique_consecutive()
{b}.sum({d})
"""),
]
NORMS = _split("""
{f}.softmax({d}) | {f}.log_softmax({d}) | {f}.softmax({d}, dtype=torch.float64)
F.softmin({f}, {d}) | F.layer_norm({f}, {f}.shape[-1:]) | F.layer_norm({f}, {f}.shape[-2:])
F.normalize({f}, dim={d})
F.layer_norm({f}, {f}.shape[-1:], {f}.reshape(-1)[:{f}.shape[-1]], None, 1e-3)
F.rms_norm({f}, {f}.shape[-1:]) | F.group_norm({f}, 1) | F.instance_norm({f})
F.normalize({f}, p=1) | F.batch_norm({f}, None, None, training=True) | F.local_response_norm({f}, 2)
F.batch_norm({f}, torch.zeros({f}.shape[1]), torch.ones({f}.shape[1])) | F.gumbel_softmax({f})
F.cross_entropy({f}, {x}) | F.nll_loss({f}, {x}) | F.cross_entropy({f}, {s}.softmax(-1))
F.avg_pool1d({f}, 2) | F.max_pool1d({f}, 2, 1) | F.max_pool2d({f}, 2) | F.avg_pool2d({f}, 2, 1, 1)
F.adaptive_avg_pool1d({f}, {k}) | F.adaptive_max_pool1d({f}, 2) | F.lp_pool1d({f}, 2, 2)
F.interpolate({f}[None], scale_factor=2) | F.interpolate({f}[None, None], size=5, mode='linear')
F.unfold({f}, 2) | F.pixel_shuffle({f}, 1) | F.conv1d({f}, {f}[:, :, :1])
F.dropout({f}, 0.5, False) | F.scaled_dot_product_attention({f}, {s}, {s}) | F.embedding({x}, {f})
F.one_hot({x}, 5)
""")
VIEWS = _split("""
{t}.permute({p}) | {t}.transpose({d}, {e}) | {t}[1:] | {t}[::2] | {t}[-2:] | {t}[..., 1::3]
{t}[:-1] | {t}.select({d}, 0) | {t}.select({d}, -1) | {t}[0] | {t}[..., -1] | {t}.unsqueeze({d})
{t}.unsqueeze(-1) | {t}.squeeze() | {t}.squeeze({d}) | {t}.flatten() | {t}.reshape(-1) | {t}.T
{t}.flatten({d}) | {t}.reshape({t}.shape[0], -1) | {t}.view({t}.shape) | {t}.view(-1) | {t}.mT
{t}.contiguous().view(-1, {t}.shape[-1]) | {t}.expand(2, *{t}.shape) | {t}.expand({n}, *{t}.shape)
{t}.diagonal() | {t}.diagonal({k}, {d}, {e}) | {t}.unfold({d}, 2, 1) | {t}.unfold({d}, {k}, 2)
{t}.split({k}, {d})[0] | {t}.split(2, {d})[-1] | {t}.chunk(2, {d})[0] | {t}.chunk({k}, {d})[-1]
{t}.unbind({d})[0] | {t}.unbind({d})[-1] | {t}.narrow({d}, 0, 1) | {t}.narrow({d}, {k}, {n})
{t}.movedim({d}, {e}) | {t}.as_strided((2, 2), (1, 1)) | {t}.as_strided((2,), ({k},), 1)
{t}.unflatten({d}, (1, -1)) | {t}.swapaxes(0, -1) | {t}.detach() | {t}[...] | {t}.view(torch.int32)
{t}.view(torch.int16) | {t}.view(torch.uint8) | {t}.view(torch.int64) | {t}.expand_as({t})
{t}.view(torch.float32) | {t}.broadcast_to((2, *{t}.shape)) | {t}.view_as({s}) | {t}.ravel()
{t}[:, None] | {t}[{k}:{n}] | {t}[..., None, :1] | {t}.tensor_split(2, {d})[0] | {t}.contiguous()
{t}.tensor_split(3, {d})[1] | {t}.real | {t}.reshape(2, -1) | {t}.reshape(-1, 2) | {t}[0:0]
{t}.view(*{t}.shape, 1) | torch.atleast_2d({t}) | {t}[{t}.shape[0] // 2:] | {t}[:{n}]
{t}.reshape({n}, {n}) | {t}.unflatten(0, ({n}, -1)) | {t}[-{k}:] | {t}[{n} - 1]
{t}.select({d}, {n}) | {t}.expand(-1, {n}) | {t}.view({n}, -1) | {t}.t() | {t}.adjoint()
{t}.squeeze(0).unsqueeze(0) | torch.broadcast_tensors({t}, {s})[0] | {t}.chunk(3, {d})
{t}.split([1, {t}.shape[{d}] - 1], {d})
""")
MOVES = _split("""
torch.cat([{t}, {s}], {d}) | torch.cat([{t}, {t}, {s}], {d}) | torch.cat([{t}, {t}[:0]])
{t}.tile(2) | torch.stack([{t}, {s}]) | torch.stack([{t}, {s}], -1) | F.pad({t}, (1, 2))
F.pad({t}, (-1, {k})) | F.pad({t}, (0, 1, 2, 0), value={c})
F.pad({f}[None], (1, 1), mode='reflect') | {t}.repeat(2, 1)
F.pad({f}[None], (1, 1), mode='replicate') | F.pad({f}[None], (1, 1), mode='circular')
{t}.roll(1, {d}) | {t}.roll(-2) | {t}.flip({d}) | {t}.repeat(2, *{t}.shape) | {t}.rot90()
{t}.repeat_interleave(2, {d}) | {t}.repeat_interleave({k}) | {t}.tril() | {t}.triu({k})
{t}.tril(-1) | torch.hstack([{t}, {t}]) | torch.vstack([{t}, {s}]) | torch.block_diag({t}, {t})
{t}.fliplr() | torch.meshgrid({t}.flatten()[:3], {t}.flatten()[:2], indexing='ij') | torch.diag({t})
torch.diag_embed({t}) | torch.cartesian_prod({t}.flatten()[:3], {t}.flatten()[:2]) | {t}.clone()
torch.column_stack([{t}, {t}]) | torch.tensor_split({t}, 2) | torch.unravel_index({x}, (5, 5))
{t}.clone(memory_format=torch.contiguous_format) | {t}.contiguous(memory_format=torch.channels_last)
""")
INDEXING = _split("""
{t}[{x}] | {t}[{x}, {x}] | {t}[:, {x}] | {t}[{x}, :1] | {t}[..., {x}] | {t}[{x}, None]
{t}[[0, -1]] | {t}[{m}] | {t}[{t} > {c}] | {t}[{b}] | {t}.index_select({d}, {x})
{t}.gather({d}, {x}) | {t}.gather({d}, {t}.argsort({d}, stable=True)) | torch.take({t}, {x})
{t}.masked_select({m}) | {t}.take_along_dim({t}.argsort({d}, stable=True), {d})
{t}[torch.tensor([0, -1])] | {t}[{x}[:1]] | {t}[{t}.shape[0] - 1] | {t}[torch.arange({t}.shape[0])]
{t}[torch.arange({t}.shape[0]), 0] | torch.bucketize({f}, torch.tensor([-1.0, 0.0, 1.0]))
torch.searchsorted({f}.sort(-1)[0], {f}) | torch.isin({i}, {x}) | {t}[-1] | {t}[:, -1]
{t}[{t}.argmax() // 7] | {t}[0, ..., None] | {t}[True]
torch.index_select({t}, {d}, {t}.shape[{d}] - 1 - torch.arange({t}.shape[{d}]))
torch.combinations({t}.flatten()[:4]) | {t}.index_add({d}, {x}, {t}) | {t}[None, {x}, ..., ::2]
""")
SCATTER = _split("""
{t}.scatter({d}, {x}, {c}) | {t}.scatter({d}, {t}.argsort({d}, stable=True), {s})
{t}.scatter_add({d}, {x}, {s}) | {f}.scatter_add({d}, torch.zeros_like({f}, dtype=torch.int64), {f})
{f}.scatter_reduce({d}, {f}.argsort({d}, stable=True), {s}, 'amax') | {t}.index_fill({d}, {x}, {c})
{f}.scatter_reduce({d}, torch.zeros_like({f}, dtype=torch.int64), {f}, 'mean', include_self={q})
{t}.index_add({d}, {x}, {t}.index_select({d}, {x})) | {t}.masked_scatter({m}, {t})
{t}.index_copy({d}, torch.tensor([0]), {t}.narrow({d}, 0, 1)) | {t}.index_put(({x},), {t}[{x}])
{t}.index_put(({x},), {t}[:1], accumulate=True)
torch.select_scatter({t}, {t}.select({d}, 0), {d}, -1) | torch.slice_scatter({t}, {t}[:1], 0, 0, 1)
torch.diagonal_scatter({t}, {t}.diagonal() * 2) | {t}.index_reduce(0, {x}, {t}[{x}], 'amax')
{t}.put({x}, {t}.flatten()[:{x}.numel()]) | {t}.scatter({d}, {x}.unsqueeze(-1), {c}, reduce='add')
torch.zeros({n}).scatter_(0, {x}, {c})
""")
MATMUL = _split("""
{f} @ {f}.mT | torch.matmul({f}, {s}.mT) | {f} @ {f}.flatten()[:{f}.shape[-1]]
torch.mm({f}, {s}.t()) | F.linear({f}, {f}.reshape(-1, {f}.shape[-1])) | torch.bmm({f}, {s}.mT)
torch.outer({f}, {f}) | torch.einsum('...i,...i->...', {f}, {s})
torch.einsum('ij,kj->ik', {f}, {s}) | torch.dot({f}, {s}) | torch.einsum('ij->ji', {f})
torch.einsum('ij,ij->', {f}, {s}) | torch.inner({f}, {s}) | {f}.mv({f}[0])
torch.addmm({f}, {f}, {f}) | torch.addmm({f}[:1], {f}, {f}.t(), beta={c}, alpha={c}) | {i} @ {i}.mT
torch.baddbmm({f}, {f}, {f}) | torch.tensordot({f}, {s}, {f}.dim()) | torch.kron({t}, {t}[:1])
torch.linalg.multi_dot([{f}, {f}.t(), {f}]) | torch.cdist({f}, {s}) | torch.chain_matmul({f}, {f}.T)
torch.linalg.det({f}) | torch.cross({f}, {s}) | torch.linalg.matrix_power({f}, 2)
{f} @ {f}[..., :1]
""")
CREATION = _split("""
torch.zeros({n}) | torch.ones({n}, {k}) | torch.full(({n},), {c}) | torch.full_like({t}, {c})
torch.zeros({t}.shape, dtype={dt}) | torch.ones_like({t}, dtype={dt}) | torch.arange({n})
torch.eye({n}) | torch.arange(0, {n}, 2) | torch.arange({c}, {n} + 1) | torch.linspace(0, 1, {n})
torch.tensor({c}) | torch.tensor([{c}, {c}]) | torch.tensor([[1, {n}]])
{t}.new_zeros({t}.shape[:1]) | {t}.new_ones({n}, 2) | torch.empty({n}).fill_({c})
torch.empty_like({t}).zero_() | torch.scalar_tensor({c}) | torch.zeros({n}, {n})
torch.as_tensor([{n}, 1]) | {t}.new_full((2,), {c}) | {t}.new_tensor([1, 2])
torch.tril_indices({k}, {k}) | torch.eye({k}, {n}, dtype={dt}) | torch.logspace(0, 1, {n})
torch.empty(0) | torch.tensor([{t}.shape[0], {t}.dim()]) | torch.zeros(()) | torch.hann_window({n})
torch.ones({n}, 0)
""")
CASTS = _split("""
{t}.to({dt}) | {t}.to({dt}) | {t}.float() | {t}.double() | {f}.half() | {t}.bfloat16() | {t}.long()
{t}.int() | {t}.bool() | {t}.type_as({s}) | {t}.to({t}.dtype) | {t}.to(torch.uint8) | {t}.to({s})
{t}.to({dt}, copy=True) | {t}.short() | {t}.to(torch.int8) | {t}.to({dt}).to({t}.dtype)
""")
RANDOM = _split("""
F.dropout({f}, 0.5) | torch.rand_like({f}) | torch.rand({t}.shape) | torch.randn({n})
torch.rand({n}, 2) | torch.bernoulli({f}.sigmoid()) | {t}[torch.randperm({t}.shape[0])]
torch.randn_like({f}) | torch.randint(0, 5, {t}.shape) | torch.empty({t}.shape).uniform_(0, 1)
torch.normal(0.0, 1.0, {t}.shape) | F.dropout({f}, 0.3, training=False) | torch.randint_like({t}, 3)
torch.rand(3, 1) + {t}.sum() | torch.multinomial({f}.abs().flatten() + 0.1, 2) | torch.randperm({n})
F.alpha_dropout({f}, 0.5, True) | torch.empty({n}).exponential_() | F.rrelu({f}, training=True)
torch.poisson({f}.abs())
""")
DATA_DEPENDENT = _split("""
{t}.nonzero() | torch.unique({t}) | {t}.unique(return_counts=True) | {t}[{t} != 0]
{t}.sum().item() | int({i}.sum()) | float({f}.sum()) | bool({t}.any()) | {t}.flatten().tolist()
{t}.flatten()[0].item() | torch.zeros(int({b}.sum())) | {t}[:int({b}.sum())]
torch.nonzero({m}, as_tuple=True) | len({t}.nonzero()) | {t}.masked_fill({t}.unique()[:1] > 0, 1)
torch.where({m}) | {t}[{m}].sum() | {t}[{m}] * 2 | torch.arange(int({b}.sum())) + 1 | {t}.argwhere()
{t}.repeat_interleave({x}.abs()[:1]) | {t}.tolist() | torch.full((2,), {f}.mean().item())
{t}.unique()[None] + {t}.unique()[:, None] | {t}.max().item() + 1
""")
WRITES = [
    *(
        f"{{w}}.{name}_()"
        for name in words("""
abs neg sign square relu sin cos tanh exp log sqrt sigmoid floor ceil round trunc reciprocal
zero nan_to_num logical_not erf expm1 log1p frac
""")
    ),
    *(
        f"{{w}}.{name}_({{y}})"
        for name in words("""
add sub mul div copy copy floor_divide remainder fmod pow eq lt gt logical_and logical_or
bitwise_and clamp_min clamp_max atan2 xlogy
""")
    ),
    *_split("""
{w}.fill_({c}) | {w}.clamp_({c}, {c}) | {w}.masked_fill_({m}, {c})
{w}.masked_fill_({w} > {c}, {c}) | {w}.add_({w}) | {w}.copy_({w}.flip(0)) | {w}.mul_({w}.sum())
{w}.add_({y}, alpha={c}) | {w}[0] = {c} | {w}[..., 0] = {c} | {w}[1:] = {w}[:-1]
{w}[1:] = {w}[:-1].clone() | {w}[::2] = {y} | {w}[..., -1] += 1 | {w}[-1] = {w}[0] | {w}[:] = {y}
{w}[...] = {c} | {w}[{w} > 0] = {c} | {w}[{m}] = {c} | {w}[{x}] = {c} | {w}[{x}] += {c}
{w}[{x}] = {w}[{x}] * 2 | {w}[0, ...] *= 2 | {w}[None, ..., 0] = {c} | {w}[1:2] = 1 | {w}[0:0] = 5
{w}.transpose({d}, {e}).add_({y}) | {w}.T.mul_(2) | {w}.view(-1)[1:].fill_({c})
{w}.flatten()[0:1].zero_() | {w}.diagonal().zero_() | {w}.diagonal().add_({c})
{w}.unsqueeze({d}).sub_(1) | {w}.squeeze().add_(1)
{w}.narrow({d}, 0, 1).copy_({w}.narrow({d}, -1, 1)) | {w}.chunk(2, {d})[-1].mul_(2)
{w}.unbind({d})[0].add_(1) | {w}.split(1, {d})[-1].fill_(1) | {w}.unfold({d}, 2, 2).add_(1)
{w}.as_strided((2,), (1,)).add_(1) | {w}.reshape(-1)[::2].mul_(2) | {w}[1:][0].fill_(4)
{w}[..., 1:][..., ::2].add_(1) | {w}.detach().add_(1) | {w}.view(torch.int32).zero_()
{w}.T[0].add_(2) | {w}.index_fill_({d}, {x}, {c})
{w}.index_add_({d}, {x}, {w}.index_select({d}, {x}).clone())
{w}.index_copy_({d}, torch.tensor([0]), {w}.narrow({d}, -1, 1).clone()) | {w}.lerp_({s}, {c})
{w}.scatter_({d}, {x}, {c}) | {w}.scatter_add_({d}, {x}, {s}) | {w}.masked_scatter_({m}, {s})
{w}.addcmul_({s}, {s}) | {w}.addcdiv_({s}, {s}, value={c}) | {w}.bernoulli_(0.5) | {w}.uniform_()
{w}.normal_() | {w}.random_(0, 5) | {w}.cumsum_({d}) | {w}.tril_() | {w}.triu_() | {w} += {y}
{w} *= {c} | {w} -= {y} | {w} /= {y} | {w} //= 2 | {w} **= 2 | {w} %= {c} | {w} &= {y}
{w}.put_({x}, {w}.flatten()[{x}]) | F.relu({w}, inplace=True) | F.dropout({w}, 0.5, inplace=True)
F.hardtanh({w}, inplace=True) | {w}.index_put_(({x},), {w}[:1].clone(), accumulate=True)
{w}.scatter_reduce_(0, {x}, {s}, 'sum') | {w}[{k}:{n}] = {c} | {w}[:{n}] += {c} | {w}[{n} - 1] = {c}
{w}[:, {k}:].mul_({c}) | {w}[..., {x}] = {c} | {w}.squeeze_() | {w}.unsqueeze_(0)
{w}.transpose_({d}, {e}) | {w}.t_() | {w}.squeeze_({d}) | {w}.addmm_({s}, {s}) | {w}.copy_({t})
{w}[1:].copy_({t}[:-1]) | {w}[:-1].add_({t}[1:]) | {w}.sub_({t}) | {w}[{m}] += 1
{w}.fill_diagonal_({c}) | {w}.data.add_(1) | {w}.swapaxes_(0, -1) | {w}.exponential_()
{w}.renorm_(2, 0, 1)
"""),
]
OUT = [
    *(
        f"torch.{name}({{t}}, {{y}}, out={{w}})"
        for name in words("add sub mul div maximum eq pow atan2 bitwise_and")
    ),
    *(f"torch.{name}({{t}}, out={{w}})" for name in words("neg abs sin exp sqrt sigmoid isfinite")),
    *_split("""
torch.cat([{t}, {s}], out={w}) | torch.sum({t}, {d}, out={w}) | torch.clamp({t}, {c}, {c}, out={w})
torch.cumsum({t}, {d}, out={w}) | torch.matmul({f}, {s}, out={w}) | torch.stack([{t}, {s}], out={w})
torch.where({m}, {t}, {s}, out={w}) | torch.arange({n}, out={w}) | torch.mean({f}, {d}, out={w})
torch.amax({t}, {d}, out={w}) | torch.sort({t}, {d}, out=({w}, torch.empty(0, dtype=torch.int64)))
torch.index_select({t}, {d}, {x}, out={w}) | torch.gather({t}, {d}, {x}, out={w})
"""),
]
# What eager PyTorch refuses, at these sizes or always.
RAISES = _split("""
{t}[{t}.shape[0] + 5] | {t}[torch.tensor([99])] | {i} // ({i} * 0) | {i} % torch.zeros_like({i})
{t}.gather(0, torch.full_like({t}, 77, dtype=torch.int64)) | F.embedding(torch.tensor([500]), {f})
{f} @ torch.ones(97, 3) | {t}.view(7, 11, 13) | {t} + torch.ones(91, 93) | {t}.sum(9)
{t}.permute(0, 0) | {t}.index_select(0, torch.tensor([98]))
torch.div({i}, {i} - {i}, rounding_mode='floor') | {t}.select(0, 96) | torch.bernoulli({f} + 5)
torch.cat([{t}, torch.ones(3, 1, 2, 1, 7)]) | torch.take({t}, torch.tensor([9999]))
torch.add({t}, 'a') | {t}.foo | torch.softmax({i}, 0) | {t}.item() | {t}.add_(torch.ones(31, 37))
{w}[torch.tensor([77])] = 1 | torch.zeros(-{k} - 1) | bool({t}) | {t}.max(7)
{t}.expand({n} + 3, {n} + 2) | {t}.reshape(-1, 7) | torch.stack([{t}, {t}[:0]]) | torch.ones({t})
{f}.scatter_(0, torch.full_like({f}, 55, dtype=torch.int64), 1) | int('x') | [][1] | {}['missing']
1 // 0 | torch.mm({t}, {t}, {t}) | torch.full((2,), 'x') | {t}.to('nowhere') | None + 1
{t}.transpose(0, 8)
""")
PYTHON = _split("""
items.append({t}) | items.extend([{t}, {t}]) | items[-1] = {t} | table['k'] = {t} | table['n'] = {n}
box.value = {t} | box.count = box.count + 1 | SEEN.append({n}) | opaque({t}) | opaque(None)
items.pop() | print(end='') | pliant.graph_break() | helper({t}) | helper({t}, scale={c})
items.reverse() | (lambda a, b={c}: a * b)({t}) | [{t}, {t}][0] | {'a': {t}}['a']
[v * 2 for v in items] | sum(items, {t}) | max({n}, {k}) | {n} + {k} | {n} * 2 | {n} // 2 | {n} % 3
-{n} | {t}.shape | {t}.dim() | list({t}.shape) | {t}.numel() | str({t}.dtype) | {t}.is_contiguous()
{t}.stride() | {t}.shape[{d}] | len({t}) | ({t}, {n}) | {t} is {t} | isinstance({t}, torch.Tensor)
torch.is_tensor({n}) | table.get('k', {t}) | dict(table, z={t}) | tuple(reversed(items))
list(map(torch.neg, items)) | [*items, {t}] | list(zip(items, items)) | torch.stack(items)
torch.cat([i.flatten() for i in items]) | {k: v for k, v in table.items()}
{t}.dtype is torch.float32 | {t}.is_floating_point() | f'{ {n} }' | math.sqrt({n})
float({n}) * {f} | torch.manual_seed({k}) | {t}.requires_grad | {t}.storage_offset()
{t}._is_view() | torch.is_grad_enabled() | setattr(box, 'extra', {t}) | getattr(box, 'value', {t})
vars(box).get('value', {n}) | {t}.element_size() | [v for v in items if v.dim() > 1]
any(v.dim() == 1 for v in items) | sorted([{n}, {k}, 2]) | {t}.shape == {t}.shape
{t}.shape[0] == {n} | {t}.size({d}) > 2 | items.index(items[0])
""")

# By kind: how often, and the templates.
KINDS: dict[str, tuple[int, list[str]]] = {
    "pointwise": (16, POINTWISE),
    "pairwise": (20, PAIRWISE),
    "reductions": (10, REDUCTIONS),
    "norms": (5, NORMS),
    "views": (16, VIEWS),
    "moves": (7, MOVES),
    "indexing": (8, INDEXING),
    "scatter": (4, SCATTER),
    "matmul": (4, MATMUL),
    "creation": (6, CREATION),
    "casts": (5, CASTS),
    "random": (3, RANDOM),
    "data": (5, DATA_DEPENDENT),
    "writes": (20, WRITES),
    "out": (3, OUT),
    "raises": (1, RAISES),
    "python": (14, PYTHON),
}
