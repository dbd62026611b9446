"""Which rewards are believed, for one replicate as on a blackboard."""


class PlainRange:
    """The rules of ``RewardRange``, word for word.

    Args:
        told: u.
    """

    def __init__(self, told=0.0):
        self.told, self.waiting, self.doubted = told, {1: None, -1: None}, 0
        self.latest, self.borne_out = [], False  # sides on which the latest are in doubt

    def judge_first(self, rewards):
        """Of five, whether each is believed."""
        order = sorted(range(5), key=lambda i: rewards[i])
        kept = [rewards[i] for i in order[1:4]]
        ends = [(order[0], -1, kept[0] - rewards[order[0]]), (order[4], 1, rewards[order[4]] - kept[2])]
        answers = [True] * 5
        for i, side, gap in sorted(ends, key=lambda end: end[2]):
            if self.outside(gap, kept, 10):
                answers[i], self.waiting[side] = False, rewards[i]
                self.latest.append(side)
                self.doubted += 1
            else:
                kept.append(rewards[i])
        self.latest = [1] if 1 in self.latest else self.latest
        self.low, self.high, self.n = min(kept), max(kept), len(kept)
        return answers

    def believes(self, y):
        """Whether a later reward is believed."""
        widths, self.borne_out = max(10 * (5 / self.n) ** 2, 3), False
        before, self.latest = self.latest, []
        for side in (1, -1):
            if self.beyond(y, side, widths) and self.waiting[side] is not None:
                nearer, farther = sorted((y, self.waiting[side]), key=lambda r: side * r)
                self.extend(nearer)
                self.waiting[side] = None if nearer == self.waiting[side] else farther
                self.borne_out = side in before
            if self.beyond(y, side, widths):
                self.waiting[side], self.borne_out, self.latest = y, False, [side]
                self.doubted += 1
                return False
        self.extend(y)
        self.n += 1
        return True

    def beyond(self, y, side, widths):
        gap = y - self.high if side == 1 else self.low - y
        return self.outside(gap, [self.low, self.high], widths)

    def outside(self, gap, kept, widths):
        width = max(max(kept) - min(kept), self.told)
        return width > 0 and gap > widths * width

    def extend(self, y):
        self.low, self.high = min(self.low, y), max(self.high, y)


class Doubting:
    """What a policy does with it, for one that begins by ``begin`` and learns by ``take(arm, y, now, believed)``.

    Args:
        told: u.
    """

    def doubt(self, told=0.0):
        self.range, self.first_five, self.again = PlainRange(told), [], None

    def learn(self, arm, y, now):
        """One reward; of one in doubt only that time goes by."""
        self.again = None  # the arm that is to be played again at once
        if len(self.first_five) == 5:
            believed = self.range.believes(y)
            self.take(arm, y, now, believed)
            self.again = arm if not believed and y > self.range.high else None
            return
        self.first_five.append((arm, y, now))
        answers = (
            self.range.judge_first([y for _, y, _ in self.first_five]) if len(self.first_five) == 5 else []
        )
        if all(answers):
            self.take(arm, y, now, True)
            return
        self.begin()
        for one, believed in zip(self.first_five, answers, strict=True):
            self.take(*one, believed)
            self.again = one[0] if not believed and one[1] > self.range.high else self.again
