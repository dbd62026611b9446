"""When a move is worth its price, one replicate at a time, from the rule's words."""

import itertools
import math


def stays_or_goes(now, wanted, value, price, steps, moves):
    """``now``, unless ``wanted`` gains the price within a stay: ``value`` (a function) of a choice, the mean number of
    ``steps`` from one of the ``moves`` to the next, at least one."""
    stay = max(steps / (1 + moves), 1.0)
    gain = abs(value(wanted) - value(now))
    return wanted if stay * gain > price else now


def part_of_the_way(now, wanted, value, prices, sides, steps, moves, parts=8):
    """The point of the way (lists of coordinates) that gains most within a stay, less the price of going there."""
    stay, best, most = max(steps / (1 + moves), 1.0), now, 0.0
    for k in range(1, parts + 1):
        point = wanted if k == parts else [a + k / parts * (b - a) for a, b in zip(now, wanted, strict=True)]
        gain = value(point) - value(now)
        if k == parts:
            gain = abs(gain)
        paid = sum(p * abs(a - b) / s for p, a, b, s in zip(prices, now, point, sides, strict=True))
        if stay * gain - paid > most:
            best, most = point, stay * gain - paid
    return best


def furthest(points, sides):
    """The longest move of any coordinate in a list of points, as a share of its side."""
    steps = itertools.pairwise(points)
    moved = [abs(a - b) / s for one, two in steps for a, b, s in zip(one, two, sides, strict=True)]
    return max(moved, default=-math.inf)
