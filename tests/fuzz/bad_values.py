"""What an argument of each kind must refuse: a list of values, all of which are tried."""

import math
from decimal import Decimal
from fractions import Fraction

import torch

NAN, INF = math.nan, math.inf
N = 5  # arms of every valid call

# No argument that is a number takes any of these: other things, integers that float64 or 64 bits do not hold, of which
# Python refuses to write the last, and numbers of other kinds.
NO_NUMBERS = ["three", "", None, [], {}, (1,), 1j, b"1", object, True]
NO_NUMBERS += [
    10**400,
    -(10**400),
    10**5000,
    Decimal("0.5"),
    Decimal("1e400"),
    Fraction(1, 2),
    Fraction(10**5000),
]
NUMBERS = [NAN, INF, -INF, -5e-324, -1e308, -1.5, 0.0, 0.5, 1.0, 1.0 + 1e-9, 1.5, 0, 1, -1]


def numbers(allowed):
    """Numbers that are not ``allowed``, and things that are no numbers."""
    return [*(x for x in NUMBERS if not allowed(x)), *NO_NUMBERS]


def integers(smallest):
    """Integers below the smallest, fractions, and things that are no numbers."""
    return [smallest - 1, -(2**63), smallest + 0.5, -1.0, NAN, INF, -INF, *NO_NUMBERS]


def spoiled(good, *more):
    """The good tensor with one value that is no number, in other shapes, and things that are no tensors."""
    values = []
    for value in (NAN, INF, -INF):
        bad = good.clone()
        bad.view(-1)[bad.numel() // 2] = value
        values.append(bad)
    return [*values, *more, "arms", None, [1.0], {}]


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
arms = [*features, 0, -1, True, 2.5]
tables = [torch.full((30, N), INF), torch.rand(6), torch.zeros(0, N), torch.zeros(6, 0), "t", None, [1.0], {}]
_box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
bounds = spoiled(_box, _box[:1], _box[0], _box[:, :0], _box.flip(0), 0 * _box, _box.long(), _box.unsqueeze(0))
_columns, _ones = torch.tensor([0, 1]), torch.ones(2).double()
constraints = [
    None,
    3,
    "sum",
    _ones,
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

positive = numbers(lambda x: 0 < x < INF)
positive_or_infinite = numbers(lambda x: x > 0)
non_negative = numbers(lambda x: 0 <= x < INF)
finite = numbers(math.isfinite)
above_one = numbers(lambda x: 1 < x < INF)
at_least_one = numbers(lambda x: 1 <= x < INF)
probability = numbers(lambda x: 0 < x < 1)
share = numbers(lambda x: 0 <= x <= 1)
positive_share = numbers(lambda x: 0 < x <= 1)
rate = numbers(lambda x: 0 <= x < 1)
count = integers(1)
natural = integers(0)
words = ["nonsense", "", " ", "\x00", b"auto", 0, 1.5, NAN, True, None, [], {}, object]
things = ["rbf", 3, -1.5, [], {}, None]
