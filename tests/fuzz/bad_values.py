"""What an argument of each kind must refuse, as hypothesis strategies: one bad value after another."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import torch

NAN, INF = math.nan, math.inf
NO_NUMBERS = ["three", "", None, [], {}, (1,), 1j, b"1", object]
N = 5  # arms of every valid call

# No argument that is a number takes any of these: integers that float64 or 64 bits do not hold, of which Python
# refuses to write the last, and numbers of other kinds.
ODD_NUMBERS = [
    10**400,
    -(10**400),
    10**5000,
    Decimal("0.5"),
    Decimal("1e400"),
    Fraction(1, 2),
    Fraction(10**5000),
]
NUMERIC = []  # (strategy, numbers at the ends of what is allowed) of the arguments that are numbers alone


def _numeric(strategy, ends):
    NUMERIC.append((strategy, ends))
    return strategy


def numbers(allowed, *, none=False, tensors=False):
    """Numbers that are not ``allowed``, and things that are no numbers."""
    junk = [value for value in NO_NUMBERS if not (none and value is None)]
    floats = st.floats(allow_nan=True, allow_infinity=True).filter(lambda x: not allowed(x))
    floats = st.one_of(st.sampled_from([*(x for x in (NAN, INF, -INF) if not allowed(x)), *junk]), floats)
    return _numeric(floats, [x for x in (0.0, 1.0, -1.0, 0, 1, -1) if not allowed(x)])


def integers(smallest, *, none=False):
    junk = [value for value in [*NO_NUMBERS, True] if not (none and value is None)]
    fractions = st.floats().filter(lambda x: x != x or x in (INF, -INF) or x != int(x) or x < smallest)
    below = st.integers(max_value=smallest - 1)
    drawn = st.one_of(st.sampled_from([NAN, INF, 1.5, *junk]), below, fractions)
    return _numeric(drawn, [smallest - 1, smallest + 0.5, -1.0, True])


def words(*allowed, none=False):
    junk = [value for value in [0, 1.5, None, [], "nonsense", ""] if not (none and value is None)]
    return st.one_of(st.sampled_from(junk), st.text(max_size=8).filter(lambda x: x not in allowed))


def things(*, none=False):
    """Nothing of the right type."""
    return st.sampled_from(
        [value for value in ["rbf", 3, -1.5, [], {}, None] if not (none and value is None)]
    )


def spoiled(good, *more):
    """The good tensor with one value that is no number, in other shapes, and things that are no tensors."""
    values = []
    for value in (NAN, INF, -INF):
        bad = good.clone()
        bad.view(-1)[bad.numel() // 2] = value
        values.append(bad)
    return st.sampled_from([*values, *more, "arms", None, [1.0], {}])


FEATURES = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)
COVARIANCE = torch.exp(-((FEATURES - FEATURES.mT) ** 2) / 0.1)
_asymmetric = COVARIANCE.clone()
_asymmetric[0, 1] += 0.5
_indefinite = COVARIANCE.clone()
_indefinite[0, 0] = -1.0
covariances = spoiled(
    COVARIANCE, COVARIANCE[:3], COVARIANCE[0], _asymmetric, _indefinite, COVARIANCE[:0, :0], 3.0
)
features = spoiled(FEATURES, FEATURES[:0], FEATURES[:, 0], torch.tensor(1.0))
arms = st.one_of(features, st.sampled_from([0, -1, True, 2.5]))
tables = st.sampled_from(
    [torch.full((30, N), INF), torch.rand(6), torch.zeros(0, N), torch.zeros(6, 0), "t", None, [1.0], {}]
)
paths = st.sampled_from(["", "no/such/file.csv", "no/such/file.npz", 3, None, [], "."])
windows = st.one_of(
    st.sampled_from([(), [], "8", 8, None, (3, 3), (True,), (2.5,), (4, None)]), st.tuples(integers(1))
)
_box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
bounds = spoiled(_box, _box[:1], _box[0], _box[:, :0], _box.flip(0), 0 * _box, _box.long(), _box.unsqueeze(0))
_columns, _ones = torch.tensor([0, 1]), torch.ones(2).double()
_constraints = [
    [(_columns, _ones)],
    [(_columns + 1, _ones, 0.1)],
    [(_columns - 1, _ones, 0.1)],
    [(_columns + 0.5, _ones, 0.1)],
    [(_columns, _ones[:1], 0.1)],
    [(_columns, _ones * NAN, 0.1)],
    [(_columns, _ones, NAN)],
    [(_columns, _ones, None)],
    [([0, 1], [1.0, 1.0], 0.1)],
    [None],
    ["x0 + x1 > 0.1"],
]
constraints = st.sampled_from([None, 3, "sum", _ones, *_constraints])

positive = numbers(lambda x: 0 < x < INF)
positive_or_none = numbers(lambda x: 0 < x < INF, none=True)
non_negative = numbers(lambda x: 0 <= x < INF)
finite = numbers(lambda x: math.isfinite(x))
above_one = numbers(lambda x: 1 < x < INF)
at_least_one = numbers(lambda x: 1 <= x < INF)
share = numbers(lambda x: 0 < x < 1)
share_or_none = numbers(lambda x: 0 < x < 1, none=True)
rate = numbers(lambda x: 0 <= x < 1)
rate_or_none = numbers(lambda x: 0 <= x < 1, none=True)
count = integers(1)
count_or_none = integers(1, none=True)
natural = integers(0)
thing = things()
