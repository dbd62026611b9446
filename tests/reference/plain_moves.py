"""When a move is worth its price, one replicate at a time, from the rule's words."""

import itertools
import math


def stays_or_goes(now, wanted, value, price, steps, moves):
    """``now``, unless ``wanted`` gains the price within a stay: ``value`` (a function) of a choice, the mean number of
    ``steps`` from one of the ``moves`` to the next, at least one."""
    stay = max(steps / (1 + moves), 1.0)
    gain = abs(value(wanted) - value(now))
    return wanted if stay * gain >= price else now


def furthest(points, sides):
    """The longest move of any coordinate in a list of points, as a share of its side."""
    steps = itertools.pairwise(points)
    moved = [abs(a - b) / s for one, two in steps for a, b, s in zip(one, two, sides, strict=True)]
    return max(moved, default=-math.inf)
