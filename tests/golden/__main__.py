"""``python -m tests.golden``: play every run that is kept and compare; ``--write``: keep what they give now.

``python -m tests.golden WORD ...`` plays those whose name holds one of the words.
"""

import json
import sys

import torch

from tests.golden.runs import KEPT, cases, kept, play, told


def main(words: list[str], write: bool) -> int:
    """How many runs differ from what is kept."""
    torch.set_num_threads(1)
    found = kept()
    wanted = [case for case in cases() if not words or any(word in case.name for word in words)]
    differ = 0
    for case in wanted:
        now, before = told(play(case)), found.get(case.name)
        if write:
            found[case.name] = now
        elif now != before:
            differ += 1
            same = before is not None and now["choices"] == before["choices"]
            print(f"{case.name}: {'numbers' if same else 'CHOICES'} differ", flush=True)
    if write:
        lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
        KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(wanted)} runs, {differ} differ")
    return differ


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(bool(main([word for word in arguments if word != "--write"], "--write" in arguments)))
