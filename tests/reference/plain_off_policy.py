"""Off-policy values written from the papers, row by row, in plain Python."""


def replay(arms, rewards, choose, learn):
    """Algorithm 2 of Li et al. (2011): the mean reward of the rows where policy and log agree."""
    total, count = 0.0, 0
    for row, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
        if choose(row) == arm:
            learn(row, arm, reward)
            total, count = total + reward, count + 1
    return total / count


def snips(arms, rewards, propensity, pi):
    """Swaminathan & Joachims (2015), equation 8: weighted rewards over the weights."""
    above = sum(pi[a] / p * r for a, r, p in zip(arms, rewards, propensity, strict=True))
    return above / sum(pi[a] / p for a, p in zip(arms, propensity, strict=True))


def doubly_robust(arms, rewards, propensity, pi, predicted):
    """Dudik et al. (2014), equation 3.1, with a model of rewards for every row."""
    total = 0.0
    for a, r, p, q in zip(arms, rewards, propensity, predicted, strict=True):
        total += sum(share * one for share, one in zip(pi, q, strict=True)) + pi[a] / p * (r - q[a])
    return total / len(arms)


def predictions(arms, rewards, num_arms, memories=(20.0, 100.0, 1e9)):
    """Before each row: means discounted by pulls, drawn to that of all arms by one pull; the best memory so far."""
    found, errors = [], [0.0] * len(memories)
    for now, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
        each = []
        for memory in memories:
            kept = 1 - 1 / memory
            weights = [kept ** (now - then - 1) for then in range(now)]
            level = sum(w * r for w, r in zip(weights, rewards, strict=False)) / max(sum(weights), 1e-12)
            own = [
                [(w, r) for w, a, r in zip(weights, arms, rewards, strict=False) if a == b]
                for b in range(num_arms)
            ]
            each.append([(sum(w * r for w, r in o) + level) / (sum(w for w, _ in o) + 1) for o in own])
        found.append(each[errors.index(min(errors))])
        errors = [e + (mean[arm] - reward) ** 2 for e, mean in zip(errors, each, strict=True)]
    return found
