"""What kernels and models cannot use, and tests/fuzz leaves out, is refused by a ValueError that names the argument."""

import math

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Bilog
from botorch.models.transforms.input import InputPerturbation
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths, gen_kernel_features
from botorch.settings import validate_input_scaling
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel, RBFKernelGrad, ScaleKernel

from bandits_torch.acquisition import PathwisePointDraw
from bandits_torch.domain import Domain
from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    PeriodicTimeKernel,
    PeriodKernel,
    SpatioTemporalKernel,
    SumOfTimeKernels,
    WienerKernel,
    arm_context_kernel,
    estimate_covariance,
    state_space_of,
)
from bandits_torch.models import (
    ArmGP,
    AtTime,
    CandidatePrior,
    OnlineGP,
    SketchedGP,
    WideningMembers,
    fit_hyperparameters,
    learnable,
)
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


def sketch(kernel=None, noise=0.1, **options):
    return SketchedGP(ARMS, RBFKernel() if kernel is None else kernel, noise, **options)


def cyclic(form="auto"):
    return fades(PeriodicTimeKernel(7.0), form)


def faded(space=None, **options):
    """A kernel over time that forgets, beside one over space."""
    space = RBFKernel() if space is None else space
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(0.1, **options))


def over_features_and_indices():
    by_features = SpatioTemporalKernel(RBFKernel(), MaternTimeKernel())
    return ArmGP(4, fades(MaternTimeKernel()).prior.kernel + by_features, 0.1)


def over_some(time_kernel=None):
    """A kernel that sees the first column and time, and says so itself."""
    time_kernel = time_kernel or MaternTimeKernel(3.0)
    return SpatioTemporalKernel(RBFKernel().double(), time_kernel, active_dims=[0, 2])


def within(low, high):
    return ExponentialForgettingKernel(0.5, forgetting_rate_constraint=Interval(low, high))


def later(model):
    model.observe_arms(torch.tensor(1), torch.tensor(1.0).double(), 3.0)
    return model


def asked_in_time(model):
    """For its candidates of a moment, which is past when they are asked for."""
    X = model.candidates(2.0)
    return later(model).posterior(X)


def fitted(X=ARMS, Y=ARMS[:, :1], *noise, **options):
    with validate_input_scaling(False):
        return SingleTaskGP(X, Y, *noise, **options)


def taken(model, **options):
    return OnlineGP.from_botorch(model, **options)


def over_priors(noise=0.1, **options):
    return online_gp_over_priors(Domain(BOX), [prior(**options)], noise, replicates=2)


def given(X, Y, **options):
    return of_two().condition_on_observations(X, Y, **options)


MANY_X, MANY_Y = torch.rand(4, 2, 1, 2).double(), torch.rand(4, 2, 1, 1).double()


def prior(**options):
    return CandidatePrior(**({"kernel": RBFKernel()} | options))


def of_prior(**options):
    return arm_gp_of_prior(ARMS, prior(**options), 0.1, replicates=2)


