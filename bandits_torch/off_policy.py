"""Off-policy evaluation: the mean reward that a policy would have earned, estimated from a log of another's pulls."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from bandits_torch import recipes, validation
from bandits_torch.arm_context import ArmContext
from bandits_torch.naming import counted
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.problems.diagnosis import two_more_rare
from bandits_torch.problems.logs import Log
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.tables import RewardTable

_FEWEST = 10.0  # least effective number of rows
_ROWS_OF_AN_ARM = 20  # least number of rows of each arm that counts
_COUNTS = 0.05  # share of the sum of squared weights from which on an arm counts
_CHANCE = 1e-4  # probability that each of two tests refuses a log of uniformly drawn arms
_MEMORIES = np.array([[20.0], [100.0], [1e9]])  # memories of the regressions of rewards, in pulls
_PARTS = 4  # parts of a context's range in which draws are tested
_PER_TEST = 5  # least number of rows per arm in such a test
_PRODUCTS_UP_TO = 5  # largest dimension of a context whose products are regressors
_PER_ARM = 10  # length, per arm, of the stretch from which a row is resampled


@validation.names_arguments
@dataclass(frozen=True)
class Value:
    """An estimate of the mean reward of a policy per step.

    Attributes:
        estimator: ``"replay"``, ``"snips"`` or ``"dr"``.
        value, low, high: the estimate and its 90 % interval, in units of reward.
        effective: the effective number of rows, (sum w)^2 / sum w^2 over the weights w.
        matched: number of rows in which the policy pulls the logged arm with positive probability.
        learned: number of rows that the policy learned from; 0 for a fixed policy.
        rows: number of rows valued.
        logged: the mean reward of the log in these rows.
        narrow: why the interval may be too narrow, in words (see ``value``); empty if there is no sign of it.
    """

    estimator: str
    value: float
    low: float
    high: float
    effective: float
    matched: int
    learned: int
    rows: int
    logged: float
    narrow: str = ""


def value(
    log: Log,
    policy: str | Policy | Tensor,
    *,
    estimator: str = "auto",
    warm_up: float = 0.2,
    replays: int = 20,
    seed: int = 0,
    **options: object,
) -> Value:
    """The mean reward per step that a policy would have earned in the time of a log.

    Row i has time t, arm a, reward r and propensity p. The policy pulls arm b with probability pi_i(b), given what it
    learned from rows before; w = pi_i(a) / p.

    * ``"snips"``: sum w r / sum w (Swaminathan & Joachims 2015). Without propensities it is ``"replay"``: p is 1 over
      the number of available arms, so if all arms are always available, this is the mean reward of the rows in which
      policy and log agree (Li et al. 2011). Arms must then have been drawn uniformly, which is tested.
    * ``"dr"``: the mean of sum_b pi_i(b) q_i(b) + w (r - q_i(a)), doubly robust (Dudik et al. 2014). q_i is predicted
      only from the rows before i, so every term is unbiased however rewards drift.

    With contexts, q_i and the choices of a policy that takes contexts depend on the context of row i, and the value is
    the mean over the contexts of the log.

    A policy that learns sees the log in order of time. If it agrees with a row, it learns the row with probability
    (least p) / p, so the rows that it learns are a random part of the log, whatever it chose (rejection sampling, Dudik
    et al. 2012; Mandel et al. 2016). A live policy learns every row, so it learns faster.

    Intervals: terms are martingale differences about the policy's value. For a fixed policy their variance is estimated
    from differences of neighbours, in which drift cancels. For a policy that learns, the log is resampled ``replays``
    times, each row from a short stretch of rows around it (a bootstrap that keeps the drift), and played again. If most
    rewards are equal, for example 0, the variance includes two more rewards of the rare kind, because a policy's rows
    may contain none.

    An interval may be too narrow if an arm that counts was rarely drawn. In simulated logs, intervals of 90 % held in
    67 to 86 % of the logs with 4 rows of such an arm on average, in 84 to 88 % with 10, and in 87 to 89 % with 20.
    ``Value.narrow`` says so if an arm with a twentieth of the sum of w^2 has fewer than 20 rows.

    Args:
        policy: the name of a recipe; a ``Policy`` of one replicate, which stays unchanged; or probabilities of the
            arms, (N,) or (n, N) for each row of the log, renormalised if not all arms are available. A recipe that
            takes contexts gets the contexts of the log. ``options`` gives other knowledge; ``auto`` needs none.
        estimator: ``"snips"``, ``"dr"``, ``"replay"``, or ``"auto"``: ``"dr"`` with propensities, else ``"replay"``.
        warm_up: share of the log, from its beginning, from which recipes estimate their prior knowledge; not valued.
        replays: number of resampled logs, >= 2.
        seed: seed of all random numbers.
        options: options of the recipe.

    Cost: ``replays`` + 1 runs over all rows; for ``"dr"`` or contexts also O(N p^3) per row, with p = 1, with M listed
    contexts 1 + M, with contexts of c numbers 1 + c + c (c + 1) / 2 for c <= 5, else 1 + c.

    Raises ValueError if the log does not determine the value: arms that were not drawn at random, a propensity of 1
    although the policy may pull another arm, an arm never logged, and a policy that agrees with fewer than ten
    effective rows.
    """
    validation.instance("log", log, Log, "a Log")
    validation.instance("policy", policy, (str, Policy, Tensor), "a recipe's name, a Policy or a tensor")
    if isinstance(policy, str):
        recipes.registered(policy)  # refuses an unknown name
    known = log.propensity is not None
    allowed = ("auto", "snips", "dr") if known else ("auto", "replay")
    validation.require(estimator in allowed, "estimator", estimator, f"one of {', '.join(allowed)} here")
    kind = estimator if estimator != "auto" else "dr" if known else "replay"
    validation.below_one("warm_up", warm_up)
    validation.require(validation.positive_integer("replays", replays) >= 2, "replays", replays, ">= 2")
    validation.natural("seed", seed)
    first = round(warm_up * len(log.arms))
    N, n = log.num_arms, len(log.arms) - first
    validation.require(n > 0, "warm_up", warm_up, f"smaller: it leaves none of {len(log.arms)} pulls")
    arms, rewards = log.arms.numpy()[first:], log.rewards.numpy()[first:]
    can = np.ones((n, N), dtype=bool) if log.available is None else log.available.numpy()[first:]
    if known:
        chance = log.propensity.numpy()[first:]  # type: ignore[union-attr]
    else:
        _refuse_unless_uniform(log)
        chance = 1.0 / can.sum(1)
    models = kind == "dr" or log.contexts is not None
    predicted = _predicted(log)[first:] if models else np.zeros((n, N))
    seen = None if log.contexts is None else log.contexts[first:]

    def estimate(pi: np.ndarray, order: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Value, its terms and weights, for probabilities (n, N) over the rows in this order."""
        a, r, q = arms[order], rewards[order], predicted[order]
        w, total = pi[np.arange(n), a] / chance[order], (pi * q).sum(1)
        if kind == "dr":
            terms = total + w * (r - q[np.arange(n), a])
            found = float(terms.mean())
        else:
            found = float((w * r).sum() / w.sum()) if w.any() else np.nan
            terms = w * (r - found) * n / max(w.sum(), 1e-300)
        return found, terms if seen is None else terms - total, w  # the variance is given the contexts

    rows = np.arange(n)
    if isinstance(policy, Tensor):
        validation.require(not options, "options", options, "none for a fixed policy")
        pi, learned = _fixed(policy, can, log, first), 0
        play = None
    else:
        build, times = _player(log, policy, first, n, seed, options)
        least = float(chance.min())

        def play(order: np.ndarray, number: int) -> tuple[np.ndarray, int]:
            draws = np.random.default_rng([seed, number])
            taken = draws.random(n) * chance[order] < least if known else np.ones(n, dtype=bool)
            under = None if seen is None else seen[torch.from_numpy(order)]
            return _played(build(number), times, arms[order], rewards[order], can[order], under, taken)

        pi, learned = play(rows, 0)
    wanted = [name for k, name in enumerate(log.arm_names) if k not in arms and pi[:, k].any()]
    validation.require(not wanted, "policy", wanted, "one that pulls only logged arms")
    blind = (chance == 1) & (can.sum(1) > 1) & (pi[rows, arms] < 1)
    said = f"a propensity of 1 in {int(blind.sum())} of {n} rows where the policy may pull another arm"
    expected = "one whose arms were drawn at random: the rewards of other arms are not known"
    validation.require(not blind.any(), "log", said, expected)
    found, terms, w = estimate(pi, rows)
    effective = float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0
    enough = "one that agrees with the log in ten effective rows or more"
    validation.require(effective >= _FEWEST, "policy", f"one that agrees in {effective:.1f} of {n}", enough)
    if play is None:
        error = np.sqrt(np.square(np.diff(terms)).sum() / 2 / (n - 1) / n)
        freedom = effective - 1
    else:
        again = np.random.default_rng([seed, 1])
        half = _PER_ARM * N // 2
        drawn = []
        for number in range(1, replays + 1):
            low = np.clip(rows - half, 0, max(0, n - 2 * half - 1))
            order = low + again.integers(0, min(n, 2 * half + 1), n)
            drawn.append(estimate(play(order, number)[0], order)[0])
        error, freedom = float(np.std(drawn, ddof=1)), replays - 1
    weights = w[w > 0] if kind == "dr" else w[w > 0] * n / w.sum()
    error = math.hypot(error, float(np.sqrt(two_more_rare(rewards) * np.square(weights).mean())) / n)
    reach = float(stats.t.ppf(0.95, freedom) * error)
    matched, logged = int((w > 0).sum()), float(rewards.mean())
    narrow = _narrow(log.arm_names, arms, w)
    return Value(kind, found, found - reach, found + reach, effective, matched, learned, n, logged, narrow)


