"""Steps of a policy and a problem in blocks: one launch, or one compiled loop, for many steps. ``run(..., capture=)``.

There are three ways to play the same steps. They choose the same arms and leave the policy in the same state, up to
rounding; tests compare each with the first.

1. **Plain steps**: ``loop.run`` calls ``Policy.choose`` and ``Policy.learn``, which check arguments, read values on the
   host, and launch some fifty kernels. Every policy has them. They define what the other two compute.
2. **Captured steps**: k steps (choose, pull, learn, record) as one function of tensors. Shapes are static, state is
   updated in place, no value is read on the host, and the random numbers of the plain run are drawn in advance. Width,
   index and the change of the posterior are the functions that plain steps call: ``Width.at``,
   ``UpperConfidenceBound.of``, ``CovarianceForm.condition`` and so on. A block is a CUDA graph on a GPU and a plain
   call on a CPU. Decisions of the host fall between blocks, after the same step as in a plain run: a restart at a fixed
   interval, larger buffers, the change from the factor form to the covariance form, a check of rounding errors.
3. **Compiled blocks**: on a CPU with numba the same k steps as a loop over replicates and then over steps, so the
   state of a replicate stays in the cache. It works on the same state and repeats the arithmetic of (2) in scalar code.
   For an index policy, rows are folded every 32 steps and at the end of a block. A block that the loop cannot play is
   played as (2).

``capture="auto"`` takes the last of these that a policy has.

* ``steps.py``: the interface of captured steps, and the steps of ``ArmPolicy``, of index policies over ``ArmGP``, and
  of ``ModelAveraging``.
* ``blocks.py``: a block's inputs (rewards, noise, masks), a run in blocks, and how a block is launched: as a plain
  call, as a CUDA graph, or compiled; ``compiled_loops.py``: the loops of compiled blocks.
"""

from bandits_torch.captured.blocks import captured_steps, play_captured
from bandits_torch.captured.steps import NotCaptured

__all__ = ["NotCaptured", "captured_steps", "play_captured"]