# A name, which the message must begin with, or words of it.
REFUSED = [
    ("variance", lambda: PeriodKernel(torch.ones(3).double(), batch_shape=(2,))),
    ("kernel", lambda: ArmGP(ARMS, RBFKernelGrad(), 0.1)),
    ("kernel", lambda: ArmGP(ARMS, MultitaskKernel(RBFKernel(), 2), 0.1)),
    ("kernel", lambda: OnlineGP(ScaleKernel(RBFKernelGrad()), 0.1, input_dim=2)),
    ("bounds", lambda: WideningMembers(torch.tensor([True]), [0.0, 1.0], ONE, ONE, 0 * ONE, ONE)),
    (r"priors\[0\].kernel", lambda: of_prior(kernel=None)),
    (r"priors\[0\].forgetting_rate", lambda: of_prior(forgetting_rate="slow")),
    (r"priors\[0\].noise_variance", lambda: of_prior(noise_variance=-1.0)),
    (r"priors\[0\].noise_variance", lambda: arm_gp_over_priors(ARMS, [prior(noise_variance="loud")], 0.1)),
    (r"priors\[0\].noise_variance", lambda: over_priors(noise_variance=[0.1])),
    ("time", lambda: uncertainty_sampling(arms(), 2, math.nan)),
    ("noise_variance", lambda: arms(2).adopt(0.1, TWO)),
    ("prior_mean", lambda: arms(2).adopt(TWO, None)),
    ("prior_mean", lambda: points().adopt(ONE, 0.0)),
    ("noise_variance", lambda: points().adopt(TWO, ONE)),
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
    ("form", lambda: cyclic("factor")),
    ("time", lambda: later(cyclic()).marginals(0.0)),
    ("time", lambda: asked_in_time(fades(ExponentialForgettingKernel(0.1)))),
    ("arms", lambda: arms().with_arms(ARMS[:, 0])),
    ("arms", lambda: arms().with_arms(ARMS[:0])),
    ("arms", lambda: arms().with_arms(ARMS / 0)),
    ("arms", lambda: arms().with_arms(2)),
    (r"priors\[0\]\.mean", lambda: over_priors(mean=math.nan)),
    (r"priors\[0\]\.mean", lambda: over_priors(mean=1e200)),
    ("noise_variance", lambda: over_priors("loud")),
    ("noise_variance", lambda: over_priors(torch.ones(3))),
    (
        "kernel must be squared exponential or Matern",
        lambda: learnable(ArmCovarianceKernel(torch.eye(3).double()), 1, 2),
    ),
    ("kernel", lambda: sketch(faded())),
    ("noise_variance", lambda: sketch(noise=1e-11)),
    ("arm", lambda: sketch().observe_arms(torch.tensor(0.5), torch.tensor(1.0))),
    ("arm", lambda: sketch().expect_arms(3, 0.0)),
    ("forget", lambda: sketch().forget()),
    ("kernel", lambda: SketchedGP(3, torch.eye(3), 0.1).off_arms()),
    ("prior_mean", lambda: sketch(prior_mean=torch.zeros(4)).off_arms()),
    ("X", lambda: sketch().off_arms().posterior(torch.zeros(1, 1, 5))),
    ("fitted", lambda: taken(points())),
    ("fitted.num_outputs", lambda: taken(fitted(Y=ARMS))),
    ("fitted.batch_shape", lambda: taken(fitted(ARMS.expand(2, 4, 2), ARMS[:, :1].expand(2, 4, 1)))),
    ("fitted.outcome_transform", lambda: taken(fitted(outcome_transform=Bilog()))),
    ("fitted.input_transform", lambda: taken(fitted(input_transform=InputPerturbation(ARMS[:2])))),
    ("fitted.likelihood.noise", lambda: taken(fitted(ARMS, ARMS[:, :1], 1 + ARMS[:, 1:]))),
    ("running", lambda: taken(fitted(outcome_transform=None), running=True)),
    ("learns by model.refit", lambda: fit_hyperparameters(taken(fitted()), [0])),
    (
        r"AtTime\(model, time\): a path over arms is f at one time",
        lambda: draw_matheron_paths(ArmGP(4, cyclic().prior.kernel, 0.1), torch.Size([1])),
    ),
    ("model.batch_shape", lambda: draw_matheron_paths(over_two(2), torch.Size([1]))),
    ("observations all have its", lambda: draw_matheron_paths(of_own_noise(), torch.Size([1]))),
    ("kernel.batch_shape", lambda: gen_kernel_features(faded(batch_shape=(2,)), num_inputs=3, num_outputs=8)),
    ("lengthscale must be large enough for 1000", lambda: PeriodicTimeKernel(1.0, 1e-6).state_space()),
    ("nu must be 0.5, 1.5 or 2.5, got 1.0", lambda: MaternTimeKernel(1.0, 1.0)),
    (r"lengthscale must be of shape \(\)", lambda: MaternTimeKernel(torch.ones(2))),
    (r"kernels\[1\] must be one with a state", lambda: SumOfTimeKernels([MaternTimeKernel(), RBFKernel()])),
    ("kernel must be one with a state space.*got 'WienerKernel'", lambda: state_space_of(WienerKernel())),
    ("forgetting_rate_constraint", lambda: within(0.1, 2.0)),
    ("drift_variance_constraint", lambda: WienerKernel(0.5, drift_variance_constraint=Interval(-1.0, 2.0))),
    ("forgetting_rate", lambda: within(0.1, 0.2)),
    ("forgetting_rate", lambda: ExponentialForgettingKernel(TWO / 9, batch_shape=(3,))),
    ("x1 of a time kernel must", lambda: WienerKernel(0.1)(torch.rand(3, 2)).to_dense()),
    ("x1 of a period kernel must", lambda: PeriodKernel(1.0)(torch.zeros(3, 2)).to_dense()),
    ("x1", lambda: SpatioTemporalKernel(RBFKernel(), WienerKernel())(torch.rand(3, 1)).to_dense()),
    *(
        (
            f"table must be {words}",
            lambda one=one: estimate_covariance(torch.tensor([[1.0, one], [1.0, 2.0]])),
        )
        for words, one in (("free of infinities", math.inf), ("2 or more rewards", math.nan))
    ),
    ("context_kernel.active_dims", lambda: arm_context_kernel(RBFKernel(), RBFKernel(active_dims=[3]), 2, 3)),
    (
        "kernel must be a SpatioTemporalKernel, or a sum",
        lambda: ArmGP(4, cyclic().prior.kernel * RBFKernel(), 0.1),
    ),
    ("all over features, or all over indices", over_features_and_indices),
    ("5 x 5, one row per arm", lambda: ArmGP(4, torch.eye(4), 0.1).with_arms(LONE)),
    ("batches of batch_shape", lambda: sketch(noise=torch.ones(2), batch_shape=(3,))),
    ("X, Y and the model must broadcast", lambda: given(MANY_X[:, :1].expand(4, 3, 1, 2), MANY_Y)),
    ("batches of batch_shape", lambda: ArmGP(ARMS, RBFKernel(), torch.ones(3), batch_shape=(2,))),
    ("batch_shape.* of state_dict must", lambda: over_two().load_state_dict(of_two().state_dict())),
    ("whose last input is time", lambda: AtTime(arms(), 1.0)),
    ("cannot forget", lambda: WeightedGP(4, torch.eye(4), 0.1).forget(1)),
    ("model", lambda: PathwisePointDraw(of_own_noise())),
    ("kernel.active_dims", lambda: ArmGP(ARMS, over_some(ExponentialForgettingKernel(0.1)), 0.1)),
    ("kernel.active_dims", lambda: ArmGP(ARMS, over_some(), 0.1)),
    ("kernel.active_dims", lambda: ArmGP(ARMS, ScaleKernel(over_some()), 0.1)),
    ("kernel.active_dims", lambda: learnable(over_some(), 2)),
    ("kernel.active_dims", lambda: PathwisePointDraw(OnlineGP(over_some(), 0.1, input_dim=3), time=0.0)),
]
for over in (lambda space: space, faded):
    REFUSED += [
        (
            "dim must be 2, the number of the kernel's length-scales, got 1",
            lambda over=over: learnable(over(RBFKernel(ard_num_dims=2)), 1),
        ),
        (
            "dim must be above 3, the last of the kernel's active_dims, got 2",
            lambda over=over: learnable(over(MaternKernel(active_dims=[0, 3])), 2),
        ),
        (
            r"kernel\.batch_shape must be .* \(2,\), got \(3,\)",
            lambda over=over: learnable(over(RBFKernel(batch_shape=torch.Size([3]))), 1, 2),
        ),
    ]


@pytest.mark.parametrize(("words", "call"), REFUSED, ids=[words for words, _ in REFUSED])
def test_it_is_refused_by_name(words, call):
    with pytest.raises(ValueError, match=words if " " in words else f"^{words} must"):
        call()
