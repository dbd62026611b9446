"""Features of the arms for the optimisation-based policies: fixed, or learned by a neural network."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.description import Described
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.optimal_design import features_of_covariance


class FeatureSource(Described, ABC):
    """Base class: features of the arms, which may be learned again for each block.

    ``refuses``: whether ``learnt`` may raise ValueError; a policy then forgets the reward that ended the block.
    """

    replicates: int
    num_arms: int
    refuses: bool = True

    @abstractmethod
    def initial(self, replicate: int) -> Tensor:
        """phi of block 0, (N, p)."""

    @abstractmethod
    def learnt(self, replicate: int, counts: Tensor, sums: Tensor) -> Tensor:
        """phi of a later block, (N, p), from the epoch's pulls and summed rewards of each arm, (N,) each.

        Returns the tensor of ``initial`` itself if the features never changed, so designs are not solved again.
        """


class FixedFeatures(FeatureSource):
    """The same features in every block: ``features_of_covariance(kernel(arms))`` for a kernel, the arms themselves
    for a linear function.

    Args:
        features: (N, p), or (S, N, p) for replicates that differ.
        replicates: S.

    Source: phi of Hong, Li & Tewari 2023, section 2. Raises ValueError for any other shape, NaN or infinity.
    """

    refuses = False

    def __init__(self, features: Tensor, replicates: int = 1) -> None:
        validation.positive_integer("replicates", replicates)
        validation.tensor("features", features)
        ok = features.numel() > 0 and features.dim() == 2
        ok = ok or (features.dim() == 3 and features.shape[0] == replicates)
        validation.shape_is("features", features, ok, f"(N, p) or ({replicates}, N, p)")
        features = validation.finite_tensor("features", features).detach().clone()
        self.features, self.replicates, self.num_arms = features, replicates, features.shape[-2]
        self._of_replicate = [*features] if features.dim() == 3 else [features] * replicates

    def initial(self, replicate: int) -> Tensor:
        return self._of_replicate[replicate]

    def learnt(self, replicate: int, counts: Tensor, sums: Tensor) -> Tensor:
        return self.initial(replicate)


Weights = list[Tensor]
_MOST_HALVINGS = 120  # of the learning rate


class NeuralFeatures(FeatureSource):
    """phi^(j) equivalent to grad f(.; W^(j)) / sqrt(m), W^(j) trained on the epoch (Hong et al. 2023, section 5).

    f(x; W) = sqrt(m) W_L relu(W_{L-1} ... relu(W_1 x)), weights N(0, 2/m); W^(j) is the end of ``training_steps``
    steps of gradient descent from W^(0) on sum_t (f(x_t) - y_t)^2 / 2 + m lambda |W - W^(0)|^2 / 2 (Algorithm 6).
    Block 0 has the scale 1/sqrt(m) too, where Algorithm 5 prints none. With ``training_steps=0`` it is OPNN0.

    The learning rate is 1 / (m (largest eigenvalue of D^{1/2} H D^{1/2} + lambda)), with D the pulls of the arms and H
    the Gram matrix at W^(0). With it the linearised network converges. It is halved until the network's loss falls,
    which with rewards far above 1 it may not at first. The paper tunes the rate.

    Args:
        arms: (N, d) features of the arms, of similar norms near 1: the network has no biases.
        width, depth: m and L.
        training_steps: J.
        regulariser: lambda.
        replicates, seed, first_replicate: each replicate has its own network.

    Cost: only Gram matrices, O(L N m^2 + L N^2 m); the p = m d + (L - 2) m^2 + m gradients of an arm are never
    formed. A training step costs O(L N m^2) for any length of the history, because rewards are summed by arm.

    Raises ValueError unless ``arms`` are finite (N, d) features, ``width`` and ``replicates`` >= 1, ``depth`` >= 2,
    ``training_steps`` >= 0 and ``regulariser`` > 0.
    """

    def __init__(
        self,
        arms: Tensor,
        width: int = 256,
        depth: int = 3,
        training_steps: int = 200,
        regulariser: float = 0.01,
        replicates: int = 1,
        *,
        seed: int = 0,
        first_replicate: int = 0,
    ) -> None:
        ok = isinstance(arms, Tensor) and arms.dim() == 2
        validation.require(ok, "arms", arms, "an (N, d) tensor of features")
        validation.shape_is("arms", arms, arms.numel() > 0, "(N, d) with N >= 1 and d >= 1")
        self.arms = validation.finite_tensor("arms", arms).detach().clone()
        self.width = validation.positive_integer("width", width)
        self.depth = validation.positive_integer("depth", depth)
        validation.require(depth >= 2, "depth", depth, "an integer >= 2")
        self.training_steps = validation.natural("training_steps", training_steps)
        self.regulariser = validation.positive("regulariser", regulariser)
        self.replicates, self.num_arms = validation.positive_integer("replicates", replicates), arms.shape[0]
        streams = ReplicateStreams(seed, replicates, purpose="network", first=first_replicate, like=arms)
        sizes = [(width, arms.shape[1]), *[(width, width)] * (depth - 2), (1, width)]
        drawn = [math.sqrt(2 / width) * streams.normal(rows, columns) for rows, columns in sizes]
        self._start = [[W[s].clone() for W in drawn] for s in range(replicates)]
        self._gram = [gram(weights, self.arms) for weights in self._start]
        self._initial = [features_of_covariance(each) for each in self._gram]

    def initial(self, replicate: int) -> Tensor:
        """phi^(0), (N, N)."""
        return self._initial[replicate]

    def learnt(self, replicate: int, counts: Tensor, sums: Tensor) -> Tensor:
        """phi^(j), (N, N), after ``train`` on ``counts`` pulls of the arms with rewards ``sums``."""
        if self.training_steps == 0:
            return self._initial[replicate]
        return features_of_covariance(gram(self.train(replicate, counts, sums), self.arms))

    def train(self, replicate: int, counts: Tensor, sums: Tensor) -> Weights:
        """W^(j), from the pulls and summed rewards of the arms, (N,) each (Algorithm 6). Raises ValueError for rewards
        so large, or arms of norms so small, that training diverges."""
        start = self._start[replicate]
        held = counts > 0
        x, n = self.arms[held], counts[held]
        mean = sums[held] / n
        root = n.sqrt()
        stiffest = torch.linalg.eigvalsh(root.unsqueeze(-1) * self._gram[replicate][held][:, held] * root)[-1]
        rate = 1 / (self.width * (float(stiffest) + self.regulariser))
        first = (n * (layers(start, x)[0] - mean).square()).sum()
        rounding = torch.finfo(mean.dtype).eps * (n * mean.square()).sum()
        for _ in range(_MOST_HALVINGS):
            back = rate * self.width * self.regulariser  # the share of the way back to W^(0)
            weights = [W.clone() for W in start]
            for _ in range(self.training_steps):
                value, inputs, derivatives = layers(weights, x)
                error = (n * (value - mean)).unsqueeze(-1)
                for W, W0, h, b in zip(weights, start, inputs, derivatives, strict=True):
                    W.lerp_(W0, back).addmm_((error * b).mT, h, alpha=-rate)
            moved = sum((W - W0).square().sum() for W, W0 in zip(weights, start, strict=True))
            last = (n * (layers(weights, x)[0] - mean).square()).sum()
            if bool(last + self.width * self.regulariser * moved <= first + rounding):
                return weights
            rate /= 2
        expected = "of a size near 1, for arms of norms near 1: the loss grows at all learning rates"
        raise ValueError(f"reward must be {expected}, got {sums.tolist()}")


def layers(weights: Weights, x: Tensor) -> tuple[Tensor, Weights, Weights]:
    """f(x; W), and for each layer its input h_{l-1} and the derivative b_l of f in W_l h_{l-1}, row i of arm i.

    The gradient of f in W_l is the outer product b_l h_{l-1}^T.
    """
    root = math.sqrt(weights[-1].shape[-1])
    inputs, hidden = [], x
    for W in weights:
        inputs.append(hidden)
        before = hidden @ W.mT
        hidden = torch.relu(before)
    derivatives = [torch.full_like(before, root)]
    for W, h in zip(reversed(weights[1:]), reversed(inputs[1:]), strict=True):
        derivatives.append((derivatives[-1] @ W) * (h > 0))
    return root * before.squeeze(-1), inputs, derivatives[::-1]


def gram(weights: Weights, x: Tensor) -> Tensor:
    """<grad f(x_i), grad f(x_j)> / m, (N, N): sum_l (b_l b_l^T) * (h_{l-1} h_{l-1}^T) / m, elementwise products."""
    _, inputs, derivatives = layers(weights, x)
    blocks = [(b @ b.mT) * (h @ h.mT) for b, h in zip(derivatives, inputs, strict=True)]
    total = torch.stack(blocks).sum(0) / weights[-1].shape[-1]
    return 0.5 * (total + total.mT)
