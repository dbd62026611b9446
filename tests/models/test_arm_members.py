"""Many GPs that share arms are the GPs they claim to be: ``ArmGP`` over the same priors is their twin."""

from itertools import product

import pytest
import torch

from bandits_torch.models import ArmMembers, CandidatePrior, arm_gp_over_priors
from bandits_torch.models.arms.members import LowRankMembers, pivoted_root
from tests.reference.arm_gp_twins import smooth

N, S = 15, 3
RATES, NOISES = (0.0, 0.01, 0.4), (0.01, 1.0)
KERNELS = torch.stack([smooth(N), smooth(N, 0.05), torch.eye(N).double()])
GRID = list(product(range(len(KERNELS)), NOISES, RATES))


def both(prior_mean=0.0):
    priors = [CandidatePrior(KERNELS[g], prior_mean, rate, noise) for g, noise, rate in GRID]
    kernel, noise, rate = zip(*GRID, strict=True)
    members = ArmMembers(
        N,
        KERNELS,
        torch.tensor(kernel),
        torch.tensor(noise, dtype=torch.float64),
        torch.tensor(rate, dtype=torch.float64),
        prior_mean=prior_mean,
        replicates=S,
    )
    return arm_gp_over_priors(N, priors, 1.0, replicates=S), members


def steps(count, seed=0, longest=2.0):
    g = torch.Generator().manual_seed(seed)
    time = 0.0
    for _ in range(count):
        time += longest * float(torch.rand(1, generator=g))
        arm = torch.randint(N, (S, 1), generator=g)
        yield time, arm, torch.randn(S, len(GRID), generator=g).double()


def assert_agree(twin, members, time, tolerance=1e-8):  # the twin's static priors forget at rate 1e-15
    for exact, ours in zip(twin.marginals(time), members.marginals(time), strict=True):
        torch.testing.assert_close(ours, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("longest", [2.0, 100.0])
def test_members_are_the_exact_posteriors_at_irregular_times(longest):
    twin, members = both(prior_mean=torch.linspace(-1, 1, N).double())
    for time, arm, reward in steps(150, longest=longest):
        twin.observe_arms(arm, reward, time)
        members.observe_arms(arm, reward, time)
        assert_agree(twin, members, time + 0.7)


def test_members_that_are_left_out_learn_nothing():
    twin, members = both(prior_mean=torch.linspace(-1, 1, N).double())
    for k, (time, arm, reward) in enumerate(steps(40)):
        where = torch.rand(S, len(GRID), generator=torch.Generator().manual_seed(k)) < 0.6
        where = where if k % 2 else where[:, :1]
        twin.observe_arms(arm, reward, time, where)
        members.observe_arms(arm, reward, time, where)
        assert_agree(twin, members, time + 0.7)


def test_a_reset_member_starts_from_its_prior_and_the_others_go_on():
    twin, members = both()
    for k, (time, arm, reward) in enumerate(steps(120, seed=1)):
        twin.observe_arms(arm, reward, time)
        members.observe_arms(arm, reward, time)
        if k in (10, 63, 64, 100):
            where = torch.rand(S, len(GRID), generator=torch.Generator().manual_seed(k)) < 0.3
            twin.reset(where)
            members.reset(where)
        assert_agree(twin, members, time)


def test_a_state_taken_between_two_passes_goes_on_alike():
    _, members = both()
    _, other = both()
    for time, arm, reward in steps(45, seed=2):
        members.observe_arms(arm, reward, time)
    other.load_state_dict(members.state_dict())
    last = time
    for time, arm, reward in steps(45, seed=3):
        members.observe_arms(arm, reward, last + time)
        other.observe_arms(arm, reward, last + time)
    assert all(torch.equal(a, b) for a, b in zip(members.marginals(), other.marginals(), strict=True))


def test_three_thousand_steps_leave_no_error_behind():
    twin, members = both()
    for time, arm, reward in steps(3000, seed=4):
        twin.observe_arms(arm, reward, time)
        members.observe_arms(arm, reward, time)
    assert_agree(twin, members, time)


def test_low_rank_members_are_those_of_their_covariances():
    kernel, noise, rate = zip(*GRID, strict=True)
    rest = (torch.tensor(kernel), torch.tensor(noise).double(), torch.tensor(rate).double())
    roots = torch.stack([pivoted_root(lambda i, K=K: K[:, i], K.diagonal(), N, 0.0) for K in KERNELS])
    torch.testing.assert_close(roots @ roots.mT, KERNELS, rtol=0, atol=1e-8)
    exact = ArmMembers(N, roots @ roots.mT, *rest, replicates=S)
    members = LowRankMembers(N, roots, *rest, replicates=S)
    for k, (time, arm, reward) in enumerate(steps(100, seed=6, longest=5.0)):
        exact.observe_arms(arm, reward, time)
        members.observe_arms(arm, reward, time)
        if k == 50:
            where = torch.rand(S, len(GRID), generator=torch.Generator().manual_seed(1)) < 0.3
            exact.reset(where)
            members.reset(where)
        assert_agree(exact, members, time + 0.5)


def test_a_pivoted_root_leaves_little_out():
    x = torch.linspace(0, 1, 300).double()
    K = torch.exp(-((x.unsqueeze(-1) - x) ** 2) / (2 * 0.1**2))
    root = pivoted_root(lambda i: K[:, i], K.diagonal(), 60, 1e-9)
    assert int((root.abs().amax(0) > 0).sum()) < 40  # it stops by itself
    assert float((root @ root.T - K).diagonal().abs().max()) < 1e-8