def _narrow(names: Sequence[str], arms: np.ndarray, w: np.ndarray) -> str:
    """A warning about the first arm that counts but has too few rows; empty if there is none."""
    for k, name in enumerate(names):
        of_arm = w[(arms == k) & (w > 0)]
        if len(of_arm) < _ROWS_OF_AN_ARM and np.square(of_arm).sum() > _COUNTS * np.square(w).sum():
            return (
                f"the interval may be too narrow: it rests on {counted(len(of_arm), 'row')} of arm {name!r}"
            )
    return ""


def _refuse_unless_uniform(log: Log) -> None:
    """Raise ValueError unless the arms of a log without propensities look uniformly and independently drawn."""
    arms, N = log.arms.numpy(), log.num_arms
    can = np.ones((len(arms), N), bool) if log.available is None else log.available.numpy()
    fair = can / can.sum(1, keepdims=True)
    why = "propensity must be given, because the arms were not drawn uniformly at random"
    parts = [("", np.ones(len(arms), dtype=bool))]
    for k, column in enumerate([] if log.contexts is None else log.contexts.numpy().T):
        values = np.unique(column)
        cuts = values[1:] if len(values) <= _PARTS else np.quantile(column, np.arange(1, _PARTS) / _PARTS)
        within = np.searchsorted(cuts, column, side="right")
        parts += [
            (f" under contexts whose number {k} is near {column[within == i].mean():.4g}", within == i)
            for i in range(len(cuts) + 1)
        ]
    for where, rows in parts:
        expected, counts = fair[rows].sum(0), np.bincount(arms[rows], minlength=N)
        off = float(((counts - expected) ** 2 / expected.clip(1e-300)).sum())
        enough = not where or rows.sum() >= _PER_TEST * N
        if enough and stats.chi2.sf(off, N - 1) < _CHANCE / len(parts):
            pulls = dict(zip(log.arm_names, counts.tolist(), strict=True))
            raise ValueError(f"{why}: pulls of {pulls}{where}")
    same = arms[1:] == arms[:-1]
    again = fair[np.arange(1, len(arms)), arms[:-1]]
    spread = np.sqrt((again * (1 - again)).sum())
    if spread > 0 and 2 * stats.norm.sf(abs(same.sum() - again.sum()) / spread) < _CHANCE:
        raise ValueError(f"{why}: an arm follows itself {int(same.sum())} times, not {again.sum():.0f}")


