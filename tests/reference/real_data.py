"""Where the real data are: BANDITS_TORCH_DATA, or ``shared/data`` beside the checkout or in a parent of it."""

import os
from pathlib import Path

import pytest


def _folder() -> Path | None:
    here = Path(__file__).resolve()
    folders = [Path(os.environ["BANDITS_TORCH_DATA"])] if "BANDITS_TORCH_DATA" in os.environ else []
    folders += [parent / "shared" / "data" for parent in here.parents]
    return next((folder for folder in folders if (folder / "intel_temperature.npz").is_file()), None)


REAL = _folder()
needs_data = pytest.mark.skipif(REAL is None, reason="no real data: set BANDITS_TORCH_DATA to their folder")
