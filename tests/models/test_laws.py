"""Laws of every model that learns one observation at a time: each is compared with itself."""

import copy
import io
import math
import pickle

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models import ArmGP, OnlineGP, SketchedGP
from bandits_torch.models.arms import covariance_form
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.models.online_model import QuickModule
from bandits_torch.models.points import growing_cholesky
from bandits_torch.state import differing
from tests.fuzz.living import state_of
from tests.reference.arm_gp_twins import isolated, smooth

N, F64 = 8, torch.float64
COVARIANCES = torch.stack([smooth(N, 0.3), isolated(N)])
NOISES = torch.tensor([0.01, 0.2], dtype=F64)
DRIFTS = {  # the faster, the larger the pace
    "fades": lambda pace: ExponentialForgettingKernel(
        pace * torch.tensor([0.1, 0.5], dtype=F64), batch_shape=(2,)
    ),
    "wanders": lambda pace: WienerKernel(pace * torch.tensor([0.02, 0.1], dtype=F64), batch_shape=(2,)),
    "smooth": lambda pace: MaternTimeKernel(
        torch.tensor([6.0, 20.0], dtype=F64) / pace, 1.5, batch_shape=torch.Size([2])
    ),
}
NAMES = (
    "covariance",
    "rows wait",
    "factor",
    "own noise",
    "covariance fades",
    "own noise fades",
    "rows wait fades",
    "factor fades",
    "auto fades",
    "covariance wanders",
    "factor wanders",
    "states are smooth",
    "OnlineGP",
    "OnlineGP fades",
    "OnlineGP padded",
    "SketchedGP",
    "SketchedGP in chunks",
    "WeightedGP",
)
every_model = pytest.mark.parametrize("name", NAMES)


def drift_of(name):
    return next((drift for drift in DRIFTS if name.endswith(drift)), None)


def model_of(name, batch=(), unit=1.0, noises=NOISES, pace=1.0):
    """Members (*batch, 2), for rewards in this unit: candidate priors of their own covariance, noise and drift, where a
    model has such."""
    drift, about = drift_of(name), {"prior_mean": 0.3 * unit, "batch_shape": (*batch, 2)}
    covariances, noises = unit**2 * COVARIANCES, unit**2 * noises
    if name.startswith("SketchedGP"):
        return SketchedGP(N, covariances[0], noises, chunk_size=4 if "chunks" in name else None, **about)
    kernel = ArmCovarianceKernel(covariances)
    if name == "OnlineGP fades":
        kernel = RBFKernel(batch_shape=torch.Size([2])).double()
        kernel.lengthscale = unit * torch.tensor([1.0, 3.0], dtype=F64).reshape(2, 1, 1)
    if drift:
        kernel = SpatioTemporalKernel(kernel, DRIFTS[drift](pace))
    if name.startswith("OnlineGP"):
        return OnlineGP(kernel, noises, input_dim=1 + bool(drift), **about)
    if name == "WeightedGP":
        return WeightedGP(N, kernel, noises, discount=0.9, **about)
    form = name.split()[0]
    return ArmGP(N, kernel, noises, form=form if form in ("covariance", "factor") else "auto", **about)


@pytest.fixture(autouse=True)
def in_small(request, monkeypatch):
    """Where a name says so, rows of few arms wait too, and few rows of points are padded, in steps of four."""
    name = request.node.callspec.params["name"] if hasattr(request.node, "callspec") else ""
    if "rows wait" in name:
        monkeypatch.setattr(covariance_form, "WAITS_FROM", 0)
    if "padded" in name:
        monkeypatch.setattr(growing_cholesky, "FROM", 2)
        monkeypatch.setattr(growing_cholesky, "_STEP", 4)


def inputs(name, arm, time):
    """X (..., 1, d) of arms (...) at a time."""
    columns = [arm.double(), torch.full_like(arm, time, dtype=F64)][: 1 + bool(drift_of(name))]
    return torch.stack(columns, -1).unsqueeze(-2)


def draws(shape, step):
    generator = torch.Generator().manual_seed(step)
    arm = torch.randint(N, shape, generator=generator)
    return (
        arm,
        torch.randn(shape, generator=generator, dtype=F64),
        torch.rand(shape, generator=generator) < 0.8,
    )


