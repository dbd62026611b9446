"""A policy for the adapters whose observations can be looked at."""

from bandits_torch import recipes


class Recorded:
    """A function that builds ``recipes.random`` and keeps how often, what was learned, what was pending and when."""

    def __init__(self):
        self.built, self.learned, self.pending, self.times = 0, [], [], []

    def __call__(self, domain, *, search, seed):
        policy = recipes.random(domain, seed=seed)
        self.learned, self.pending, self.times = [], [], []
        choose = policy.choose_many

        def seen(time, count, available=None, pending=()):
            self.pending.append(pending)
            self.times.append(time)
            return choose(time, count, available, pending)

        policy.learn, policy.choose_many = self.learned.append, seen
        self.built, self.domain, self.search = self.built + 1, domain, search
        return policy
