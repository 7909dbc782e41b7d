"""Programs as people write them for machine learning: scatters, masks, caches, buffers, steps.

Each is called several times with other sizes, eagerly and compiled. Results, arguments, gradients,
state and the numbers drawn have to agree, strides included, without a graph break or a fallback.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {}


def program(*sizes: int) -> Callable[..., Any]:
    """Register what makes a function, its arguments for a size, and the state that it changes."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[make.__name__] = make, sizes
        return make

    return register


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        for tensor in [*value.parameters(), *value.buffers()]:
            yield tensor
            yield from tensors(tensor.grad)
    elif isinstance(value, torch.optim.Optimizer):
        for state in value.state.values():
            yield from tensors(state)
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def numbers(value: Any) -> Iterator[int | float]:
    """The Python numbers in a result or a state."""
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)


def called(function: Callable[..., Any], args: tuple[Any, ...], size: int) -> Any:
    """The result, and gradients of what the arguments and modules are made of, after a call."""
    torch.manual_seed(100 + size)
    result = function(*args)
    graded = [t for t in tensors(result) if t.requires_grad]
    if graded:
        weights = [torch.linspace(0.5, 1.5, t.numel()).view_as(t) for t in graded]
        torch.autograd.backward(graded, weights)
    return result, args, [t.grad for t in tensors(args)], torch.get_rng_state()


def compare(mine: Any, theirs: Any) -> None:
    assert list(numbers(mine)) == pytest.approx(list(numbers(theirs)), rel=1e-4)
    for ours, eagers in zip(tensors(mine), tensors(theirs), strict=True):
        assert ours.stride() == eagers.stride()
        assert ours.requires_grad is eagers.requires_grad
        torch.testing.assert_close(ours, eagers, rtol=2e-4, atol=2e-5, equal_nan=True)


def made(make: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    return make()


def T(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, requires_grad=True)


def classes(count: int, *sizes: int) -> torch.Tensor:
    return torch.randint(0, count, sizes)


def classifier() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 4), classes(3, size)


# ---- graphs and experts


@program(4, 7, 1, 0)
def segment_mean():
    def mean(x, segments):
        totals = torch.zeros(5, x.size(1)).index_add_(0, segments, x)
        counts = torch.zeros(5).index_add_(0, segments, torch.ones(x.size(0)))
        return totals / counts.clamp(min=1).unsqueeze(-1)

    return mean, lambda n: (T(n, 3), classes(5, n))


@program(4, 7, 1, 0)
def segment_softmax():
    def softmax(x, segments):
        top = x.new_full((5,), -math.inf)
        top = top.scatter_reduce(0, segments, x, "amax", include_self=False)
        weights = (x - top[segments]).exp()
        total = x.new_zeros(5).scatter_add_(0, segments, weights)
        return weights / (total[segments] + 1e-16)

    return softmax, lambda n: (T(n), classes(5, n))


class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 8, bias=False)
        self.source, self.target = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(2, 4))

    def forward(self, x, edges):
        source, target = edges
        h = self.linear(x).view(-1, 2, 4)
        score = (h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        top = torch.zeros(x.size(0), 2)
        top.scatter_reduce_(0, target[:, None].expand_as(score), score.detach(), "amax")
        score = (score - top[target]).exp()
        total = torch.zeros(x.size(0), 2).index_add(0, target, score)
        score = score / (total[target] + 1e-16)
        out = torch.zeros_like(h)
        out.index_add_(0, target, h[source] * score.unsqueeze(-1))
        return out.flatten(1)


@program(4, 7, 1)
def graph_attention():
    module = GraphAttention()
    return module, lambda n: (T(n, 6), classes(n, 2, 3 * n)), module


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3, bias=False)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, 3).permute(2, 1, 0)
        for at, expert in enumerate(self.experts):
            rank, token = torch.where(mask[at])
            out.index_add_(0, token, expert(x[token]) * weights[token, rank, None])
        return out


@program(8, 12, 1)
def mixture_of_experts():
    module = Experts()
    return module, lambda n: (T(n, 4),), module


