"""Small programs from numerical, signal, image and data code, as people write them: buffers that
are made inside and written by slice, mask and index, rows that are swapped, buffers that take
turns, `out=`, tables that are filled in loops. Eager PyTorch says what they do."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import rand, randn

import pliant
from pliant.base import events

pytestmark = pytest.mark.own_default

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple], tuple[int, ...], bool]] = {}
CLOSE = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}


def program(make: Callable[[int], tuple], sizes: tuple[int, ...] = (5, 1, 0, 8), grad=False):
    """`make` gives the arguments for a size."""

    def keep(function):
        PROGRAMS[function.__name__] = function, make, sizes, grad
        return function

    return keep


def integers(end: int, *sizes: int) -> torch.Tensor:
    return torch.randint(0, max(end, 1), sizes)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def outcome(function, args, grad: bool) -> dict[str, Any]:
    """What a call leaves: its result or its error, its arguments, gradients, and which of these
    tensors share memory."""
    torch.manual_seed(1)
    for tensor in tensors(args):
        tensor.requires_grad_(grad and tensor.is_floating_point())
    try:
        with torch.set_grad_enabled(grad):
            result = function(*args)
            total = sum(t.sum() for t in tensors(result) if t.requires_grad)
            if isinstance(total, torch.Tensor):
                total.backward()
    except Exception as error:
        return {"error": (type(error), str(error).partition("\n")[0])}
    everything = tensors((args, result))
    memory = [t.untyped_storage()._cdata for t in everything]
    return {
        "result": result,
        "tensors": everything,
        "grads": [t.grad for t in tensors(args) if t.is_leaf and t.grad is not None],
        "layouts": [(t.dtype, t.shape, t.stride(), t.storage_offset()) for t in everything],
        "shared": [memory.index(m) for m in memory],
        "random": torch.get_rng_state(),
    }


@program(lambda n: (randn(n), integers(4, n)), grad=True)
def segment_stats(x, seg):
    k = 4
    totals = torch.zeros(k).index_add_(0, seg, x)
    counts = torch.zeros(k).index_add_(0, seg, torch.ones_like(x))
    squares = torch.zeros(k).index_add_(0, seg, x * x)
    mean = totals / counts.clamp(min=1)
    var = squares / counts.clamp(min=1) - mean**2
    return mean, var, counts


@program(lambda n: (integers(3, n),))
def run_length(x):
    if x.numel() == 0:
        return x, torch.zeros(0, dtype=torch.long)
    change = torch.ones(len(x), dtype=torch.bool)
    change[1:] = x[1:] != x[:-1]
    starts = change.nonzero().squeeze(1)
    lengths = torch.empty_like(starts)
    lengths[:-1] = starts[1:] - starts[:-1]
    lengths[-1] = len(x) - starts[-1]
    return x[starts], lengths


@program(lambda n: (integers(3, n), integers(2, n), randn(n)))
def pivot(rows, cols, vals):
    r, ri = torch.unique(rows, return_inverse=True)
    c, ci = torch.unique(cols, return_inverse=True)
    table = torch.zeros(len(r), len(c))
    counts = torch.zeros(len(r), len(c))
    table.index_put_((ri, ci), vals, accumulate=True)
    counts.index_put_((ri, ci), torch.ones_like(vals), accumulate=True)
    table /= counts
    table[counts == 0] = float("nan")
    return r, c, table


@program(lambda n: (integers(255, n),))
def radix_sort(x):
    a, b = x.clone(), torch.empty_like(x)
    for shift in (0, 2, 4, 6):
        digit = (a >> shift) & 3
        onehot = (digit[:, None] == torch.arange(4)).long()
        count = onehot.sum(0)
        start = torch.zeros(4, dtype=torch.long)
        start[1:] = count.cumsum(0)[:-1]
        rank = onehot.cumsum(0).gather(1, digit[:, None]).squeeze(1) - 1
        b[start[digit] + rank] = a
        a, b = b, a
    return a


@program(lambda n: (randn(n),), grad=True)
def ema(x, alpha=0.3):
    if len(x) == 0:
        return x
    y = torch.empty_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = alpha * x[i] + (1 - alpha) * y[i - 1]
    return y


@program(
    lambda n: (randn(n), torch.tensor([0.2, 0.3, 0.1]), torch.tensor([1.0, -0.5, 0.1])), grad=True
)
def iir(x, b, a):
    y = torch.zeros_like(x)
    z = torch.zeros(3)
    for i in range(len(x)):
        y[i] = b[0] * x[i] + z[0]
        z[:-1] = b[1:] * x[i] - a[1:] * y[i] + z[1:]
    return y, z


@program(lambda n: (randn(n, 4),), grad=True)
def overlap_add(frames):
    hop = 2
    n, w = frames.shape
    out = torch.zeros((n - 1) * hop + w if n else 0)
    norm = torch.zeros_like(out)
    win = torch.hann_window(w)
    for i in range(n):
        out[i * hop : i * hop + w] += frames[i] * win
        norm[i * hop : i * hop + w] += win**2
    return out / norm.clamp(min=1e-3)


@program(lambda n: (randn(n, 6) > 0,))
def morphology(mask):
    def dilate(m):
        out = m.clone()
        out[1:] |= m[:-1]
        out[:-1] |= m[1:]
        out[:, 1:] |= m[:, :-1]
        out[:, :-1] |= m[:, 1:]
        return out

    def erode(m):
        return ~dilate(~m)

    return dilate(erode(mask)), erode(dilate(mask)), dilate(mask) ^ erode(mask)


@program(lambda n: (randn(n, 5) > 0,))
def components(mask):
    h, w = mask.shape
    labels = torch.arange(1, h * w + 1).reshape(h, w) * mask
    while True:
        new = labels.clone()
        new[1:] = torch.maximum(new[1:], labels[:-1])
        new[:-1] = torch.maximum(new[:-1], labels[1:])
        new[:, 1:] = torch.maximum(new[:, 1:], labels[:, :-1])
        new[:, :-1] = torch.maximum(new[:, :-1], labels[:, 1:])
        new *= mask
        if torch.equal(new, labels):
            return labels
        labels = new


@program(lambda n: (randn(n, 4) > 0.3,))
def distance_transform(mask):
    h, w = mask.shape
    d = torch.full((h, w), 99.0)
    d[mask] = 0
    for i in range(1, h):
        torch.minimum(d[i], d[i - 1] + 1, out=d[i])
    for i in range(h - 2, -1, -1):
        d[i] = torch.minimum(d[i], d[i + 1] + 1)
    for j in range(1, w):
        d[:, j] = torch.minimum(d[:, j], d[:, j - 1] + 1)
    for j in reversed(range(w - 1)):
        d[:, j] = torch.minimum(d[:, j], d[:, j + 1] + 1)
    return d


@program(lambda n: (integers(6, n, 2),))
def hough(pts):
    thetas = torch.linspace(0, math.pi, 7)[:-1]
    acc = torch.zeros(20, 6, dtype=torch.int32)
    rho = pts[:, :1] * thetas.cos() + pts[:, 1:] * thetas.sin()
    idx = (rho + 9).round().long()
    for t in range(6):
        acc[:, t].index_add_(0, idx[:, t], torch.ones(len(pts), dtype=torch.int32))
    best = acc.argmax()
    return acc, best // 6, best % 6


@program(lambda n: (rand(3, n, 4),))
def rgb_to_hsv(img):
    r, g, b = img.unbind(0)
    maxc, arg = img.max(0)
    minc = img.min(0).values
    delta = maxc - minc
    h = torch.zeros_like(maxc)
    s = torch.zeros_like(maxc)
    nz = delta > 0
    m = nz & (arg == 0)
    h[m] = ((g - b)[m] / delta[m]) % 6
    m = nz & (arg == 1)
    h[m] = (b - r)[m] / delta[m] + 2
    m = nz & (arg == 2)
    h[m] = (r - g)[m] / delta[m] + 4
    s[maxc > 0] = delta[maxc > 0] / maxc[maxc > 0]
    out = torch.empty_like(img)
    out[0], out[1], out[2] = h / 6, s, maxc
    return out


@program(lambda n: (torch.randint(0, 256, (n, 5), dtype=torch.uint8),))
def equalise(img):
    hist = torch.bincount(img.flatten().long(), minlength=256)
    cdf = hist.cumsum(0)
    nz = cdf[cdf > 0]
    if nz.numel() == 0:
        return img
    lo = nz[0]
    lut = ((cdf - lo) * 255 / (img.numel() - lo).clamp(min=1)).round().clamp(0, 255).to(torch.uint8)
    return lut[img.long()]


@program(lambda n: (rand(n, 4),), sizes=(3, 1, 0, 2))
def dither(img):
    img = img.clone()
    h, w = img.shape
    for y in range(h):
        for x in range(w):
            old = img[y, x].clone()
            new = (old > 0.5).float()
            img[y, x] = new
            err = old - new
            if x + 1 < w:
                img[y, x + 1] += err * 7 / 16
            if y + 1 < h:
                if x > 0:
                    img[y + 1, x - 1] += err * 3 / 16
                img[y + 1, x] += err * 5 / 16
                if x + 1 < w:
                    img[y + 1, x + 1] += err / 16
    return img


@program(lambda n: (randn(n + 2),), grad=True)
def heat(u0):
    u, v = u0.clone(), torch.empty_like(u0)
    for _ in range(4):
        v[1:-1] = u[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        v[0] = 0
        v[-1] = v[-2]
        u, v = v, u
    return u


@program(lambda n: (randn(n + 2),))
def heat_both(u):
    v = u.clone()
    for _ in range(3):
        v[1:-1] = u[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u, v = v, u
    return u, v


@program(lambda n: (randn(n + 2, 4),))
def wave(u):
    prev = u.clone()
    nxt = torch.zeros_like(u)
    energy = []
    for _ in range(3):
        lap = torch.zeros_like(u)
        lap[1:-1, 1:-1] = (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        )
        nxt[:] = 2 * u - prev + 0.1 * lap
        nxt[0] = nxt[-1] = 0
        nxt[:, 0] = nxt[:, -1] = 0
        prev, u, nxt = u, nxt, prev
        energy.append((u**2).sum())
    return u, torch.stack(energy)


@program(lambda n: (randn(n, n) + 3 * torch.eye(n),))
def lu_inplace(A):
    n = A.shape[0]
    piv = torch.arange(n)
    for k in range(n):
        p = int(A[k:, k].abs().argmax()) + k
        if p != k:
            A[[k, p]] = A[[p, k]]
            piv[[k, p]] = piv[[p, k]]
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= torch.outer(A[k + 1 :, k], A[k, k + 1 :])
    return A, piv


@program(lambda n: (randn(n + 1, n),), sizes=(4, 1, 0, 3))
def householder(A):
    m, n = A.shape
    R_ = A.clone()
    Q = torch.eye(m)
    for k in range(n):
        x = R_[k:, k]
        v = x.clone()
        v[0] += torch.copysign(x.norm(), x[0])
        v /= v.norm()
        R_[k:, k:] -= 2 * torch.outer(v, v @ R_[k:, k:])
        Q[:, k:] -= 2 * torch.outer(Q[:, k:] @ v, v)
    return Q, R_.triu()


@program(lambda n: (randn(n, 3), randn(n, 3), rand(n) + 1))
def nbody_leapfrog(pos, vel, mass):
    def acc():
        d = pos[None] - pos[:, None]
        r3 = (d.pow(2).sum(-1) + 0.01) ** -1.5
        return (d * (mass[None, :] * r3)[..., None]).sum(1)

    a = acc()
    for _ in range(3):
        vel += 0.5 * 0.01 * a
        pos += 0.01 * vel
        a = acc()
        vel += 0.5 * 0.01 * a
    return pos, vel, 0.5 * (mass * vel.pow(2).sum(1)).sum()


@program(lambda n: (randn(n + 1), rand(n + 1) + 0.1))
def particle_filter(parts, w):
    n = len(parts)
    for _ in range(2):
        parts = parts + 0.1 * torch.randn(n)
        w = w * torch.exp(-((parts - 0.5) ** 2))
        w /= w.sum()
        if 1 / (w**2).sum() < n * 0.9:
            pos = (torch.arange(n) + torch.rand(1)) / n
            idx = torch.searchsorted(w.cumsum(0), pos).clamp(max=n - 1)
            parts = parts[idx]
            w = torch.full_like(w, 1 / n)
    return parts, w


@program(lambda n: (integers(3, n), integers(3, 4)))
def edit_distance(a, b):
    n, m = len(a), len(b)
    prev = torch.arange(m + 1)
    cur = torch.zeros(m + 1, dtype=torch.long)
    for i in range(1, n + 1):
        cur[0] = i
        for j in range(1, m + 1):
            cur[j] = torch.min(
                torch.stack([prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (a[i - 1] != b[j - 1])])
            )
        prev, cur = cur, prev
    return prev[m]


@program(lambda n: (rand(n, n) * 9,))
def floyd_inplace(d):
    for k in range(len(d)):
        torch.minimum(d, d[:, k : k + 1] + d[k : k + 1, :], out=d)
    return d


@program(lambda n: (integers(n, 2 * n), integers(n, 2 * n), rand(2 * n)))
def bellman_ford(src, dst, w):
    n = len(w) // 2
    dist = torch.full((n,), float("inf"))
    if n:
        dist[0] = 0
    for _ in range(3):
        dist.scatter_reduce_(0, dst, dist[src] + w, "amin")
    return dist


@program(lambda n: (rand(n, n) > 0.6,))
def bfs(adj):
    n = len(adj)
    dist = torch.full((n,), -1)
    if n == 0:
        return dist
    frontier = torch.zeros(n, dtype=torch.bool)
    frontier[0] = True
    dist[0] = 0
    d = 0
    while frontier.any():
        d += 1
        nxt = (adj & frontier[:, None]).any(0) & (dist < 0)
        dist[nxt] = d
        frontier = nxt
    return dist


@program(lambda n: (rand(n) * 4,))
def bisect(t):
    lo, hi = torch.zeros_like(t), torch.zeros_like(t)
    hi += 4
    for _ in range(8):
        mid = (lo + hi) / 2
        below = mid**2 < t
        lo[below] = mid[below]
        hi[~below] = mid[~below]
    return lo, hi


@program(lambda n: (rand(n), randn(6)), grad=True)
def bspline(x, coef):
    deg = 2
    knots = torch.cat(
        [torch.zeros(deg), torch.linspace(0, 1, len(coef) - deg + 1), torch.ones(deg)]
    )
    B = ((x[:, None] >= knots[:-1]) & (x[:, None] < knots[1:])).float()
    for d in range(1, deg + 1):
        left = torch.zeros(len(x), B.shape[1] - 1)
        right = torch.zeros(len(x), B.shape[1] - 1)
        den = knots[d:-1] - knots[: -d - 1]
        ok = den > 0
        left[:, ok] = (x[:, None] - knots[: -d - 1])[:, ok] / den[ok] * B[:, :-1][:, ok]
        den = knots[d + 1 :] - knots[1:-d]
        ok = den > 0
        right[:, ok] = (knots[d + 1 :] - x[:, None])[:, ok] / den[ok] * B[:, 1:][:, ok]
        B = left + right
    return B @ coef


@program(lambda n: (rand(n, 3) * 2, randn(n, 2)))
def voxelise(pts, feat):
    vox = (pts / 1.0).long()
    key = (vox[:, 0] * 4 + vox[:, 1]) * 4 + vox[:, 2]
    u, inv, cnt = torch.unique(key, return_inverse=True, return_counts=True)
    cent = torch.zeros(len(u), 3).scatter_add_(0, inv[:, None].expand(-1, 3), pts)
    cent /= cnt[:, None]
    mx = torch.zeros(len(u), 2).scatter_reduce_(
        0, inv[:, None].expand(-1, 2), feat, "amax", include_self=False
    )
    mn = torch.zeros(len(u), 2).scatter_reduce_(
        0, inv[:, None].expand(-1, 2), feat, "amin", include_self=False
    )
    return cent, mx, mn, u


@program(lambda n: (randn(n + 1, 3),))
def farthest_points_item(p):
    n = len(p)
    sel = []
    dist = p.new_full((n,), 1e10)
    far = 0
    for _ in range(min(n, 3)):
        sel.append(far)
        torch.min(dist, ((p - p[far]) ** 2).sum(-1), out=dist)
        far = int(torch.argmax(dist))
    return sel, p[sel]


@program(lambda n: (randn(5, 3), integers(5, n, 3)), grad=True)
def mesh_normals(v, f):
    a, b, c = v[f].unbind(1)
    fn = torch.linalg.cross(b - a, c - a)
    vn = torch.zeros_like(v)
    for k in range(3):
        vn.index_add_(0, f[:, k], fn)
    area = torch.zeros(len(v))
    for k in range(3):
        area.index_add_(0, f[:, k], fn.norm(dim=1) / 6)
    return torch.nn.functional.normalize(vn, dim=1), area


@program(
    lambda n: (
        torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32),
        torch.randint(0, 256, (n,), dtype=torch.uint8),
        torch.randint(-(2**62), 2**62, (n,)),
    )
)
def bit_tricks(i32, u8, i64):
    v = i32 - ((i32 >> 1) & 0x55555555)
    v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
    pop = (((v + (v >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24
    gray = u8 ^ (u8 >> 1)
    h = i64 * 6364136223846793005 + 1442695040888963407
    h ^= h >> 33
    h *= -49064778989728563
    rot = (u8 << 3) | (u8 >> 5)
    return pop, gray, h, rot, u8 + 200, u8 * 3, -u8, ~u8, i32 * i32


@program(lambda n: (n,))
def mandelbrot(n):
    re = torch.linspace(-2, 1, n)
    im = torch.linspace(-1, 1, n)
    c = torch.complex(re[None, :].expand(n, n), im[:, None].expand(n, n))
    z = torch.zeros_like(c)
    count = torch.zeros(n, n, dtype=torch.int32)
    alive = torch.ones(n, n, dtype=torch.bool)
    for _ in range(6):
        z[alive] = z[alive] ** 2 + c[alive]
        alive &= z.abs() <= 2
        count += alive
    return count


@program(lambda n: (integers(3, n), integers(3, n)))
def two_key_sort(a, b):
    o = b.argsort(stable=True)
    o = o[a[o].argsort(stable=True)]
    rank = torch.empty_like(o)
    rank[o] = torch.arange(len(o))
    return a[o], b[o], rank


@program(lambda n: (torch.where(rand(n, 3) > 0.7, float("nan"), randn(n, 3)),))
def nan_stats(x):
    ok = ~x.isnan()
    cnt = ok.sum(0)
    s = torch.where(ok, x, 0).sum(0)
    mean = s / cnt
    filled = x.clone()
    filled[~ok] = mean.expand_as(x)[~ok]
    x[~ok] = 0
    return mean, filled, torch.nanmean(x, 0), cnt


@program(lambda n: (randn(n + 2, 3),))
def swap_rows(a):
    a[0], a[1] = a[1], a[0]
    return a


@program(lambda n: (randn(n), randn(n)))
def out_slices(a, b):
    n = len(a)
    buf = torch.empty(2, n)
    torch.add(a, b, out=buf[0])
    torch.sub(a, b, out=buf[1])
    buf2 = torch.empty(2, n)
    torch.maximum(a, b, out=buf2[0])
    torch.minimum(a, b, out=buf2[1])
    return buf, buf2


@program(lambda n: (randn(n, 2),), grad=True)
def dict_state(x):
    state = {k: torch.zeros(2) for k in ("sum", "sq", "min", "max")}
    state["min"] += 1e9
    state["max"] -= 1e9
    for row in x:
        state["sum"] += row
        state["sq"] += row**2
        state["min"] = torch.minimum(state["min"], row)
        state["max"] = torch.maximum(state["max"], row)
    return state


@program(lambda n: (randn(n + 1, n + 1), randn(n + 1)), sizes=(3, 1, 0, 2))
def gauss_elim(A, b):
    M = torch.cat([A, b[:, None]], 1)
    n = len(b)
    for i in range(n):
        p = M[i:, i].abs().argmax() + i
        row = M[i].clone()
        M[i] = M[p]
        M[p] = row
        M[i] = M[i] / M[i, i]
        for j in range(n):
            if j != i:
                M[j] -= M[j, i] * M[i]
    return M[:, -1]


@program(lambda n: (randn(n, 4),))
def unbind_write(x):
    y = torch.zeros(3, len(x))
    r, g, b = y
    r += x[:, 0]
    g.copy_(x[:, 1])
    b[:] = r + g
    y2 = torch.zeros(3, len(x))
    for row, col in zip(y2, x.T):
        row.add_(col)
    return y, r, y2


@program(lambda n: (randn(n, 4),))
def setitem_chain(x):
    h = torch.zeros(len(x), 4)
    g = torch.zeros(len(x), 4)
    h[:, 0] = g[:, 1] = x[:, 0]
    h[:, 1:3], g[:, 2:] = x[:, 2:], h[:, 0:2]
    h[..., -1] = h[..., 0] + g.sum(-1)
    h[:, [0, 2]] = h[:, [2, 0]]
    g[:, torch.tensor([3, 1])] += 1
    g[:, torch.tensor([1, 1])] += 1
    return h, g


@program(lambda n: (integers(5, n), 5))
def csr(rows, k):
    order = rows.argsort(stable=True)
    counts = torch.zeros(k, dtype=torch.long)
    counts.scatter_add_(0, rows, torch.ones_like(rows))
    ptr = torch.zeros(k + 1, dtype=torch.long)
    torch.cumsum(counts, 0, out=ptr[1:])
    pos = torch.zeros(k, dtype=torch.long)
    slot = torch.empty_like(rows)
    for i, r in enumerate(rows):
        slot[i] = ptr[r] + pos[r]
        pos[r] += 1
    return order, ptr, slot, pos


@program(lambda n: (randn(n),))
def gen_leak(x):
    def running(xs):
        s = torch.zeros(())
        for v in xs:
            s += v
            yield s

    return list(running(x))


@program(lambda n: (randn(n),))
def alias_by_accident(x):
    a = b = torch.zeros_like(x)
    a += x
    b *= 2
    c = [torch.zeros(2)] * 3
    c[0] += 1
    d = [torch.zeros(2) for _ in range(3)]
    d[0] += 1
    return a, b, c, d


@program(lambda n: (rand(n, 4) * 4, rand(n)))
def nms_while(boxes, scores):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        rest = order[1:]
        lt = torch.max(boxes[i, :2], boxes[rest, :2])
        rb = torch.min(boxes[i, 2:], boxes[rest, 2:])
        ov = (rb - lt).clamp(min=0).prod(1)
        order = rest[ov <= 0.5]
    return torch.tensor(keep, dtype=torch.long)


def compare(name: str, dynamic: bool | None, grad: bool) -> None:
    function, make, sizes, _ = PROGRAMS[name]
    fast = pliant.compile(function, dynamic=dynamic)
    for size in sizes:
        sides = []
        for side in (fast, function):
            torch.manual_seed(size)
            sides.append(outcome(side, make(size), grad))
        mine, theirs = sides
        for part in ("error", "layouts", "shared"):
            assert mine.get(part) == theirs.get(part), f"{part} for {size}"
        for part in mine.keys() & {"result", "tensors", "grads", "random"}:
            torch.testing.assert_close(mine[part], theirs[part], **CLOSE)
    assert events.counters["fallbacks"] == events.counters["failed_kernels"] == 0


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, dynamic: bool | None) -> None:
    compare(name, dynamic, grad=False)


@pytest.mark.parametrize("name", [name for name, (*_, grad) in PROGRAMS.items() if grad])
def test_gradients(name: str) -> None:
    compare(name, None, grad=True)