def learn(name, model, steps, start=0.0, unit=1.0):
    """What is told at these steps to each member; some are left out, and some forget and restart."""
    for step in steps:
        arm, reward, where = draws(model.batch_shape, step)
        if name.startswith("own noise") and step % 3:
            noise = 0.01 * 100 ** draws(arm.shape, step + 1)[1].sigmoid()
            model.observe_arms(arm, reward, start + step, noise_variance=noise)
        else:
            model.observe(inputs(name, arm, start + step), unit * reward[..., None, None], where)
        if step % 10 == 7 and model.can_forget and not name.startswith("own noise"):
            model.forget(2, where & (model.num_observations >= 2))
        if step % 17 == 16:
            model.reset(~where)
    return model


def said(name, model, time=50.0):
    """Mean and variance of all arms at a time (n, ..., 1, 1), and what is known of all that was learned."""
    arms = torch.arange(N).reshape(N, *[1] * len(model.batch_shape))
    with torch.no_grad():
        posterior = model.posterior(inputs(name, arms, time))
    values = [posterior.mean, posterior.variance]
    values = [value.squeeze(-1).squeeze(-1).movedim(0, -1) for value in values]
    likelihood = [model.log_likelihood] if hasattr(model, "log_likelihood") else []
    return [*values, model.information_gain, *likelihood, model.num_observations]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def assert_equal(one, other):
    assert equal(one, other)


def assert_close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def through_a_file(name, model):
    """Taken up by a model of other hyperparameters, which has learned something else at the last times."""
    file, state = io.BytesIO(), model.state_dict()
    names = [name for name in (key.split(".")[-1] for key in state) if name.startswith(("raw_", "noise_var"))]
    assert len(set(names)) == len(names) > 0  # each hyperparameter once
    torch.save(state, file)
    file.seek(0)
    other = learn(name, model_of(name, model.batch_shape[:-1], 2.0, 0.5 * NOISES, 0.7), range(38, 40))
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


COPIES = {
    "copy": lambda name, model: copy.deepcopy(model),
    "pickle": lambda name, model: pickle.loads(pickle.dumps(model)),
    "file": through_a_file,
}


@pytest.mark.parametrize("steps", [0, 40])
@pytest.mark.parametrize("how", COPIES)
@every_model
def test_a_copy_goes_on_as_the_original_would_and_learns_apart(name, how, steps):
    model = learn(name, model_of(name, (3,)), range(steps))
    said(name, model)  # what was asked may be kept
    other = COPIES[how](name, model)
    before = said(name, model)
    assert equal(said(name, other), before)
    learn(name, other, range(40, 48))
    assert equal(said(name, model), before)
    assert not torch.equal(before[0], said(name, other)[0])
    learn(name, model, range(40, 48))
    assert equal(said(name, model), said(name, other))


@every_model
def test_an_expanded_copy_is_its_original_in_every_replicate(name):
    model = learn(name, model_of(name), range(25))
    before = said(name, model)
    wide = model.expand(torch.Size([3, 2]))
    assert equal(said(name, wide), [value.expand(3, *value.shape) for value in before])
    arm, reward, where = draws((3, 2), 99)
    wide.observe(inputs(name, arm, 30.0), reward[..., None, None], where)
    assert equal(said(name, model), before)
    for k in range(3):
        alone = copy.deepcopy(model)
        alone.observe(inputs(name, arm[k], 30.0), reward[k][..., None, None], where[k])
        assert_close([value[k] for value in said(name, wide)], said(name, alone))
    with pytest.raises(ValueError, match=r"batch.shape"):
        model.expand(torch.Size([3]))


@every_model
def test_conditioning_on_fantasies_is_observing_each_of_them_in_a_copy(name):
    model = learn(name, model_of(name), range(25))
    before = said(name, model)
    arm, Y = torch.tensor([[1, 3], [2, 3]]), torch.randn(5, 2, 2, 1, dtype=F64)
    X = inputs(name, arm, 30.0).squeeze(-2)
    fantasies = model.condition_on_observations(X, Y)
    assert fantasies.batch_shape == (5, 2)
    assert equal(said(name, model), before)
    for k in range(5):
        alone = copy.deepcopy(model)
        alone.observe(X, Y[k])
        assert_close([value[k] for value in said(name, fantasies)], said(name, alone))


