"""MASTER's bookkeeping as in the text: the whole history of a block is kept and every test looks at it again."""


class PlainMaster:
    """Told which copies start when (order, start step in the block); keeps every f~ and reward."""

    def __init__(self, rho, thresholds):
        self.rho, self.thresholds = rho, thresholds

    def block(self, order, copies, optimism, rewards):
        """First step (1, 2, ...) of the block at which a test fires, None if none does."""
        unit = self.thresholds.inflation
        for t in range(1, len(rewards) + 1):
            excess = sum(f - y for f, y in zip(optimism[:t], rewards[:t], strict=True)) / t
            if excess >= self.thresholds.fall * unit * self.rho(t):
                return t
            lowest = min(optimism[:t])
            for m, start in copies:
                if start + 2**m == t:
                    mean = sum(rewards[start:t]) / 2**m
                    if mean >= lowest + self.thresholds.rise * unit * self.rho(2**m):
                        return t
        return None

    @staticmethod
    def player(copies, t):
        """Order of the copy that plays at step t = 0, 1, ... of the block."""
        return min(m for m, start in copies if start <= t < start + 2**m)
