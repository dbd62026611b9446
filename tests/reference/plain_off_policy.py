"""Off-policy values written from the papers, row by row, in plain Python."""

import numpy as np


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
    """Dudik et al. (2014), equation 3.1, with a model of rewards, and pi, for every row."""
    total = 0.0
    for a, r, p, q, shares in zip(arms, rewards, propensity, predicted, pi, strict=True):
        total += sum(share * one for share, one in zip(shares, q, strict=True)) + shares[a] / p * (r - q[a])
    return total / len(arms)


def predictions(arms, rewards, num_arms, features=None, memories=(20.0, 100.0, 1e9)):
    """Before each row: regressions of each arm's rewards on features, by discounted least squares of which each
    coefficient has one row that says that it is 0; the features and the memory that predicted best so far.

    ``features``: lists of rows; None: 1 alone, which is the mean of an arm, drawn to that of all arms by one pull.
    """
    features = features or [[[1.0]] * len(arms)]
    pairs = [(x, memory) for x in features for memory in memories]
    found, errors = [], [0.0] * len(pairs)
    for now, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
        each = []
        for x, memory in pairs:
            weights = [(1 - 1 / memory) ** (now - then - 1) for then in range(now)]
            level = sum(w * r for w, r in zip(weights, rewards, strict=False)) / max(sum(weights), 1e-12)
            means = []
            for b in range(num_arms):
                own = [k for k in range(now) if arms[k] == b]
                root = np.sqrt([weights[k] for k in own])
                design = np.vstack(
                    [
                        root[:, None] * np.array([x[k] for k in own]).reshape(len(own), len(x[0])),
                        np.eye(len(x[0])),
                    ]
                )
                above = [*(root * np.array([rewards[k] - level for k in own])), *[0.0] * len(x[0])]
                means.append(level + float(np.linalg.lstsq(design, np.array(above), rcond=None)[0] @ x[now]))
            each.append(means)
        found.append(each[errors.index(min(errors))])
        errors = [e + (mean[arm] - reward) ** 2 for e, mean in zip(errors, each, strict=True)]
    return found


def features_of_numbers(contexts):
    """1; 1 and the numbers of a context from their mean in deviations; and these with their squares and products."""
    contexts = np.array(contexts, dtype=float)
    z = (contexts - contexts.mean(0)) / contexts.std(0)
    c = z.shape[1]
    products = [[row[i] * row[j] for i in range(c) for j in range(i, c)] for row in z]
    linear = [[1.0, *row] for row in z]
    return [[[1.0]] * len(z), linear, [[*one, *more] for one, more in zip(linear, products, strict=True)]]


def features_of_names(numbers, of):
    """1; and 1 beside one column for each context."""
    return [[[1.0]] * len(numbers), [[1.0, *[float(k == number) for k in range(of)]] for number in numbers]]
