"""What is trained."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.ray.running import SCORE, Training


class Triangle(Training):
    """``pbt_function`` of Ray's examples, which ``pb2_example`` trains: the best rate is a triangle wave of the score.

    A step adds min(a, b) / max(a, b) u, u uniform on (0, 1), with a the rate and b the best one, and normal noise of
    deviation 2; a rate above 3 times the best one loses by as much.
    """

    def begin(self, seed: int) -> dict[str, float]:
        """Score 0."""
        return {SCORE: 0.0}

    def step(self, state: dict[str, float], config: dict[str, Any]) -> dict[str, float]:
        """As in ``pbt_function``."""
        score, rate = state[SCORE], config["lr"]
        height = score if score < 100 else 200 - score
        best = min(0.01, max(0.001, 0.01 * height / 100))
        ratio = max(rate, best) / min(rate, best)
        if ratio < 3:
            score += random.random() / ratio
        elif rate > best:
            score -= (ratio - 3) * random.random()
        state[SCORE] = max(0.0, score + 2 * np.random.normal())  # noqa: NPY002  # as there
        return dict(state)


class Digits(Training):
    """A network of one hidden layer on scikit-learn's digits, by stochastic gradients: learning rate, weight decay,
    momentum, and how strongly images are shifted and blurred by noise. An iteration is a few batches.

    score: minus the cross entropy of the validation set; test: accuracy on the test set.
    """

    def __init__(self, hidden: int = 32, batches: int = 8, size: int = 32) -> None:
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(X))
        X, y = torch.tensor(X[order] / 16, dtype=torch.float32), torch.tensor(y[order])
        parts = slice(0, 600), slice(600, 1200), slice(1200, None)
        (self.X, self.y), self.validation, self.test = [(X[part], y[part]) for part in parts]
        self.hidden, self.batches, self.size = hidden, batches, size

    def begin(self, seed: int) -> dict[str, Any]:
        """Weights drawn by the seed, no momentum yet."""
        generator = torch.Generator().manual_seed(seed)
        shapes = (64, self.hidden), (self.hidden,), (self.hidden, 10), (10,)
        weights = [
            torch.randn(shape, generator=generator) / shape[0] ** 0.5
            if len(shape) > 1
            else torch.zeros(shape)
            for shape in shapes
        ]
        return {
            "weights": weights,
            "speed": [torch.zeros_like(w) for w in weights],
            "generator": generator.get_state(),
        }

    def step(self, state: dict[str, Any], config: dict[str, Any]) -> dict[str, float]:
        """A few batches."""
        generator = torch.Generator()
        generator.set_state(state["generator"])
        rate, decay = config["lr"], config["decay"]
        weights = [w.requires_grad_() for w in state["weights"]]
        for _ in range(self.batches):
            rows = torch.randint(len(self.X), (self.size,), generator=generator)
            X = self._augmented(self.X[rows], config["augmentation"], generator)
            loss = nn.functional.cross_entropy(self._logits(weights, X), self.y[rows])
            with torch.no_grad():
                for w, v, g in zip(weights, state["speed"], torch.autograd.grad(loss, weights), strict=True):
                    v.mul_(config["momentum"]).add_(g + decay * w)
                    w.sub_(rate * v).nan_to_num_(0.0, 0.0, 0.0).clamp_(-1e3, 1e3)
        state["weights"] = [w.detach() for w in weights]
        state["generator"] = generator.get_state()
        with torch.no_grad():
            logits = self._logits(state["weights"], self.validation[0])
            score = -float(nn.functional.cross_entropy(logits, self.validation[1]).clamp(max=10.0))
            right = self._logits(state["weights"], self.test[0]).argmax(-1) == self.test[1]
        return {SCORE: score, "test": float(right.double().mean())}

    @staticmethod
    def _logits(weights: list[torch.Tensor], X: torch.Tensor) -> torch.Tensor:
        return torch.relu(X @ weights[0] + weights[1]) @ weights[2] + weights[3]

    @staticmethod
    def _augmented(X: torch.Tensor, strength: float, generator: torch.Generator) -> torch.Tensor:
        images = X.reshape(-1, 8, 8)
        moved = torch.rand(len(X), generator=generator) < strength
        step = 1 if int(torch.randint(2, (), generator=generator)) else -1
        axis = int(torch.randint(1, 3, (), generator=generator))
        images = torch.where(moved[:, None, None], images.roll(step, axis), images)
        return (images + 0.3 * strength * torch.randn(images.shape, generator=generator)).reshape(X.shape)
