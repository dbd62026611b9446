"""Steps of a policy and a problem as functions of tensors of fixed shape, so that many of them are one launch.

A step of ``loop.run`` is Python that launches some fifty kernels. On a GPU each launch costs microseconds, more than
a small step's work. Here k steps (choose, pull, learn, record) are one function: static shapes, state updated in
place, no look at a value, and random numbers laid out before, those of the plain run. Such a block is a CUDA graph on
a GPU and a plain call on a CPU. Width, index and the change of the posterior are the same functions that a plain step
calls: ``Width.at``, ``UpperConfidenceBound.of``, ``CovarianceForm.condition`` and so on. What only the host can decide
(a restart at a fixed interval, room for more points, a look at rounding errors) falls between blocks. ``run(...,
capture=True)`` uses it.

* ``steps.py``: what the captured steps of a policy are.
* ``arm_steps.py``, ``index_steps.py``, ``averaging_steps.py``: policies whose state is a dictionary of tensors, index
  policies over ``ArmGP``, and ``ModelAveraging``.
* ``launching.py``: how a block is launched: as it is or as a CUDA graph.
* ``compiled_blocks.py``: on a CPU, where numba is there and they can play it: as the loop of ``compiled_loop.py`` or of
  ``averaging_loop.py``.
* ``playing.py``: rewards, noise and masks laid out for a block, and a run in blocks.
"""

from bandits_torch.captured.playing import captured_steps, play_captured
from bandits_torch.captured.steps import NotCaptured

__all__ = ["NotCaptured", "captured_steps", "play_captured"]
