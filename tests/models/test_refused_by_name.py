"""What models and what is built on them cannot use is refused by a ValueError that names the argument.

Of constructors, and of what every model is told, see tests/fuzz. Here is what that leaves out.
"""

import math

import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MultitaskKernel, RBFKernel, RBFKernelGrad, ScaleKernel

from bandits_torch.acquisition import PathwisePointDraw, UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    PeriodKernel,
    SpatioTemporalKernel,
)
from bandits_torch.models import ArmGP, AtTime, CandidatePrior, OnlineGP, WideningMembers, learnable
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.models.candidate_priors import arm_gp_of_prior, arm_gp_over_priors, online_gp_over_priors
from bandits_torch.theory.widths import uncertainty_sampling

ARMS = torch.rand(4, 2, generator=torch.Generator().manual_seed(0)).double()
BOX, ONE, TWO = torch.tensor([[0.0], [1.0]]).double(), torch.ones(1).double(), torch.ones(2).double()
LONE = torch.ones(1, 1).double()
SAMPLER = SobolQMCNormalSampler(torch.Size([2]))


def arms(*batch):
    return ArmGP(ARMS, RBFKernel(), 0.1, batch_shape=batch)


def points():
    return OnlineGP(RBFKernel(), 0.1, input_dim=1)


def of_own_noise():
    return points().condition_on_observations(LONE, LONE, noise=0.01 * LONE)


def loaded(model):
    other = points()
    other.load_state_dict(model.state_dict())
    return other


def over_two(*batch):
    return OnlineGP(RBFKernel(), 0.1, input_dim=2, batch_shape=batch)


def of_two():
    """Members that have seen the same points."""
    model = over_two(2)
    model.observe(torch.rand(2, 2).double(), torch.rand(2, 1).double())
    return model


def fades(kernel, form="auto"):
    over_time = SpatioTemporalKernel(ArmCovarianceKernel(torch.eye(4)), kernel)
    return ArmGP(4, over_time, 0.1, form=form, batch_shape=(2,))


def uneven():
    """A model whose members hold two rewards and one."""
    model = ArmGP(ARMS, RBFKernel(), 0.1, batch_shape=(2,), form="factor")
    for arm in range(2):
        model.observe_arms(torch.tensor(arm), torch.tensor(1.0))
    model.forget(where=torch.tensor([True, False]))
    return model


def given(X, Y, **options):
    return of_two().condition_on_observations(X, Y, **options)


MANY_X, MANY_Y = torch.rand(4, 2, 1, 2).double(), torch.rand(4, 2, 1, 1).double()


def bound():
    return UpperConfidenceBound(arms(2), 1.0)


def prior(**options):
    return CandidatePrior(**({"kernel": RBFKernel()} | options))