@program(8, 12, 1)
def experts_with_capacity():
    def route(x, gate, weight):
        capacity = max(1, math.ceil(x.size(0) / 3 * 1.25))
        probability, expert = F.softmax(x @ gate, dim=-1).max(-1)
        chosen = F.one_hot(expert, 3)
        place = ((torch.cumsum(chosen, 0) - 1) * chosen).sum(-1)
        kept = place < capacity
        slots = torch.zeros(3, capacity, x.size(1))
        slots[expert[kept], place[kept]] = x[kept]
        hidden = torch.bmm(slots, weight).relu_()
        y = x.clone()
        y[kept] = hidden[expert[kept], place[kept]] * probability[kept].unsqueeze(1)
        return y

    return route, lambda n: (T(n, 4), T(4, 3), T(3, 4, 4))


# ---- losses


@program(4, 7, 1)
def label_smoothing():
    def loss(logits, labels):
        with torch.no_grad():
            target = torch.full_like(logits, 0.1 / (logits.size(-1) - 1))
            target.scatter_(1, labels.unsqueeze(1), 0.9)
            target[labels == 0] = 0
        return torch.sum(-target * logits.log_softmax(-1), dim=-1).mean(), target

    return loss, lambda n: (T(n, 5), classes(5, n))


@program(4, 7, 1)
def contrastive():
    def loss(a, b, temperature):
        z = F.normalize(torch.cat([a, b]), dim=1)
        similarity = z @ z.T / temperature
        similarity.fill_diagonal_(-9e15)
        target = (torch.arange(2 * a.size(0)) + a.size(0)) % (2 * a.size(0))
        return F.cross_entropy(similarity, target), (similarity.argmax(1) == target).float().mean()

    return loss, lambda n: (T(n, 4), T(n, 4), 0.5)


@program(4, 7, 1)
def angular_margin():
    def logits(x, weight, labels):
        cosine = F.linear(F.normalize(x), F.normalize(weight)).clamp(-1 + 1e-4, 1 - 1e-4)
        index = torch.where(labels != -1)[0]
        margin = torch.zeros(index.size(0), cosine.size(1))
        margin.scatter_(1, labels[index, None], 0.5)
        angle = cosine.clone().acos_()
        angle[index] += margin
        return angle.cos_().mul_(64.0)

    return logits, lambda n: (T(n, 4), T(5, 4), torch.randint(-1, 5, (n,)))


@program(4, 7, 1)
def hard_negatives():
    def loss(logits, labels):
        errors = 1.0 - logits * (2.0 * labels.float() - 1.0)
        errors, order = torch.sort(errors, dim=0, descending=True)
        truth = labels[order].float()
        intersection = truth.sum() - truth.cumsum(0)
        jaccard = 1.0 - intersection / (truth.sum() + (1 - truth).cumsum(0))
        if len(truth) > 1:
            jaccard[1:] = jaccard[1:] - jaccard[:-1].clone()
        return torch.dot(F.relu(errors), jaccard)

    return loss, lambda n: (T(n), classes(2, n))


@program(3, 5, 4)
def alignment():
    def loss(log_probs, labels):
        extended = torch.zeros(2 * labels.size(0) + 1, dtype=torch.long)
        extended[1::2] = labels
        skips = torch.zeros(len(extended), dtype=torch.bool)
        skips[2:] = (extended[2:] != 0) & (extended[2:] != extended[:-2])
        alpha = torch.full((log_probs.size(0), len(extended)), -1e30)
        alpha[0, 0] = log_probs[0, 0]
        alpha[0, 1] = log_probs[0, extended[1]]
        for t in range(1, log_probs.size(0)):
            stay = alpha[t - 1].clone()
            step = F.pad(stay[:-1], (1, 0), value=-1e30)
            skip = F.pad(stay[:-2], (2, 0), value=-1e30).masked_fill(~skips, -1e30)
            reached = torch.logsumexp(torch.stack([stay, step, skip]), 0)
            alpha[t] = reached + log_probs[t, extended]
        return -torch.logaddexp(alpha[-1, -1], alpha[-1, -2])

    return loss, lambda n: (T(n, 4), torch.randint(1, 4, (2,)))


# ---- sampling