def _predicted(log: Log) -> np.ndarray:
    """Rewards of every arm, (n, N), predicted for each row by regressions on the rows before it.

    Weights are w = (1 - 1/m)^age. With y the weighted mean reward of all arms, arm b is predicted to pay
    y + x' (sum w x x' + I)^{-1} sum w x (r - y), with sums over the rows of b. Each row uses the regressors x
    (``_features``) and the memory m that predicted best before.
    """
    each = [_regression(log, x) for x in _features(log)]
    means = np.concatenate([mean for mean, _ in each], 1)  # (n, K, N)
    lost = np.concatenate([error for _, error in each], 1).cumsum(0)  # (n, K)
    best = np.concatenate([[0], lost[:-1].argmin(1)])
    return means[np.arange(len(means)), best]


def _features(log: Log) -> list[np.ndarray]:
    """The regressors x of rewards, (n, p) each: 1; 1 and the context; and 1, the context, its squares and products."""
    one = np.ones((len(log.arms), 1))
    if log.contexts is None:
        return [one]
    z = log.contexts.numpy()
    if log.context_names:
        return [one, np.hstack([one, np.eye(len(log.context_names))[z[:, 0].astype(int)]])]
    spread = z.std(0)
    z = (z - z.mean(0)) / np.where(spread > 0, spread, 1.0)
    linear = np.hstack([one, z])
    if (c := z.shape[1]) > _PRODUCTS_UP_TO:
        return [one, linear]
    return [one, linear, np.hstack([linear, *(z[:, k:] * z[:, k : k + 1] for k in range(c))])]


