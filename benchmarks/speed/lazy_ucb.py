"""Does exact GP-UCB pay when only arms that can still win are scored? ``python -m benchmarks.speed.lazy_ucb``

If an arm had mean m and deviation s when last scored, at step a, then at step t its index is at most

    m + s sqrt(width_t^2 + Q_t - Q_a),   Q = sum over the observations of innovation^2 / (variance + lambda),

because the data in between move the mean by at most sqrt(s^2 - s_t^2) sqrt(Q_t - Q_a) (Cauchy-Schwarz in the
posterior of step a). Arms are scored from the top of this bound until the best exact index is above all bounds left.
Compared with scoring every arm by the factor form of ``ArmGP``, which reads u N numbers a step: the same choices, but
on two shared cores it took 1 to 6 times as long (N = 1 024 to 99 856, T = 400; 3 to 21 % of the arms scored a step).
So the library does not do it.
"""

from __future__ import annotations

import sys
from time import perf_counter

import torch
from torch import Tensor

from bandits_torch.models import ArmGP
from bandits_torch.problems.many_arms import GridDraws
from bandits_torch.theory import ConstantWidth, RealisedInformationWidth

LAMBDA, NOISE, BLOCK = 0.01, 0.1, 64


class LazyExact:
    """Exact posterior of the arms asked for alone: counts form over u distinct arms, factored at every observation."""

    def __init__(self, arms: Tensor, kernel, noise_variance: float) -> None:
        self.arms, self.kernel, self.noise = arms, kernel, noise_variance
        new = arms.new_zeros
        self.place: dict[int, int] = {}
        self.x, self.K, self.count, self.total = new(0, arms.shape[1]), new(0, 0), new(0), new(0)
        n = len(arms)
        self.mean, self.deviation = new(n), kernel(arms, diag=True).sqrt()
        self.surprise, self.scored_at = 0.0, new(n)
        self.rescored = 0

    def score(self, arms: Tensor) -> tuple[Tensor, Tensor]:
        if not len(self.x):
            return self.mean[arms], self.deviation[arms]
        cross = self.kernel(self.x, self.arms[arms]).to_dense()
        half = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        variance = self.kernel(self.arms[arms], diag=True) - half.square().sum(0)
        return self.weights @ cross, variance.clamp_min(1e-16).sqrt()

    def choose(self, width: float) -> int:
        bound = self.mean + self.deviation * torch.sqrt(width**2 + self.surprise - self.scored_at)
        best, winner, block = -torch.inf, -1, min(BLOCK, len(bound))
        while True:
            top, arms = torch.topk(bound, block)
            live = top >= best
            if not bool(live.any()):
                return winner
            arms = arms[live]
            mean, deviation = self.score(arms)
            self.mean[arms], self.deviation[arms], self.scored_at[arms] = mean, deviation, self.surprise
            self.rescored += len(arms)
            index = mean + width * deviation
            if float(index.max()) > best:
                best, winner = float(index.max()), int(arms[index.argmax()])
            bound[arms] = -torch.inf
            block = min(4 * block, 4096, len(bound))

    def learn(self, arm: int, reward: float) -> None:
        mean, deviation = float(self.mean[arm]), float(self.deviation[arm])  # scored when chosen
        self.surprise += (reward - mean) ** 2 / (deviation**2 + self.noise)
        if arm not in self.place:
            self.place[arm] = len(self.place)
            x = self.arms[arm : arm + 1]
            column = self.kernel(self.x, x).to_dense() if len(self.x) else x.new_zeros(0, 1)
            corner = self.kernel(x).to_dense()
            self.K = torch.cat([torch.cat([self.K, column], 1), torch.cat([column.mT, corner], 1)])
            self.x = torch.cat([self.x, x])
            self.count, self.total = (torch.nn.functional.pad(v, (0, 1)) for v in (self.count, self.total))
        place = self.place[arm]
        self.count[place] += 1
        self.total[place] += reward
        self.factor = torch.linalg.cholesky(self.K + torch.diag(self.noise / self.count))
        self.weights = torch.cholesky_solve((self.total / self.count).unsqueeze(-1), self.factor).squeeze(-1)


@torch.no_grad()
def compare(side: int, horizon: int, width_of, name: str, seconds: float = 60.0) -> None:
    problem = GridDraws(side=side, dim=2, noise_scale=NOISE, seed=2)
    f, kernel = problem.expected_rewards(1)[0], problem.knowledge.kernel
    noise = NOISE * torch.randn(horizon, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    full = ArmGP(problem.arms, kernel, LAMBDA, form="factor")
    lazy = LazyExact(problem.arms, kernel, LAMBDA)
    spent = {"full": 0.0, "lazy": 0.0}
    different = 0
    for t in range(horizon):
        start = perf_counter()
        width = float(width_of(t + 1, full))
        mean, variance = full.marginals()
        index = mean + width * variance.sqrt()
        arm = int(index.argmax())
        spent["full"] += perf_counter() - start
        start = perf_counter()
        other = lazy.choose(width)
        spent["lazy"] += perf_counter() - start
        different += float(index[other]) < float(index[arm]) - 1e-8  # arms of equal index are no difference
        reward = f[other] + noise[t]
        start = perf_counter()
        full.observe_arms(torch.tensor(other), reward)
        spent["full"] += perf_counter() - start
        start = perf_counter()
        lazy.learn(other, float(reward))
        spent["lazy"] += perf_counter() - start
    print(
        f"N {side**2:7d}  T {horizon}  {name:10s} ms a step: full {1e3 * spent['full'] / horizon:7.2f}  "
        f"lazy {1e3 * spent['lazy'] / horizon:7.2f}  scored {lazy.rescored / horizon:8.1f} arms a step "
        f"({100 * lazy.rescored / horizon / side**2:.2f} %)  u {len(lazy.x)}  worse choices {different}",
        flush=True,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    sides = [int(side) for side in sys.argv[1:]] or [32, 100, 316]
    for side in sides:
        compare(side, 400, ConstantWidth(2.0), "sigma x 2")
        compare(side, 400, RealisedInformationWidth(2.0, NOISE, 0.1), "realised")