@program(4, 7, 1)
def top_p():
    def sample(logits, k, p):
        logits[logits < torch.topk(logits, k)[0][..., -1, None]] = -math.inf
        ordered, order = torch.sort(logits, descending=True)
        removed = torch.cumsum(F.softmax(ordered, dim=-1), dim=-1) > p
        removed[..., 1:] = removed[..., :-1].clone()
        removed[..., 0] = 0
        logits = logits.masked_fill(removed.scatter(1, order, removed), -math.inf)
        return torch.multinomial(F.softmax(logits, -1), 1), logits

    return sample, lambda n: (torch.randn(n, 10), 5, 0.8)


@program(4, 7, 1)
def repetition_penalty():
    def penalize(logits, previous):
        score = torch.gather(logits, 1, previous)
        logits.scatter_(1, previous, torch.where(score < 0, score * 1.2, score / 1.2))
        count = torch.zeros_like(logits).scatter_add_(1, previous, torch.ones_like(score))
        logits -= count * 0.1
        logits -= (count > 0) * 0.2
        return logits

    return penalize, lambda n: (torch.randn(n, 10), classes(10, n, 4))


@program(2, 3, 1)
def beam_search():
    table = torch.randn(7, 7)

    def search(start):
        size, beams = start.size(0), 3
        sequences = start.view(size, 1, 1).repeat(1, beams, 1)
        scores = torch.full((size, beams), -1e9)
        scores[:, 0] = 0
        finished = torch.zeros(size, beams, dtype=torch.bool)
        for _ in range(3):
            steps = F.log_softmax(table[sequences[..., -1]], -1)
            steps[finished] = -1e9
            steps[..., 0] = torch.where(finished, 0.0, steps[..., 0])
            scores, index = (scores[..., None] + steps).view(size, -1).topk(beams, dim=1)
            beam, token = torch.div(index, 7, rounding_mode="floor"), index % 7
            before = beam[..., None].expand(-1, -1, sequences.size(-1))
            sequences = torch.cat([sequences.gather(1, before), token[..., None]], -1)
            finished = finished.gather(1, beam) | (token == 0)
        return sequences, scores, finished

    return search, lambda n: (torch.randint(1, 7, (n,)),)


@program(4, 7, 1)
def straight_through_gumbel():
    def sample(logits, temperature):
        noise = -torch.empty_like(logits).exponential_().log()
        soft = ((logits + noise) / temperature).softmax(-1)
        index = soft.max(-1, keepdim=True)[1]
        hard = torch.zeros_like(logits).scatter_(-1, index, 1.0)
        return hard - soft.detach() + soft

    return sample, lambda n: (T(n, 5), 0.7)


@program(4, 7, 1)
def masked_language_model():
    def mask(tokens):
        labels = tokens.clone()
        chances = torch.full(labels.shape, 0.5).masked_fill_(tokens == 0, value=0.0)
        chosen = torch.bernoulli(chances).bool()
        labels[~chosen] = -100
        replaced = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & chosen
        tokens[replaced] = 9
        swapped = torch.bernoulli(torch.full(labels.shape, 0.5)).bool() & chosen & ~replaced
        tokens[swapped] = torch.randint(10, labels.shape)[swapped]
        return tokens, labels

    return mask, lambda n: (classes(8, n, 6),)


# ---- state


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(5, 4))
        self.register_buffer("counts", torch.ones(5))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        distance = x.pow(2).sum(1, keepdim=True) - 2 * x @ self.codes.t()
        chosen = (-(distance + self.codes.pow(2).sum(1))).max(1)[1]
        quantized = F.embedding(chosen, self.codes)
        with torch.no_grad():
            hot = F.one_hot(chosen, 5).type(x.dtype)
            self.counts.data.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            self.sums.data.mul_(0.9).add_(hot.t() @ x, alpha=0.1)
            self.codes.data.copy_(self.sums / (self.counts + 1e-5).unsqueeze(1))
        return x + (quantized - x).detach(), (quantized.detach() - x).pow(2).mean()


@program(8, 12, 1)
def codebook():
    module = Codebook()
    return module, lambda n: (T(n, 4),), module


