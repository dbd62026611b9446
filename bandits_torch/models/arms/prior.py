"""The prior over arms and time: covariances, transitions in time, state spaces, and stored rows of K."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import MarkovTimeKernel, SpatioTemporalKernel
from bandits_torch.kernels.arms import inputs_over, over_indices
from bandits_torch.kernels.composed import check_sees_all
from bandits_torch.kernels.state_space import Component, StateSpace
from bandits_torch.kernels.temporal import WITH_STATE_SPACE, check_markov, has_state_space, state_space_of
from bandits_torch.models.online_model import ResizableState, held_elsewhere


class ArmPrior(torch.nn.Module):
    """k((i, s), (j, t)) = K_ij * time_kernel(s, t) over N arms; static without a time kernel.

    K has a flat batch of size q (row-major). Member m of a model with b members has K number m % q.

    Args:
        arms: ``(*arms_batch, N, d)`` features.
        kernel: a kernel over features (or over indices, for ``ArmCovarianceKernel``), or a
            ``SpatioTemporalKernel`` whose time kernel is Markov (``prior_over`` handles others).
    """

    def __init__(self, arms: Tensor, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.space_kernel: Kernel
        self.time_kernel: MarkovTimeKernel | None
        space, over_time, own_batch = self._split(kernel)
        held_elsewhere(self, space_kernel=space, time_kernel=over_time)
        self.register_buffer("inputs", inputs_over(arms, kernel))
        self.inputs: Tensor
        self.num_arms = arms.shape[-2]
        self.batch_shape = torch.broadcast_shapes(own_batch, self.inputs.shape[:-2])
        self.model_batch_shape = self.batch_shape
        self._last_drift: tuple[tuple[float, float], tuple[Tensor, Tensor]] | None = None
        self._present: tuple[float, Tensor] | None = None

    def _split(self, kernel: Kernel) -> tuple[Kernel, Kernel | None, torch.Size]:
        """The kernel over arms, the kernel over time, and the batch shape of K."""
        if not isinstance(kernel, SpatioTemporalKernel):
            return kernel, None, kernel.batch_shape
        check_sees_all(kernel)
        check_markov(kernel.time_kernel)
        return kernel.space_kernel, kernel.time_kernel, kernel.space_kernel.batch_shape

    @property
    def flat_batch(self) -> int:
        """q, the size of K's batch."""
        return self.batch_shape.numel()

    def fill(self, model_batch_shape: torch.Size) -> None:
        """Expand the batch of K to the trailing dimensions of the model's batch in which it is not 1."""
        leading = len(model_batch_shape) - len(self.batch_shape)
        own = torch.Size([1] * leading) + self.batch_shape
        first = next((k for k, size in enumerate(own) if size > 1), len(own))
        self.batch_shape = model_batch_shape[first:]
        self.forget_hyperparameters()
        self.model_batch_shape = model_batch_shape

    def in_double(self) -> ArmPrior:
        """This prior if it is float64, else a float64 copy."""
        return self if self.inputs.dtype == torch.float64 else copy.deepcopy(self).double()

    def rows(self, arm: Tensor) -> Tensor:
        """K between the arms (n,) and all arms: (q, n, N)."""
        return self._flat(self._evaluate(self.inputs[..., arm, :], self.inputs))

    def matrix(self, arm: Tensor | None = None) -> Tensor:
        """K among the arms (n,), by default all: (q, n, n)."""
        x = self.inputs if arm is None else self.inputs[..., arm, :]
        return self._flat(self._evaluate(x, x))

    def among(self, arm: Tensor) -> Tensor:
        """K among the arms of each member: arm (T, b, n) -> (T, b, n, n)."""
        x = self._inputs_of(arm)
        return self._evaluate(x, x).reshape(*arm.shape, arm.shape[-1])

    def in_time(self, arm: Tensor, times: Tensor) -> Tensor:
        """The prior covariance among points (T, b, n) of arms and times: (T, b, n, n)."""
        covariance = self.among(arm)
        s, t = (at.expand(covariance.shape).flatten(-2) for at in (times.unsqueeze(-1), times.unsqueeze(-2)))
        return covariance * self.over_time(s, t).unflatten(-1, covariance.shape[-2:])

    def _inputs_of(self, arm: Tensor) -> Tensor:
        """The kernel's inputs for arms (T, b, n): (T, *model_batch_shape, n, d)."""
        inputs = self.inputs.expand(*self.model_batch_shape, *self.inputs.shape[-2:])
        index = arm.reshape(arm.shape[0], *self.model_batch_shape, arm.shape[-1], 1)
        return inputs.expand(arm.shape[0], *inputs.shape).gather(
            -2, index.expand(*index.shape[:-1], inputs.shape[-1])
        )

    def diagonal(self) -> Tensor:
        """k(x, x) of every arm: (q, N)."""
        # One more batch dimension, because GPyTorch takes a result of shape (n, n), of as many priors as arms, for a
        # matrix and returns its diagonal.
        inputs, batch = self.inputs, self.space_kernel.batch_shape
        if inputs.dim() == 2:
            inputs = inputs.expand(1, *batch, *inputs.shape)
        with torch.no_grad():
            diagonal = self.space_kernel(inputs, diag=True)
        return self._flat(diagonal.unsqueeze(-1)).squeeze(-1).clone()

    def over_time(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        """Time kernel between times s and t; 1, of shape (1, 1), if static.

        Numbers give (b, 1), or (1, 1) if all members share the hyperparameters; tensors (..., b, n) give (..., b, n).
        """
        if self.time_kernel is None:
            return self.inputs.new_ones(1, 1)
        with torch.no_grad():
            value = self.time_kernel.covariance(self._as_time(s), self._as_time(t))
        return self._by_member(value, isinstance(s, Tensor) or isinstance(t, Tensor))

    def transition(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """(a, c) for s <= t: f(., t) = a f(., s) + an independent GP of covariance c K; shapes as in ``over_time``."""
        assert self.time_kernel is not None
        with torch.no_grad():
            kept, gained = self.time_kernel.transition(self._as_time(s), self._as_time(t))
        per_point = isinstance(s, Tensor) or isinstance(t, Tensor)
        return self._by_member(kept, per_point), self._by_member(gained, per_point)

    def drift(self, now: float, then: float) -> tuple[Tensor, Tensor]:
        """``transition`` for two numbers, (b, 1) or (1, 1) each.

        The last result is cached: choosing and learning at one time need the same values, and so do steps of equal
        length under a stationary kernel.
        """
        stationary = self.time_kernel is None or self.time_kernel.is_stationary
        asked = (0.0, then - now) if stationary else (now, then)
        if self._last_drift is None or self._last_drift[0] != asked:
            self._last_drift = (asked, self.transition(*asked))
        return self._last_drift[1]

    def present(self, now: float) -> Tensor:
        """``over_time(now, now)``, (b, 1) or (1, 1). The last result is cached."""
        asked = 0.0 if self.time_kernel is None or self.time_kernel.is_stationary else now
        if self._present is None or self._present[0] != asked:
            self._present = asked, self.over_time(asked, asked)
        return self._present[1]

    def forget_hyperparameters(self) -> None:
        """Drop cached values, so the time kernel's hyperparameters are read again."""
        self._last_drift = self._present = None

    def _apply(self, *args: Any, **kwargs: Any) -> ArmPrior:
        self.forget_hyperparameters()
        return super()._apply(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any) -> None:
        self.forget_hyperparameters()
        super()._load_from_state_dict(*args)

    def _by_member(self, value: Tensor, per_point: bool) -> Tensor:
        """Values of the time kernel, (b, 1) or (1, 1), or (..., b, n) for times per point."""
        assert self.time_kernel is not None
        member_dims = len(self.model_batch_shape)
        if not per_point:
            shared = self.time_kernel.batch_shape.numel() == 1
            return value.reshape(1, 1) if shared else value.expand(*self.model_batch_shape, 1).reshape(-1, 1)
        if member_dims > 1:
            return value.flatten(value.dim() - 1 - member_dims, -2)
        return value if member_dims else value.unsqueeze(-2)

    def _as_time(self, t: Tensor | float) -> Tensor | float:
        """A time for the kernel. Numbers stay numbers, so differences are computed in float64."""
        return t.reshape(*t.shape[:-2], *self.model_batch_shape, t.shape[-1]) if isinstance(t, Tensor) else t

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        with torch.no_grad():
            return self.space_kernel(x1, x2).to_dense()

    def _flat(self, covariance: Tensor) -> Tensor:
        """(*batch, n, m) as (q, n, m); ``fill`` has cut leading dimensions of size 1 from the batch."""
        own, shape = covariance.shape[:-2], covariance.shape[-2:]
        covariance = covariance.reshape(*own[max(0, len(own) - len(self.batch_shape)) :], *shape)
        return covariance.expand(*self.batch_shape, *shape).reshape(self.flat_batch, *shape)


def prior_over(arms: Tensor, kernel: Kernel) -> ArmPrior:
    """The prior of a kernel: an ``ArmPrior`` if it is static or Markov in time, else a ``StateSpacePrior``."""
    markov = isinstance(kernel, SpatioTemporalKernel) and isinstance(kernel.time_kernel, MarkovTimeKernel)
    in_time = any(isinstance(part, SpatioTemporalKernel) for part in kernel.modules())
    return StateSpacePrior(arms, kernel) if in_time and not markov else ArmPrior(arms, kernel)


class StateSpacePrior(ArmPrior):
    """k((i, s), (j, t)) = sum_c K_c[i, j] k_c(s - t), each k_c with a state space.

    For the methods of ``ArmPrior``, K = sum_c K_c k_c(0), the covariance at one time. ``time_kernel`` is that of a
    single term without scales; otherwise it is the whole ``kernel``, of which only the batch shape is read.

    Args:
        arms: ``(*arms_batch, N, d)`` features.
        kernel: a ``SpatioTemporalKernel`` or an ``AdditiveKernel`` of such, also inside ``ScaleKernel``.

    Raises ValueError for a kernel of another structure, a time kernel without a state space, and a sum of kernels over
    features and kernels over indices.

    Source: Sarkka, Solin & Hartikainen 2013, section 4, for a finite set of places.
    """

    # Each term: the kernel over arms, the kernel over time, and the scales of their product.
    terms: list[tuple[Kernel, Kernel, tuple[ScaleKernel, ...]]]
    _spaces: list[StateSpace] | None = None
    _components: list[tuple[int, Component]] | None = None
    _last_step: tuple[float, list[Tensor]] | None = None

    def _split(self, kernel: Kernel) -> tuple[Kernel, Kernel | None, torch.Size]:
        self.terms = terms = _terms(kernel, ())
        markov = "Markov (a MarkovTimeKernel), or " if isinstance(kernel, SpatioTemporalKernel) else ""
        for _, over_time, _ in terms:
            kind, expected = type(over_time).__name__, markov + WITH_STATE_SPACE
            validation.require(has_state_space(over_time), "kernel.time_kernel", kind, expected)
        alike = len({over_indices(space) for space, _, _ in terms}) == 1
        expected = "a sum of kernels all over features, or all over indices of arms"
        validation.require(alike, "kernel", kernel, expected)
        batches = [part.batch_shape for space, time, scales in terms for part in (space, time, *scales)]
        over_time = terms[0][1] if len(terms) == 1 and not terms[0][2] else kernel
        return terms[0][0], over_time, torch.broadcast_shapes(*batches)

    def spaces(self) -> list[StateSpace]:
        """The state space of each term, with the batch shape of its kernels."""
        if self._spaces is None:
            spaces = []
            with torch.no_grad():
                for _, over_time, scales in self.terms:
                    space = state_space_of(over_time)
                    for scale in scales:
                        space = space.scaled(scale.outputscale)
                    spaces.append(space)
            self._spaces = spaces
        return self._spaces

    def components(self) -> list[tuple[int, Component]]:
        """Components of the state, in float64, each with the index of its term. Their batch is flat, (b, 1), or (1, 1)
        if all members share them."""

        def flat(value: Tensor, dims: int) -> Tensor:
            batch, tail = value.shape[: value.dim() - dims], value.shape[value.dim() - dims :]
            value = value.expand(*self.model_batch_shape, *tail) if batch.numel() > 1 else value
            return value.double().reshape(-1, 1, *tail)

        if self._components is None:
            self._components = [
                (k, replace(part.mapped(flat), measurement=part.measurement.double()))
                for k, space in enumerate(self.spaces())
                for part in space.components
            ]
        return self._components

    def step(self, elapsed: float) -> list[Tensor]:
        """A of each component over the time ``elapsed``, without its waves, (b, p, p) or (1, p, p). The last result is
        cached."""
        if self._last_step is None or self._last_step[0] != elapsed:
            time = torch.full((1, 1), elapsed, dtype=torch.float64, device=self.inputs.device)
            own = [part.decay(time).squeeze(1).to(self.inputs) for _, part in self.components()]
            self._last_step = elapsed, own
        return self._last_step[1]

    def matrices(self) -> list[Tensor]:
        """K_c of each term over the arms, (q, N, N)."""
        with torch.no_grad():
            return [self._flat(space(self.inputs, self.inputs).to_dense()) for space, _, _ in self.terms]

    def present(self, now: float) -> Tensor:
        """1, of shape (1, 1): K is the covariance at any one time."""
        return self.inputs.new_ones(1, 1)

    def diagonal(self) -> Tensor:
        """k((i, t), (i, t)) of every arm: (q, N)."""
        return self.matrix().diagonal(dim1=-2, dim2=-1).clone()

    def in_time(self, arm: Tensor, times: Tensor) -> Tensor:
        """The prior covariance among points (T, b, n) of arms and times: (T, b, n, n)."""

        def over_pairs(value: Tensor, dims: int) -> Tensor:
            return value[(..., None, None, *[slice(None)] * dims)]  # two more dimensions of the batch

        inputs = self._inputs_of(arm)
        apart = (times.unsqueeze(-1) - times.unsqueeze(-2)).double()
        shape = (arm.shape[0], *self.model_batch_shape, arm.shape[-1], arm.shape[-1])
        total = torch.zeros(shape, dtype=inputs.dtype, device=inputs.device)
        with torch.no_grad():
            for (over_arms, _, _), space in zip(self.terms, self.spaces(), strict=True):
                of_pairs = StateSpace(tuple(part.mapped(over_pairs) for part in space.components))
                value = of_pairs.value(apart.reshape(shape)).to(inputs)
                total += over_arms(inputs, inputs).to_dense() * value
        return total.reshape(*arm.shape, arm.shape[-1])

    def forget_hyperparameters(self) -> None:
        """Drop cached values, so the kernels' hyperparameters are read again."""
        super().forget_hyperparameters()
        self._spaces = self._components = self._last_step = None

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        with torch.no_grad():
            parts = [
                over_arms(x1, x2).to_dense() * space.value(0.0)[..., None, None].to(x1)
                for (over_arms, _, _), space in zip(self.terms, self.spaces(), strict=True)
            ]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0)


def _terms(
    kernel: Kernel, scales: tuple[ScaleKernel, ...]
) -> list[tuple[Kernel, Kernel, tuple[ScaleKernel, ...]]]:
    """The terms of a kernel (``StateSpacePrior.terms``), with ``scales`` around it."""
    check_sees_all(kernel)
    if isinstance(kernel, ScaleKernel):
        return _terms(kernel.base_kernel, (*scales, kernel))
    if isinstance(kernel, AdditiveKernel):
        return [term for part in kernel.kernels for term in _terms(part, scales)]
    expected = "a SpatioTemporalKernel, or a sum of them, with or without ScaleKernel"
    validation.require(isinstance(kernel, SpatioTemporalKernel), "kernel", type(kernel).__name__, expected)
    assert isinstance(kernel, SpatioTemporalKernel)
    return [(kernel.space_kernel, kernel.time_kernel, scales)]


class PriorRows(ResizableState):
    """G: the row K(x_i, arms) of every arm i pulled so far, for each of the q kernels of a batch.

    Memory O(q u N), with u the number of distinct arms. Only ``pack`` and ``reserve`` wait for a GPU.

    Attributes:
        rows: (q, capacity, N).
        row_of_arm: (N,), the index of each arm's row, -1 for none.
        used: (), the number of rows in use.
        bound: an upper bound of ``used``, known without waiting for the device.
        packed: how often ``pack`` has moved rows.
    """

    rows: Tensor
    row_of_arm: Tensor
    used: Tensor
    _PLAIN = ("bound",)

    def __init__(self, like: Tensor, capacity: int) -> None:
        super().__init__()
        q, n = like.shape
        self.register_buffer("rows", like.new_zeros(q, capacity, n))
        self.register_buffer("row_of_arm", torch.full((n,), -1, dtype=torch.long, device=like.device))
        self.register_buffer("used", torch.zeros((), dtype=torch.long, device=like.device))
        self.bound = self.packed = 0

    def of(self, arm: Tensor, member: Tensor) -> Tensor:
        """K_i of each member's arm (b,): (b, N)."""
        return self.rows[member % self.rows.shape[0], self.row_of_arm[arm]]

    def between(self, held: Tensor, arm: Tensor, member: Tensor) -> Tensor:
        """K between arms with rows, ``held`` (b, n), and any arms (T, b, k): (T, b, n, k)."""
        row = self.row_of_arm[held].clamp_min(0)
        return self.rows[(member % self.rows.shape[0])[:, None, None], row.unsqueeze(-1), arm.unsqueeze(-2)]

    def minus_through(self, column: Tensor, arm: Tensor, z: Tensor, whole: bool = False) -> Tensor:
        """column - G^T z for column (b, N) and z (b, n) over points of the arms (b, n). Reads G once for all members,
        with ``whole`` including its free rows."""
        row = self.row_of_arm[arm].clamp_min(0)  # free points, whose z is 0, read row 0
        rows = self.rows if whole else self.rows[:, : max(1, self.bound)]
        by_row = z.new_zeros(z.shape[0], rows.shape[1]).scatter_add_(-1, row, z)
        q = rows.shape[0]
        if z.shape[0] == 1:
            return torch.addmv(column[0], rows[0].mT, by_row[0], alpha=-1).unsqueeze(0)
        column, by_row = (value.unflatten(0, (-1, q)).transpose(0, 1) for value in (column, by_row))
        return torch.baddbmm(column, by_row, rows, alpha=-1).transpose(0, 1).flatten(0, 1)

    def bring(
        self, prior: ArmPrior, arm: Tensor, member: Tensor, point_arm: Tensor, point_count: Tensor
    ) -> None:
        """Make a row for every arm (b,). If room is short, arms without observations lose their rows."""
        known = self.row_of_arm[arm] >= 0
        if known.is_cpu and bool(known.all()):
            return
        # on a GPU the largest possible number
        new = len(arm[~known].unique()) if known.is_cpu else arm.shape[0]
        if not self.has_room(new):
            self.pack(new, torch.cat([point_arm[point_count > 0], arm[known]]))
        if not arm.is_cpu:  # it is not known here which are new: write all rows
            self.take_in(arm, member, prior.rows(arm))
        else:
            row, brings = self._places(arm, member, known)
            arm, row = arm[brings], row[brings]
            self.rows[:, row] = prior.rows(arm)
            self.row_of_arm[arm] = row
            self.used += brings.sum()
        self.bound += arm.shape[0]

    def take_in(self, arm: Tensor, member: Tensor, rows: Tensor) -> None:
        """Store ``rows`` (q, b, N) of the arms (b,), for which there is room, without checking which are new."""
        known = self.row_of_arm[arm] >= 0
        row, brings = self._places(arm, member, known)
        row = torch.where(known, self.row_of_arm[arm], row)
        self.rows[:, row] = rows
        self.row_of_arm[arm] = row
        self.used += brings.sum()

    def _places(self, arm: Tensor, member: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """The row of each new arm, (b,), and whether this member is the first that pulls the arm, (b,). O(N)."""
        none = torch.full_like(self.row_of_arm, arm.shape[0])
        first = none.scatter_reduce(0, arm, member, "amin")[arm]
        brings = ~known & (first == member)
        return (self.used + brings.cumsum(0) - 1)[first], brings

    def pack(self, new: int, live: Tensor) -> None:
        """Drop the rows of arms that are not ``live``; leave room for twice ``new`` rows, or more."""
        held = torch.zeros_like(self.row_of_arm, dtype=torch.bool)
        held[live] = True
        arms = held.nonzero().squeeze(-1)
        used = len(arms)
        room = used + max(2 * new, min(used, 1024))
        rows = self.rows.new_zeros(self.rows.shape[0], max(room, 32), self.rows.shape[2])
        rows[:, :used] = self.rows[:, self.row_of_arm[arms]]
        self.rows = rows
        self.row_of_arm.fill_(-1)
        self.row_of_arm[arms] = torch.arange(used, device=arms.device)
        self.used.fill_(used)
        self.bound = used
        self.packed += 1

    def has_room(self, new: int) -> bool:
        """Whether there is room for this many more rows."""
        return self.bound + new <= self.rows.shape[1]

    def reserve(self, new: int, live: Tensor) -> None:
        """Count the rows in use, and ``pack`` if there is no room for ``new`` more."""
        self.bound = int(self.used)
        if not self.has_room(new):
            self.pack(new, live)

    def widen(self, source: Tensor, new_q: int) -> None:
        """Expand to ``new_q`` kernels; member m of the wider batch is a copy of member source[m]."""
        old_q = self.rows.shape[0]
        if new_q != old_q:
            self.rows = self.rows[source[:new_q] % old_q]