@every_model
def test_members_of_a_batch_are_models_alone(name):
    """Told apart, forgetting and restarting apart, whatever the others do."""
    together = learn(name, model_of(name, (2,)), range(25))
    for k in range(2):
        alone = model_of(name)
        if name.startswith(("SketchedGP", "own noise")):  # draws of its own
            continue
        for step in range(25):
            arm, reward, where = (value[k] for value in draws((2, 2), step))
            alone.observe(inputs(name, arm, float(step)), reward[..., None, None], where)
            if step % 10 == 7 and alone.can_forget:
                alone.forget(2, where & (alone.num_observations >= 2))
            if step % 17 == 16:
                alone.reset(~where)
        assert_close([value[k] for value in said(name, together)], said(name, alone))


@every_model
def test_members_left_out_stay_to_the_last_bit(name):
    model = learn(name, model_of(name, (3,)), range(12))
    out = torch.tensor([[True, False], [False, False], [True, True]])
    if drift_of(name):  # time passes for all
        model.observe(inputs(name, torch.zeros(3, 2), 12.0), torch.zeros(3, 2, 1, 1, dtype=F64))
    before, fresh = said(name, model), said(name, model_of(name, (3,)))
    arm, reward, _ = draws((3, 2), 3)
    same = assert_close if name.startswith("OnlineGP") else assert_equal  # which pads its factors
    model.observe(inputs(name, arm, 12.0), reward[..., None, None], ~out)
    after = said(name, model)
    same([value[out] for value in after], [value[out] for value in before])
    assert (after[-1] - before[-1])[~out].eq(1).all()
    model.reset(~out)
    after = said(name, model)
    same([value[out] for value in after], [value[out] for value in before])
    assert_close([value[~out] for value in after], [value[~out] for value in fresh])


@every_model
def test_a_block_of_observations_is_observed_in_its_order_and_none_changes_nothing(name):
    one, other = model_of(name), model_of(name)
    arm, reward, _ = draws((2, 5), 0)
    times = torch.tensor([0.0, 0.0, 1.5, 2.0, 9.0], dtype=F64)
    X = torch.cat(
        [arm.double().unsqueeze(-1), times.expand(2, 5).unsqueeze(-1)][: 1 + bool(drift_of(name))], -1
    )
    one.observe(X, reward.unsqueeze(-1))
    for k in range(5):
        other.observe(X[:, k : k + 1], reward[:, k, None, None])
    assert_close(said(name, one), said(name, other))
    some = torch.tensor([True, False])
    masked, alone = copy.deepcopy(one), copy.deepcopy(other)
    later = X + 9.0 * (torch.arange(X.shape[-1]) == 1)
    masked.observe(later, reward.unsqueeze(-1), some)
    for k in range(5):
        alone.observe(later[:, k : k + 1], reward[:, k, None, None], some)
    assert_close(said(name, masked), said(name, alone))
    if hasattr(one, "train_inputs"):
        assert torch.equal(one.train_inputs[0], X)
        assert torch.equal(one.train_targets, reward)
    if isinstance(one, ArmGP | SketchedGP):  # the others refuse no rows at all
        before = said(name, one)
        fantasies = one.fantasize(X[:, :0], SobolQMCNormalSampler(torch.Size([4]), seed=0))
        assert fantasies.num_observations.eq(before[-1]).all()
        one.observe(X[:, :0], reward[:, :0, None])
        assert equal(said(name, one), before)


ALIKE = ("rows", "own", "states", "OnlineGP fades", "SketchedGP in")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(ALIKE)])
def test_in_another_unit_of_rewards_a_model_says_the_same_to_the_last_bit(name):
    """1024 units to one: no tolerance, jitter or threshold is in a unit of its own. One noise is a millionth of the
    prior variance."""
    noises = torch.tensor([1e-6, 0.2], dtype=F64)
    units = {unit: model_of(name, unit=unit, noises=noises) for unit in (1.0, 1024.0)}
    plain, scaled = (learn(name, model, range(40), unit=unit) for unit, model in units.items())
    ours, theirs = said(name, plain), said(name, scaled)
    assert torch.equal(1024.0 * ours[0], theirs[0])
    assert torch.equal(1024.0**2 * ours[1], theirs[1])
    torch.testing.assert_close(ours[2], theirs[2], rtol=1e-12, atol=0)
    if len(ours) > 4:  # log densities, of so many rewards
        density = ours[3] - ours[-1].double() * math.log(1024.0)
        torch.testing.assert_close(density, theirs[3], rtol=1e-12, atol=1e-9)