class Normalizer(nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in {"mean": 0.0, "var": 1.0, "count": 1e-4}.items():
            self.register_buffer(name, torch.full((3,), value))

    def forward(self, x):
        with torch.no_grad():
            count, delta = x.shape[0], x.mean(0) - self.mean
            total = self.count + count
            self.mean += delta * count / total
            squares = self.var * self.count + x.var(0, unbiased=False) * count
            self.var = (squares + delta**2 * self.count * count / total) / total
            self.count.add_(count)
        return torch.clamp((x - self.mean) / torch.sqrt(self.var + 1e-8), -5, 5)


@program(3, 5, 2)
def running_statistics():
    module = Normalizer()
    return module, lambda n: (T(n, 3),), module


@program(3, 5, 1, 3)
def replay_buffer():
    state = {"x": torch.zeros(8, 2), "reward": torch.zeros(8), "at": 0, "size": 0}

    def step(x, reward):
        index = (torch.arange(x.shape[0]) + state["at"]) % 8
        state["x"][index], state["reward"][index] = x, reward
        state["at"] = (state["at"] + x.shape[0]) % 8
        state["size"] = min(state["size"] + x.shape[0], 8)
        drawn = torch.randint(0, state["size"], (4,))
        return state["x"][drawn], state["reward"][drawn]

    return step, lambda n: (torch.randn(n, 2), torch.randn(n)), state


@program(4, 7, 1)
def prioritized_replay():
    def sample(priorities, beta):
        powers = priorities.pow(0.6)
        sums = powers.cumsum(0)
        strata = (torch.arange(4) + torch.rand(4)) / 4 * sums[-1]
        index = torch.searchsorted(sums, strata).clamp_(max=priorities.numel() - 1)
        weights = (priorities.numel() * powers[index] / sums[-1]).pow(-beta)
        weights /= weights.max()
        priorities[index] = weights * 0.5
        return index, weights

    return sample, lambda n: (torch.rand(n) + 0.1, 0.4)


@program(1, 2, 1, 3)
def static_cache():
    state = {"k": torch.zeros(2, 2, 8, 4), "v": torch.zeros(2, 2, 8, 4), "at": 0}

    def attend(q, k, v):
        end = state["at"] + k.size(2)
        state["k"][:, :, state["at"] : end] = k
        state["v"][:, :, state["at"] : end] = v
        state["at"] = end
        mask = torch.ones(q.size(2), end, dtype=torch.bool).tril(diagonal=end - q.size(2))
        keys, values = state["k"][:, :, :end], state["v"][:, :, :end]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

    return attend, lambda n: tuple(torch.randn(2, 2, n, 4) for _ in range(3)), state


@program(1, 2, 1, 3)
def sliding_cache():
    state: dict[str, torch.Tensor | None] = {"k": None, "v": None}

    def attend(k, v):
        if state["k"] is not None:
            k, v = torch.cat([state["k"], k], 1), torch.cat([state["v"], v], 1)
        state["k"], state["v"] = k[:, -4:], v[:, -4:]
        return (k @ v.transpose(1, 2)).softmax(-1)

    return attend, lambda n: (torch.randn(2, n, 4), torch.randn(2, n, 4)), state


class SpectralNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))
        self.register_buffer("u", F.normalize(torch.randn(5), dim=0))
        self.register_buffer("v", F.normalize(torch.randn(4), dim=0))

    def forward(self, x):
        with torch.no_grad():
            for _ in range(2):
                v = F.normalize(torch.mv(self.weight.t(), self.u), dim=0, out=self.v)
                u = F.normalize(torch.mv(self.weight, self.v), dim=0, out=self.u)
            u, v = u.clone(), v.clone()
        return F.linear(x, self.weight / torch.dot(u, torch.mv(self.weight, v)))


@program(4, 7, 1)
def spectral_norm():
    module = SpectralNorm()
    return module, lambda n: (T(n, 4),), module


@program(5, 3, 1)
def equal_tensors_written_apart():
    def write(x):
        sums = [torch.zeros(3) for _ in range(3)]
        shared = [torch.zeros(3)] * 2
        first = second = torch.zeros(3)
        other = torch.zeros_like(first)
        for at, each in enumerate(sums):
            each += x[:, at].sum()
            each[at] = 7
        shared[0].add_(1)
        first[0] = 1
        other[1] = second[0] + 1
        second[2] += other[1]
        a, b = x.clone(), x.clone()
        a[0] += 1
        b[-1] *= 2
        return sums, shared, first, other, a, b

    return write, lambda n: (T(n, 4),)


# ---- sequences and boxes


