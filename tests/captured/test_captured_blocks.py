"""A block of captured steps is one function of tensors, launches few kernels and never asks a value of the device."""

from functools import partial

import pytest
import torch

from bandits_torch import make, recipes, run
from bandits_torch.captured import captured_steps
from bandits_torch.captured.blocks import ProblemInputs, block
from bandits_torch.streams import ReplicateStreams
from benchmarks.gpu.stepping import CountLaunches
from tests.captured.test_captured_runs import CASES, FACTOR, REFUSED, averaging, built

BEFORE = 45  # plain steps, so that windows are full


class Blocks:
    """Blocks of k steps of a policy that has played for a while."""

    def __init__(self, policy, problem, k, compiled=False, before=BEFORE):
        run(policy, problem, before, seed=7)
        self.policy, self.problem, self.k, self.done = policy, problem, k, before
        self.steps = captured_steps(policy)
        self.steps.begin(1000, k)
        self.inputs = ProblemInputs(problem, ReplicateStreams(8, policy.replicates))
        self.call = partial(block, self.steps, k)
        if compiled:
            torch._dynamo.reset()
            self.call = torch.compile(self.call, fullgraph=True, backend="aot_eager")

    def given(self):
        self.times = [self.problem.time(self.done + j + 1) for j in range(self.k)]
        assert self.steps.most(self.times) == self.k
        with torch.no_grad():
            given = self.inputs.given(self.done + 1, self.k)
            return given | self.steps.given(self.times, given)

    def launch(self, given):
        with torch.no_grad():
            return self.call(given)

    def play(self):
        rows = self.launch(self.given())
        kept = dict(rows)
        self.steps.after(self.times, kept)
        self.done += self.k
        return rows

    def counted(self):
        """What a block asks of the device, which is no value."""
        given = self.given()
        with CountLaunches() as asked:
            rows = self.launch(given)
        assert asked.host_reads == 0
        self.steps.after(self.times, rows)
        self.done += self.k
        return asked


def same_rows(plain, compiled):
    ours, theirs = compiled.play(), plain.play()
    assert ours.keys() == theirs.keys()
    for row in theirs:
        torch.testing.assert_close(ours[row], theirs[row], rtol=1e-12, atol=1e-12, msg=row)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["sw_gp_ucb", "sw_gp_ucb, factor"])  # one of each form: compiling is slow
def test_a_block_compiles_whole_and_gives_the_same(name):
    plain, compiled = Blocks(*built(name), k=2), Blocks(*built(name), k=2, compiled=True)
    for _ in range(2):
        same_rows(plain, compiled)
    torch.testing.assert_close(
        compiled.policy.model.marginals(), plain.policy.model.marginals(), rtol=1e-12, atol=1e-12
    )


@pytest.mark.slow
def test_a_block_of_auto_compiles_whole_and_gives_the_same():
    same_rows(Blocks(*averaging("tv-gp"), k=1), Blocks(*averaging("tv-gp"), k=1, compiled=True))


@pytest.mark.parametrize("name", ["switching", "a shared level"])
def test_a_block_of_auto_reads_nothing_and_allocates_no_more_with_time(name):
    blocks, allocated = Blocks(*averaging(name), k=1), set()
    for _ in range(20):
        asked = blocks.counted()
        allocated.add((blocks.steps.key(), asked.allocated))
    assert len(allocated) == len({key for key, _ in allocated})


@pytest.mark.parametrize(("recipe", "most"), [("igp_ucb", 30), ("sw_gp_ucb", 45)])
def test_so_few_kernels_a_step(recipe, most):
    options = {"window": 40} if recipe == "sw_gp_ucb" else {}
    problem = make("gp", replicates=25, seed=3)
    policy = recipes.build(recipe, problem, replicates=25, horizon=1000, **options)
    kernels = Blocks(policy, problem, k=32).counted().kernels
    assert most / 2 < kernels / 32 <= most  # it did count


@pytest.mark.parametrize(("told", "parts", "most"), [(True, 1, 113), (False, 2, 180)])
def test_so_few_kernels_a_step_of_auto(told, parts, most):
    """In a block without a check and without a reward that can be an outlier."""
    problem = make("gp", replicates=3, num_arms=20, seed=3)
    kernel = {"kernel": problem.knowledge.kernel} if told else {}
    policy = recipes.auto(problem.arms, replicates=3, **kernel)
    blocks = Blocks(policy, problem, k=16, before=96)
    assert len(blocks.steps.parts) == parts
    kernels = blocks.counted().kernels
    assert blocks.steps.takes_all
    assert most - 1 < kernels / 16 <= most


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in CASES if name != REFUSED])
def test_no_host_read_and_no_allocation_that_grows(name):
    blocks = Blocks(*built(name), k=1)
    allocated = {blocks.counted().allocated for _ in range(30)}
    if name not in FACTOR:  # grows from one segment to the next
        assert len(allocated) == 1


def test_the_counter_sees_kernels_reads_and_memory():
    x = torch.ones(4, dtype=torch.float64)
    with CountLaunches() as asked:
        x.view(2, 2).mT.add_(1.0)
    assert (asked.kernels, asked.host_reads, asked.allocated) == (1, 0, 0)
    with CountLaunches() as asked:
        bool((x > 0).any())
    assert (asked.kernels, asked.host_reads) == (3, 1)
    with CountLaunches() as asked:
        x * 2
    assert asked.allocated == 32
    with CountLaunches() as asked:
        x.logsumexp(-1)
        x.masked_fill(x > 0, 0.0)
    assert asked.kernels == 9 + 1 + 2