@every_model
def test_hyperparameters_that_are_set_are_as_if_from_the_start(name):
    model, other = model_of(name), model_of(name, (), 2.0, 0.5 * NOISES, 0.7)
    if not hasattr(model, "adopt") or name.startswith("own noise"):  # which is the rewards'
        return
    for one in (model, other):
        learn(name, one, range(25))
    ours, theirs = (one.prior.kernel if isinstance(one, ArmGP) else one.kernel for one in (model, other))
    ours.load_state_dict(theirs.state_dict())
    mean = torch.tensor(0.6, dtype=F64)
    model.adopt(other.noise_variance.clone(), mean.expand(2) if isinstance(model, ArmGP) else mean)
    for steps in (range(0), range(25, 40)):
        for one in (model, other):
            learn(name, one, steps)
        assert_close(said(name, model), said(name, other))


@every_model
def test_what_is_pending_moves_no_mean_and_is_put_back_after_an_error_too(name):
    """What was learned is counted as before, but by a sketch, whose dictionary knows no pending pulls."""
    model = learn(name, model_of(name), range(25))
    before, state = said(name, model), state_of(model)

    def fails():
        with model.provisional():
            for k in range(6):
                model.expect(inputs(name, draws((2,), k)[0], 26.0))
                mean, variance, *counted = said(name, model)
                assert_close(mean, before[0])
                assert name == "WeightedGP" or (variance <= before[1] + 1e-9).all()  # whose variance may grow
                assert name.startswith("SketchedGP") or assert_close(counted, before[2:]) is None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not differing(state, state_of(model))


@every_model
def test_all_arms_at_once_together_and_by_column_are_answered_as_each_alone(name):
    model = learn(name, model_of(name), range(12))
    if not hasattr(model, "joint"):
        return
    now, arm = 50.0, draws(model.batch_shape, 5)[0]
    alone, (mean, covariance) = said(name, model, now)[:2], model.joint(now)
    posterior = model.posterior(inputs(name, torch.arange(N), now).squeeze(-2))
    assert_close(alone, [*model.marginals(now)])
    assert_close(alone, [mean, covariance.diagonal(dim1=-2, dim2=-1)])
    assert_close([mean, covariance], [posterior.mean[..., 0], posterior.distribution.covariance_matrix])
    listed = model.posterior(model.candidates(now))
    for value, moment in zip(alone, (listed.mean, listed.variance), strict=True):
        assert_close(value, moment.squeeze(-1).squeeze(-1).movedim(0, -1))
    listed = model.candidates(now)
    listed.copy_(listed.flip(0).clone())  # a tensor of the caller's, who may change it
    assert_close([mean.flip(-1)], [model.posterior(listed).mean.squeeze(-1).squeeze(-1).movedim(0, -1)])
    assert torch.equal(model.candidates(now).flip(0), listed)
    if hasattr(model, "covariance_with"):
        column = covariance.gather(-1, arm[..., None, None].expand(*covariance.shape[:-1], 1))
        assert_close(model.covariance_with(arm, now), column.squeeze(-1))


@every_model
def test_a_root_is_one_of_the_covariance_and_follows_it_once_it_is_kept(name):
    model, now = model_of(name, (3,)), 50.0
    if not hasattr(model, "joint_root"):
        return
    for steps in (range(4), range(4, 40), None, range(40, 41)):
        model.reset() if steps is None else learn(name, model, steps)
        (mean, covariance), (centre, root) = model.joint(now), model.joint_root(now)
        assert_close([centre], [mean])
        torch.testing.assert_close(root @ root.mT, covariance, rtol=0, atol=1e-11)


@every_model
def test_a_window_slides_by_one_and_who_forgets_everything_is_as_new(name):
    """Rewards of 1e8 deviations leave nothing behind."""
    model = model_of(name)
    if not model.can_forget:
        return
    for step in range(12):
        arm, reward, _ = draws((2,), step)
        model.observe(inputs(name, arm, float(step)), 1e8 * reward[..., None, None])
        model.slide(5)
        assert model.num_observations.expand(2).tolist() == [min(step + 1, 5)] * 2
    model.forget(5, torch.tensor([True, False]))
    assert model.num_observations.tolist() == [0, 5]
    assert_equal(*([value[0] for value in said(name, one)] for one in (model, model_of(name))))