@program(3, 5, 1)
def packed_sequences():
    def pack(x, lengths):
        mask = torch.arange(x.size(1)) < lengths[:, None]
        packed = x[mask]
        starts = F.pad(lengths.cumsum(0), (1, 0))
        row = torch.repeat_interleave(torch.arange(x.size(0)), lengths)
        position = torch.arange(packed.size(0)) - starts[row]
        out = torch.zeros_like(x)
        out[row, position] = packed * 2
        return packed, starts, row, position, out

    return pack, lambda n: (T(n, 6, 2), torch.randint(1, 7, (n,)))


@program(4, 7, 1)
def interleaved_rotary():
    def rotate(x, positions):
        size = x.size(-1)
        angle = positions[:, None].float() * torch.pow(10000, -torch.arange(0, size, 2) / size)
        cos, sin = angle.cos(), angle.sin()
        out = torch.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    return rotate, lambda n: (T(2, n, 4), torch.arange(n))


@program(4, 6, 1)
def generalized_advantages():
    def estimate(rewards, values, dones, last_value):
        advantages, last = torch.zeros_like(rewards), 0
        for t in reversed(range(rewards.shape[0])):
            following = last_value if t == rewards.shape[0] - 1 else values[t + 1]
            delta = rewards[t] + 0.99 * following * (1.0 - dones[t]) - values[t]
            advantages[t] = last = delta + 0.94 * (1.0 - dones[t]) * last
        return advantages, advantages + values

    def arguments(n):
        return torch.randn(n, 3), torch.randn(n, 3), classes(2, n, 3).float(), torch.randn(3)

    return estimate, arguments


@program(3, 5, 1)
def suppressed_boxes():
    def suppress(boxes, scores):
        order = scores.sort(descending=True)[1]
        b = boxes[order]
        low = torch.max(b[:, None, :2], b[None, :, :2])
        high = torch.min(b[:, None, 2:], b[None, :, 2:])
        inter = (high - low).clamp_(min=0).prod(-1)
        area = (b[:, 2:] - b[:, :2]).prod(-1)
        overlap = inter / (area[:, None] + area - inter)
        keep = torch.ones(b.size(0), dtype=torch.bool)
        for i in range(b.size(0)):
            keep[i + 1 :] &= ~((overlap[i, i + 1 :] > 0.3) & keep[i])
        return order[keep]

    def arguments(n):
        corner = torch.rand(n, 2)
        return torch.cat([corner, corner + torch.rand(n, 2) + 0.1], 1), torch.rand(n)

    return suppress, arguments


@program(6, 8, 5)
def clusters():
    def step(x, centers):
        nearest = torch.cdist(x, centers).argmin(1)
        means = torch.zeros_like(centers).index_add_(0, nearest, x)
        counts = torch.bincount(nearest, minlength=centers.size(0))
        means /= counts.clamp(min=1).unsqueeze(1)
        means[counts == 0] = centers[counts == 0]
        centers.copy_(means)
        return nearest, (x - centers[nearest]).pow(2).sum()

    return step, lambda n: (torch.randn(n, 2), torch.randn(3, 2))


# ---- whole steps


@program(5, 5, 3, 1, 7)
def gradient_penalty():
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(critic.parameters(), lr=1e-2)

    def step(real, fake):
        optimizer.zero_grad(set_to_none=True)
        mix = torch.rand(real.size(0), 1)
        x = (mix * real + (1 - mix) * fake).requires_grad_(True)
        (grad,) = torch.autograd.grad(
            outputs=critic(x),
            inputs=x,
            grad_outputs=torch.ones(x.size(0), 1),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )
        penalty = ((grad.norm(2, dim=1) - 1) ** 2).mean() * 10
        loss = critic(fake).mean() - critic(real).mean() + penalty
        loss.backward()
        optimizer.step()
        return loss.detach(), penalty.detach()

    return step, lambda n: (torch.randn(n, 4), torch.randn(n, 4)), critic


@program(5, 3, 1)
def hessian_vector_product():
    module = classifier()

    def product(x):
        parameters = list(module.parameters())
        grads = torch.autograd.grad(module(x).pow(2).mean(), parameters, create_graph=True)
        signs = [torch.randint_like(p, 0, 2) * 2 - 1 for p in parameters]
        return torch.autograd.grad(grads, parameters, grad_outputs=signs)

    return product, lambda n: (torch.randn(n, 4),)