NAMED = [
    ("variance", lambda: PeriodKernel(torch.ones(3).double(), batch_shape=(2,))),
    ("kernel", lambda: ArmGP(ARMS, RBFKernelGrad(), 0.1)),
    ("kernel", lambda: ArmGP(ARMS, MultitaskKernel(RBFKernel(), 2), 0.1)),
    ("kernel", lambda: OnlineGP(ScaleKernel(RBFKernelGrad()), 0.1, input_dim=2)),
    ("bounds", lambda: WideningMembers(torch.tensor([True]), [0.0, 1.0], ONE, ONE, 0 * ONE, ONE)),
    (r"priors\[0\].kernel", lambda: arm_gp_of_prior(ARMS, prior(kernel=None), 0.1, replicates=2)),
    (
        r"priors\[0\].forgetting_rate",
        lambda: arm_gp_of_prior(ARMS, prior(forgetting_rate="slow"), 0.1, replicates=2),
    ),
    (
        r"priors\[0\].noise_variance",
        lambda: arm_gp_of_prior(ARMS, prior(noise_variance=-1.0), 0.1, replicates=2),
    ),
    (r"priors\[0\].noise_variance", lambda: arm_gp_over_priors(ARMS, [prior(noise_variance="loud")], 0.1)),
    (
        r"priors\[0\].noise_variance",
        lambda: online_gp_over_priors(Domain(BOX), [prior(noise_variance=[0.1])], 0.1),
    ),
    ("time", lambda: uncertainty_sampling(arms(), 2, math.nan)),
    ("noise_variance", lambda: arms(2).adopt(0.1, TWO)),
    ("prior_mean", lambda: arms(2).adopt(TWO, None)),
    ("noise_variance and prior_mean", lambda: points().adopt(ONE, 0.0)),
    ("arm", lambda: arms(2).observe_arms(torch.tensor([0, 1, 2]), TWO, noise_variance=TWO)),
    ("reward", lambda: arms(2).observe_arms(torch.tensor([0, 1]), torch.ones(3), noise_variance=TWO)),
    ("noise_variance", lambda: arms(2).observe_arms(torch.tensor([0, 1]), TWO, noise_variance=torch.ones(3))),
    ("arm", lambda: arms(2).expect_arms(TWO, 0.0)),
    ("arm", lambda: arms(2).expect_arms([0, 1], 0.0)),
    ("time", lambda: arms(2).expect_arms(torch.tensor([0, 1]), math.nan)),
    ("prior_mean", lambda: arms().with_arms(ARMS, "high")),
    ("prior_mean", lambda: arms().with_arms(ARMS, TWO)),
    ("prior_mean", lambda: arms().with_arms(ARMS, math.nan)),
    ("X", lambda: points().expect([[0.5]])),
    ("X", lambda: points().expect(ONE)),
    ("X", lambda: points().condition_on_observations([[0.5]], LONE)),
    ("Y", lambda: points().condition_on_observations(LONE, 1.0)),
    ("noise", lambda: points().condition_on_observations(LONE, LONE, noise=0.1)),
    ("observation_noise", lambda: points().posterior(LONE, observation_noise=-LONE)),
    ("observation_noise", lambda: points().posterior(LONE, observation_noise=math.nan * LONE)),
    ("observation_noise", lambda: points().posterior(LONE, observation_noise=LONE.expand(3, 1))),
    ("observation_noise", lambda: arms().posterior(LONE, observation_noise=LONE.expand(3, 1))),
    ("observation_noise", lambda: points().posterior(LONE.expand(3, 1), observation_noise=LONE.expand(2, 1))),
    ("observation_noise", lambda: points().fantasize(LONE, SAMPLER, observation_noise=LONE.expand(2, 1))),
    ("noise", lambda: given(MANY_X, MANY_Y, noise=-MANY_Y)),
    ("Y", lambda: given(MANY_X, MANY_Y * math.nan)),
    ("X", lambda: ArmGP(ARMS, RBFKernel(), torch.ones(3, 1)).posterior(torch.zeros(3, 4, 1, 1).double())),
    ("X", lambda: ArmGP(ARMS, RBFKernel(), torch.ones(3, 1)).posterior(torch.zeros(2, 1, 1, 1).double())),
    ("kernel.time_kernel", lambda: fades(RBFKernel())),
    ("form", lambda: fades(ExponentialForgettingKernel(0.1), "covariance").forget()),
    ("num_observations", lambda: uneven().train_inputs),
    ("num_observations", lambda: uneven().train_targets),
    ("model", lambda: of_own_noise().to_botorch()),
    ("model", lambda: of_own_noise().rebuild()),
    ("model", lambda: loaded(of_own_noise()).rebuild()),
    ("reward", lambda: arms().observe_arms(torch.tensor(1), torch.tensor(True))),
    ("Y", lambda: points().observe(LONE, LONE.bool())),
    ("state_dict", lambda: points().load_state_dict({})),
    ("state_dict", lambda: arms().load_state_dict({})),
]


def over_some(time_kernel):
    """A kernel that sees the first column and time, and says so itself."""
    return SpatioTemporalKernel(RBFKernel().double(), time_kernel, active_dims=[0, 2])


NAMED += [
    ("model", lambda: PathwisePointDraw(of_own_noise())),
    ("kernel.active_dims", lambda: ArmGP(ARMS, over_some(ExponentialForgettingKernel(0.1)), 0.1)),
    ("kernel.active_dims", lambda: ArmGP(ARMS, over_some(MaternTimeKernel(3.0)), 0.1)),
    ("kernel.active_dims", lambda: ArmGP(ARMS, ScaleKernel(over_some(MaternTimeKernel(3.0))), 0.1)),
    ("kernel.active_dims", lambda: learnable(over_some(MaternTimeKernel(3.0)), 2)),
    (
        "kernel.active_dims",
        lambda: PathwisePointDraw(OnlineGP(over_some(MaternTimeKernel(3.0)), 0.1, input_dim=3), time=0.0),
    ),
]
OTHER_WORDS = [
    ("X, Y and the model must broadcast", lambda: given(MANY_X[:, :1].expand(4, 3, 1, 2), MANY_Y)),
    ("batches of batch_shape", lambda: ArmGP(ARMS, RBFKernel(), torch.ones(3), batch_shape=(2,))),
    ("batch_shape.* of state_dict must", lambda: over_two().load_state_dict(of_two().state_dict())),
    ("whose last input is time", lambda: AtTime(arms(), 1.0)),
    ("cannot forget", lambda: WeightedGP(4, torch.eye(4), 0.1).forget(1)),
]
CASES = [*((f"^{name} must", call) for name, call in NAMED), *OTHER_WORDS]


@pytest.mark.parametrize(("words", "call"), CASES, ids=[words for words, _ in CASES])
def test_it_is_refused_by_name(words, call):
    with pytest.raises(ValueError, match=words):
        call()
