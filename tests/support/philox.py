"""The random numbers that kernels of eager PyTorch draw on CUDA, on the CPU: what tests compare
with.

The one idea: written as those kernels are, thread by thread, not element by element as in the code
that is tested."""

import numpy as np

MASK = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 of four arrays of 32 bits and a key of two numbers, as four such arrays."""
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = key
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (b >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            b & np.uint64(MASK),
            (a >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            a & np.uint64(MASK),
        )
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def call(seed, counter, threads):
    """The four numbers of a call of each thread, whose counter is `counter`: [threads, 4]."""
    seed, counter = seed % 2**64, counter % 2**64
    place = (counter & MASK, counter >> 32, np.arange(threads), 0)
    four = philox(np.broadcast_arrays(*place), (seed & MASK, seed >> 32))
    return np.stack(four, 1).astype(np.uint32)


def bits(seed, counter, count, threads, width):
    """The numbers of all elements, if each thread takes `width` neighbours at a time; 1: a thread
    takes four elements that are `threads` apart."""
    drawn = np.zeros(count, dtype=np.uint32)
    per_call, several = 4 if width == 1 else min(width, 4), max(width // 4, 1)
    turns = -(-count // (threads * per_call * several))
    for at in range(turns * several):
        four = call(seed, counter + at, threads)[:, :per_call]
        if width == 1:
            places = at * 4 * threads + np.arange(4) * threads + np.arange(threads)[:, None]
        else:
            first = (at // several * threads + np.arange(threads)[:, None]) * width
            places = first + at % several * 4 + np.arange(per_call)
        there = places < count
        drawn[places[there]] = four[there]
    return drawn


def number(seed, counter, element, threads, width):
    """The number of one element."""
    return int(bits(seed, counter, element + 1, threads, width)[element])


def uniform(numbers):
    """Floats that are larger than 0 and at most 1."""
    return numbers.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