@every_model
def test_all_members_are_those_that_a_mask_names(name):
    """A model knows without a mask that its members hold as many observations as each other, and skips what masks
    need."""
    everyone, (plain, named) = torch.tensor([True, True]), (model_of(name) for _ in range(2))
    for step in range(40):
        arm, reward, _ = draws((2,), step)
        for model, where in ((plain, None), (named, everyone)):
            model.observe(inputs(name, arm, float(step)), reward[..., None, None], where)
            if model.can_forget and not name.startswith("own noise"):
                model.slide(7)
                if step % 9 == 8:
                    model.forget(2, where)
            if step in (3, 31):
                model.reset(where)
        if isinstance(plain, ArmGP):
            assert [plain.belief.observations.length] * 2 == plain.num_observations.tolist()
    assert_close(said(name, plain), said(name, named))


@every_model
def test_what_a_model_holds_is_found_as_an_attribute_wherever_it_has_been(name):
    """Buffers and submodules stand among the attributes, too: both must be the same objects."""

    def check(model):
        for module in model.modules():
            if isinstance(module, QuickModule):
                held = dict(module.named_buffers(recurse=False)) | dict(module.named_children())
                assert all(vars(module)[key] is value for key, value in held.items())

    model = learn(name, model_of(name, (3,)), range(9))
    with model.provisional():
        model.expect(inputs(name, torch.zeros(3, 2), 9.0))
        check(model)
    moved = copy.deepcopy(model).float()
    for one in (
        model,
        moved,
        model.expand(torch.Size([2, 3, 2])),
        *(how(name, model) for how in COPIES.values()),
    ):
        check(one)
        check(learn(name, one, range(9, 80)))  # more than there was room for


@every_model
def test_what_a_model_has_said_stays_as_it_was_said(name):
    """Gains of before and after are compared, and moments kept: none is the state that changes in place."""
    model = learn(name, model_of(name), range(3))
    values = said(name, model)
    then = copy.deepcopy(values)
    learn(name, model, range(3, 30))
    assert equal(values, then)


@every_model
def test_asking_changes_nothing(name):
    model, untouched = (learn(name, model_of(name), range(9)) for _ in range(2))
    for time in (200.0, 60.0):
        said(name, model, time)
        if hasattr(model, "marginals"):
            model.marginals(time), model.joint(time)
    assert equal(said(name, model), said(name, untouched))
    learn(name, model, range(9, 14)), learn(name, untouched, range(9, 14))
    assert equal(said(name, model), said(name, untouched))


@pytest.mark.parametrize("read", [True, False])
@every_model
def test_a_model_moved_to_float32_as_botorch_s_acquisitions_move_theirs_goes_on(name, read):
    # The variance of a Wiener process would outgrow the noise.
    start = 0.0 if name.endswith("wanders") else 1.7e9
    moved, stays = model_of(name), model_of(name)
    for model in (moved, stays):
        learn(name, model, range(17), start)
        if read:
            said(name, model, start + 20.0)
    X = inputs(name, torch.zeros(1, 2), start + 256.0).float()  # float32 keeps this time
    with torch.no_grad():
        UpperConfidenceBound(moved, beta=2.0)(X)
    for model in (moved, stays):
        learn(name, model, range(17, 40), start)
    ours, theirs = said(name, moved, start + 60.0), said(name, stays, start + 60.0)
    assert ours[0].dtype == torch.float32
    if hasattr(moved, "candidates") and not drift_of(name):  # times have float64
        assert moved.candidates().dtype == torch.float32
    for one, other in zip(ours[:2], theirs, strict=False):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-4)
    if isinstance(moved, ArmGP) and drift_of(name) and not name.endswith("wanders"):
        moved.reset()
        moved.observe(inputs(name, torch.zeros(2), start + 41.0), torch.zeros(2, 1, 1))
        assert moved.train_inputs[0][..., 1].tolist() == [[start + 41.0]] * 2  # to the second