def _regression(log: Log, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predictions for each row with each memory, (n, 3, N), and their squared errors for the arm pulled, (n, 3)."""
    kept, p = 1 - 1 / _MEMORIES[:, None], x.shape[1]  # (3, 1, 1)
    gram, total = np.zeros((3, log.num_arms, p, p)), np.zeros((3, log.num_arms, p))
    means, errors = [], []
    for a, r, row in zip(log.arms.tolist(), log.rewards.tolist(), x, strict=True):
        level = total[:, :, 0].sum(1) / gram[:, :, 0, 0].sum(1).clip(1e-12)
        above = total - level[:, None, None] * gram[..., 0]
        beta = np.linalg.solve(gram + np.eye(p), above[..., None])[..., 0]
        means.append(level[:, None] + beta @ row)
        errors.append((means[-1][:, a] - r) ** 2)
        gram, total = kept[..., None] * gram, kept * total
        gram[:, a] += np.outer(row, row)
        total[:, a] += r * row
    return np.stack(means), np.stack(errors)


def _fixed(probabilities: Tensor, can: np.ndarray, log: Log, first: int) -> np.ndarray:
    """Given probabilities renormalised over the available arms of each row, for rows from ``first`` onwards: (n, N)."""
    probabilities = validation.finite_tensor("policy", validation.real("policy", probabilities))
    N, rows = log.num_arms, len(log.arms)
    validation.of_shape("policy", probabilities, (N,), (rows, N), note=", probabilities")
    ok = bool((probabilities >= 0).all()) and bool(((probabilities.sum(-1) - 1).abs() < 1e-6).all())
    validation.require(ok, "policy", probabilities, "probabilities that add up to 1")
    pi = probabilities.numpy()
    pi = (pi[first:] if pi.ndim == 2 else pi) * can
    total = pi.sum(1, keepdims=True)
    none = int((total == 0).sum())
    validation.require(none == 0, "policy", f"no arm available in {none} rows", "one that can be played")
    return pi / total


def _player(
    log: Log, policy: str | Policy, first: int, n: int, seed: int, options: dict[str, object]
) -> tuple[Callable[[int], Policy], list[float]]:
    """A function that builds the policy for a replay, given its number, and the times of the rows for that policy."""
    if isinstance(policy, Policy):
        validation.require(not options, "options", options, "none for a policy that is built")
        validation.require(policy.replicates == 1, "policy.replicates", policy.replicates, "1")
        as_many = policy.num_arms == log.num_arms
        validation.require(as_many, "policy.num_arms", policy.num_arms, str(log.num_arms))
        return (lambda number: copy.deepcopy(policy)), log.times[first:].tolist()
    if log.contexts is not None and recipes.registered(policy).contexts and policy != "random":
        recipe = recipes.registered(policy)
        known: dict[str, object] = {"context_dim": log.contexts.shape[1]}
        if log.context_names:
            known["contexts"] = torch.arange(len(log.context_names)).double().unsqueeze(-1)
        if "horizon" in recipe.options:
            known["horizon"] = n

        def under_contexts(number: int) -> Policy:
            seeded = {"seed": seed + number} if recipe.seeded else {}
            return recipe.call(log.num_arms, **(known | seeded | options))

        return under_contexts, _one_by_one(log.times)[first:].tolist()
    validation.known_names(f"options of {policy}", options, recipes.registered(policy).options)
    rows = len(log.arms)
    expected = "longer, or warm_up larger: the recipe estimates its prior knowledge from the beginning"
    validation.require(first > 0, "log", f"{rows} pulls", expected)
    table = torch.full((rows, log.num_arms), torch.nan, dtype=torch.float64)
    table[torch.arange(rows), log.arms.long()] = log.rewards
    problem = Replay(RewardTable(table, _one_by_one(log.times), log.arm_names), warm_up=first / rows)

    def build(number: int) -> Policy:
        return recipes.build(policy, problem, replicates=1, horizon=n, seed=seed + number, **options)

    return build, [problem.time(step) for step in range(1, n + 1)]


def _one_by_one(times: Tensor) -> Tensor:
    """Times since the first, made strictly increasing: k rows of one time are spread evenly over the gap to the next
    time, or over the median gap if that is shorter."""
    moments, group, counts = (times - times[0]).unique_consecutive(return_inverse=True, return_counts=True)
    gaps = moments.diff() if len(moments) > 1 else torch.ones(1, dtype=torch.float64)
    usual = gaps.median()
    room = torch.cat([gaps, usual.unsqueeze(0)])[: len(moments)].clamp_max(usual) / counts
    before = torch.arange(len(times)) - (counts.cumsum(0) - counts)[group]
    return moments[group] + before * room[group]


def _played(
    policy: Policy,
    times: list[float],
    arms: np.ndarray,
    rewards: np.ndarray,
    can: np.ndarray,
    contexts: Tensor | None,
    taken: np.ndarray,
) -> tuple[np.ndarray, int]:
    """The policy's choices in every row, as probabilities (n, N), and the number of rows that it learned from."""
    pi, learned = np.zeros(can.shape), 0
    for i, time in enumerate(times):
        mask = None if can[i].all() else torch.from_numpy(can[i])
        under = contexts is not None and policy.takes_contexts
        choice = policy.choose(time, ArmContext(contexts[i], available=mask) if under else mask)  # type: ignore[index]
        pi[i, int(choice.arm)] = 1.0
        if int(choice.arm) == arms[i] and taken[i]:
            reward = torch.tensor([rewards[i]], dtype=torch.float64)
            policy.learn(Observation(time, choice.arm, reward, choice.why))
            learned += 1
    return pi, learned