@program(5, 5, 3, 1)
def sharpness_aware():
    module = classifier()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    saved: dict[nn.Parameter, torch.Tensor] = {}

    def step(x, y):
        F.cross_entropy(module(x), y).backward()
        norm = torch.stack([p.grad.norm() for p in module.parameters()]).norm()
        with torch.no_grad():
            for p in module.parameters():
                saved[p] = p.data.clone()
                p.add_(p.grad * (0.05 / (norm + 1e-12)))
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        for p in module.parameters():
            p.data = saved[p]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, batch, module


@program(4, 4, 3, 5, 4, 4)
def accumulated_gradients():
    module, state = classifier(), {"steps": 0}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        (F.cross_entropy(module(x), y) / 3).backward()
        state["steps"] += 1
        if state["steps"] % 3 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step, batch, module, optimizer, state


@program(5, 3, 1, 5)
def lists_of_moments():
    module = classifier()
    parameters = list(module.parameters())
    first = [torch.zeros_like(p) for p in parameters]
    second = [torch.zeros_like(p) for p in parameters]
    state = {"steps": 0}

    def step(x, y):
        grads = torch.autograd.grad(F.cross_entropy(module(x), y), parameters)
        state["steps"] += 1
        scale = 1e-2 / (1 - 0.9 ** state["steps"])
        correction = math.sqrt(1 - 0.999 ** state["steps"])
        with torch.no_grad():
            for p, grad, mean, square in zip(parameters, grads, first, second, strict=True):
                mean.mul_(0.9).add_(grad, alpha=0.1)
                square.mul_(0.999).addcmul_(grad, grad, value=0.001)
                p.addcdiv_(mean, (square.sqrt() / correction).add_(1e-6), value=-scale)

    return step, batch, module, first, second, state


@program(5, 5, 3, 1)
def adversaries():
    maker = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 4))
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.5) for m in (maker, critic)]
    loss_of = nn.BCEWithLogitsLoss()

    def step(real):
        labels = torch.full((real.size(0),), 1.0)
        critic.zero_grad()
        loss_of(critic(real).view(-1), labels).backward()
        fake = maker(torch.randn(real.size(0), 3))
        labels.fill_(0.0)
        loss_of(critic(fake.detach()).view(-1), labels).backward()
        optimizers[1].step()
        maker.zero_grad()
        labels.fill_(1.0)
        loss = loss_of(critic(fake).view(-1), labels)
        loss.backward()
        optimizers[0].step()
        return loss.item()

    return step, lambda n: (torch.randn(n, 4),), maker, critic


@program(5, 5, 3, 1)
def temporal_differences():
    online, target = classifier(), classifier()
    optimizer = torch.optim.SGD(online.parameters(), lr=0.1)

    def step(state, action, reward, following, done):
        value = online(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = online(following).argmax(1, keepdim=True)
            later = target(following).gather(1, best).squeeze(1)
            later[done] = 0.0
        loss = F.smooth_l1_loss(value, reward + 0.99 * later)
        optimizer.zero_grad()
        loss.backward()
        for p in online.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        for slow, p in zip(target.parameters(), online.parameters(), strict=True):
            slow.data.copy_(0.9 * slow.data + 0.1 * p.data)
        return loss.detach()

    def arguments(n):
        return (
            torch.randn(n, 4),
            classes(3, n),
            torch.randn(n),
            torch.randn(n, 4),
            torch.rand(n) > 0.5,
        )

    return step, arguments, online, target


# ---- the comparison


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, dynamic: bool | None) -> None:
    make, sizes = PROGRAMS[name]
    function, arguments, *state = made(make)
    own_function, own_arguments, *own_state = made(make)
    compiled = pliant.compile(own_function, backend="llvm", dynamic=dynamic, fullgraph=True)
    pliant.counters.reset()
    for size in sizes:
        torch.manual_seed(size)
        args = arguments(size)
        torch.manual_seed(size)
        own_args = own_arguments(size)
        theirs, mine = called(function, args, size), called(compiled, own_args, size)
        compare(mine, theirs)
        compare(own_state, state)
    assert pliant.counters["fallbacks"] == 0
