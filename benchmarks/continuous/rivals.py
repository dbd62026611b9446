"""What others offer for a function that changes, one replicate each: plain BoTorch, W-DBO and Xopt."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpytorch
import numpy as np
import pandas as pd
import torch
from botorch.acquisition.analytic import LogExpectedImprovement, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from bandits_torch import Domain
from bandits_torch.policies import Choice, Observation, Policy


class Rival(Policy):
    """One replicate, built for one run; the first points are a Sobol sequence, later ones what it proposes."""

    def __init__(self, domain: Domain, horizon: int, initial: int, seed: int) -> None:
        self.domain, self.dim, self.num_arms, self.replicates = domain, domain.dim, 0, 1
        self.horizon, self.initial = horizon, initial
        self._first = domain.sample(initial, seed)
        self._steps = 0

    def choose(self, time: float, available: Any = None) -> Choice:
        if self._steps < self.initial:
            return Choice(self._first[self._steps : self._steps + 1])
        return Choice(self.proposed(time))

    def learn(self, observation: Observation) -> None:
        self._steps += 1
        self.heard(observation)

    @abstractmethod
    def proposed(self, time: float) -> Tensor:
        """The next point, (1, d)."""

    @abstractmethod
    def heard(self, observation: Observation) -> None:
        """Learn it."""


class PlainBoTorch(Rival):
    """BoTorch as its tutorials have it: ``SingleTaskGP`` fitted anew every step, ``optimize_acqf`` of ``"ucb"``,
    ``width`` being the root of its beta, or ``"logei"``. ``over_time``: time, scaled to [0, 1], is an input and a fixed
    feature."""

    def __init__(
        self,
        domain: Domain,
        horizon: int,
        initial: int,
        seed: int,
        *,
        acquisition: str,
        over_time: bool,
        width: float = 1.0,
    ) -> None:
        super().__init__(domain, horizon, initial, seed)
        self.acquisition, self.over_time, self.width = acquisition, over_time, width
        self._X: list[Tensor] = []
        self._Y: list[Tensor] = []

    def proposed(self, time: float) -> Tensor:
        X, Y = torch.stack(self._X), torch.stack(self._Y).unsqueeze(-1)
        if not self.over_time:
            X = X[:, :-1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SingleTaskGP(X, Y)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            if self.acquisition == "ucb":
                acquisition: Any = UpperConfidenceBound(model, beta=self.width**2)
            else:
                acquisition = LogExpectedImprovement(model, best_f=Y.max())
            bounds, fixed = self.domain.bounds, None
            if self.over_time:
                bounds = torch.cat([bounds, bounds.new_tensor([[0.0], [1.0]])], -1)
                fixed = {self.dim: time / self.horizon}
            x, _ = optimize_acqf(
                acquisition, bounds, q=1, num_restarts=4, raw_samples=64, fixed_features=fixed
            )
        return x[:, : self.dim]

    def heard(self, observation: Observation) -> None:
        share = observation.arm.new_tensor([observation.time / self.horizon])
        self._X.append(torch.cat([observation.arm[0], share]))
        self._Y.append(observation.reward[0])


class WDBO(Rival):
    """W-DBO (Bardou, Thiran & Ranieri 2024) from the package ``wdbo-algo``, as it comes: Matern 5/2 over space, 3/2
    over time, time scaled to [0, 1]; its own fit, search and removal of stale observations."""

    def __init__(self, domain: Domain, horizon: int, initial: int, seed: int) -> None:
        from wdbo_algo.optimizer import WDBOOptimizer

        super().__init__(domain, horizon, initial, seed)
        np.random.seed(seed)  # noqa: NPY002  (the package draws from numpy's global generator)
        matern = gpytorch.kernels.MaternKernel
        self._optimizer = WDBOOptimizer(
            domain.bounds.T.numpy(), matern, matern, [2.5], [1.5], n_initial_observations=initial
        )

    def proposed(self, time: float) -> Tensor:
        with _as_the_package_needs():
            x = torch.as_tensor(self._optimizer.next_query(time / self.horizon))
        return x.to(self.domain.bounds).clamp(*self.domain.bounds).reshape(1, -1)

    def heard(self, observation: Observation) -> None:
        share = observation.time / self.horizon
        with _as_the_package_needs():
            self._optimizer.tell(observation.arm[0].numpy(), share, float(observation.reward[0]))
            self._optimizer.clean(share)


class XoptTimeDependent(Rival):
    """``TDUpperConfidenceBoundGenerator`` of Xopt as it comes, but for its clock: all data fitted anew each step."""

    def __init__(self, domain: Domain, horizon: int, initial: int, seed: int) -> None:
        from xopt.generators.bayesian.upper_confidence_bound import TDUpperConfidenceBoundGenerator
        from xopt.vocs import VOCS

        super().__init__(domain, horizon, initial, seed)
        low, high = domain.bounds
        self._names = [f"x{i}" for i in range(domain.dim)]
        bounds = {name: [float(low[i]), float(high[i])] for i, name in enumerate(self._names)}
        vocs = VOCS(variables=bounds, objectives={"y": "MAXIMIZE"})
        self._generator = TDUpperConfidenceBoundGenerator(vocs=vocs, added_time=1e-3)

    def proposed(self, time: float) -> Tensor:
        with xopt_reads(SimulatedClock(time, 1e-3)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (chosen,) = self._generator.generate(1)
        return self.domain.bounds.new_tensor([[float(chosen[name]) for name in self._names]])

    def heard(self, observation: Observation) -> None:
        point = dict(zip(self._names, observation.arm[0].tolist(), strict=True))
        row = point | {"y": float(observation.reward[0]), "time": observation.time}
        self._generator.add_data(pd.DataFrame([row]))


class SimulatedClock:
    """Stands in for the module ``time`` where Xopt reads it: waiting is over at once, and takes ``least`` or more."""

    def __init__(self, now: float, least: float) -> None:
        self.now, self.least = now, least

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, self.least)


@contextmanager
def xopt_reads(clock: SimulatedClock) -> Iterator[None]:
    """Xopt's time-dependent generators have this clock in the block."""
    from xopt.generators.bayesian import time_dependent

    before = time_dependent.time
    time_dependent.time = clock
    try:
        yield
    finally:
        time_dependent.time = before


@contextmanager
def _as_the_package_needs() -> Iterator[None]:
    """float64 as the default: the package's own parameters would otherwise not meet its float64 data."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(before)
