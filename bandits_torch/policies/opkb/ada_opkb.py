"""ADA-OPKB: OPKB that replays old strategies to see changes, and restarts."""

from __future__ import annotations

from bandits_torch.policies.opkb.blocks import BlockPolicy, Interval
from bandits_torch.theory.optimal_design import estimated_gaps


class AdaOPKB(BlockPolicy):
    """ADA-OPKB (Hong, Li & Tewari 2023, Algorithms 3 and 4); with neural features, ADA-OPNN (Algorithm 7).

    * Schedule: inside block j and for each m < j, at every multiple of 2^m E a replay of P^(m) of length
      2^m E starts with probability 2^{(m - j)/2}. The scheduled strategy of smallest index is played.
    * Test: when a scheduled interval I of index m (the block itself has index j) ends, restart if for some
      k < j and x, with C(k) the blocks 0, ..., k,
      gap_I(x) - 4 gap_C(k)(x) > 4 c0 mu_{min(m, k)}, or the same with I and C(k) exchanged (equation 8).

    Corrections of the print: P^(j) is built from Q^(j), not from Q^(m_t), which is not yet defined; E and alpha keep
    the C0 of Algorithm 2. Arguments and cost: ``BlockPolicy``.
    """

    def _replays(self, s: int, start: int, block: int) -> list[Interval]:
        """Algorithm 4."""
        schedule, first = self.schedules[s], self.constants.first_replay
        replays = []
        for m in range(first, block):
            slots = 2 ** (block - m)
            drawn = self._schedule_streams[s].uniform(slots).squeeze(0).tolist()
            length, probability = schedule.length(m), 2 ** ((m - block) / 2)
            for slot, u in enumerate(drawn):
                if u < probability:
                    begin = start + slot * length
                    replays.append(Interval(m, begin, begin + length))
        return replays

    def _over(self, s: int, interval: Interval) -> bool:
        """The change test, equation 8."""
        epoch, schedule = self._epochs[s], self.schedules[s]
        if not epoch.cumulative:
            return False
        assert interval.before is not None
        sums = self._sums[s, : epoch.block + 1] - interval.before[0]
        now = estimated_gaps(self._estimates(s, sums, interval.end - interval.start))
        for k, (past, steps) in enumerate(epoch.cumulative):
            then = estimated_gaps(self._estimates(s, past, steps))
            difference = max(float((now - 4 * then).max()), float((then - 4 * now).max()))
            if difference > schedule.threshold(min(interval.index, k)):
                return True
        return False
