"""The width of a band over all arms at once, one draw and one arm at a time."""

import itertools
import math
from collections.abc import Sequence


def width(draws: Sequence[Sequence[float]], deviation: Sequence[float], delta: float) -> float:
    """The least of the draws' largest |g(x)| / sigma(x) that at least (M + 1)(1 - delta) - 1 others do not exceed."""
    largest = sorted(
        max((abs(g) / s for g, s in zip(draw, deviation, strict=True) if s > 0), default=0.0)
        for draw in draws
    )
    least = next(k for k in range(1, len(draws) + 1) if k / (len(draws) + 1) >= 1 - delta - 1e-12)
    return largest[least - 1]


def mean_excess(delta: float, draws: int, cells: int = 4000) -> float:
    """E h(A), A ~ Beta(M + 1 - k, k), by the distribution function of the k-th of M uniform numbers."""
    k = math.ceil((draws + 1) * (1 - delta) - 1e-9)

    def at_most(a: float) -> float:  # P(A <= a): at least M - k + 1 of M uniform numbers are below a
        return math.fsum(
            math.comb(draws, j) * a**j * (1 - a) ** (draws - j) for j in range(draws - k + 1, draws + 1)
        )

    def tail(c: float) -> float:
        return 0.5 * math.erfc(c / math.sqrt(2))

    def excess(a: float) -> float:  # integral of P(N(0, 1) > c + u) over u >= 0
        low, high = -40.0, 40.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle) > a else (low, middle)
        step = 0.01
        return step * math.fsum(tail(low + step * (i + 0.5)) for i in range(1000))

    edges = [i / cells for i in range(cells + 1)]
    mass = [at_most(b) - at_most(a) for a, b in itertools.pairwise(edges)]
    return math.fsum(
        m * excess((a + b) / 2)
        for m, (a, b) in zip(mass, itertools.pairwise(edges), strict=True)
        if m > 1e-12
    )
