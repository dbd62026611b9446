"""Lifts over a control from a list of what was proposed, played, predicted and paid, by their definition."""

import math


def lift(records, arm, control, share, level=0.95, learning=50, few=8):
    """Mean and ends of the interval of one arm.

    ``records``: of each reward, in the order told, the arm proposed (None where nothing was compared), the arm played,
    both predictions (of the proposed arm, of the control) and the reward.
    """
    alpha, counted = 1 - level, [one for one in records[learning:] if one[0] is not None]
    psi, n_control = [], 0
    for proposed, played, (m_arm, m_control), reward in counted:
        if proposed == arm:
            of_arm = (reward - m_arm) / (1 - share) if played == arm else 0.0
            of_control = (reward - m_control) / share if played == control else 0.0
            psi.append(m_arm - m_control + of_arm - of_control)
            n_control += played == control
    n = len(psi)
    if min(n_control, n - n_control) < few:
        return math.nan, -math.inf, math.inf
    mean = sum(psi) / n
    errors = {arm: [], control: []}
    for _, played, (m_arm, m_control), reward in counted:
        errors.setdefault(played, []).append((reward - (m_control if played == control else m_arm)) ** 2)
    alike = sum(map(sum, errors.values())) / sum(map(len, errors.values()))
    v = {one: (sum(each) + 100 * alike) / (len(each) + 100) for one, each in errors.items()}
    sigma2 = max(sum((one - mean) ** 2 for one in psi) / n, v[arm] / (1 - share) + v[control] / share)
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / 500
    half = math.sqrt(sigma2 * 2 * (n * rho2 + 1) / (n**2 * rho2) * math.log(math.sqrt(n * rho2 + 1) / alpha))
    return mean, mean - half, mean + half
