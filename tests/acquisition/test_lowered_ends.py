"""What the ends of ranges are expected to lose."""

import pytest
import torch
from botorch.acquisition import AcquisitionFunction

from bandits_torch.acquisition.point_search import LoweredEnds


class Flat(AcquisitionFunction):
    """Three, everywhere, for each of two replicates."""

    def __init__(self):
        super().__init__(model=None)

    def forward(self, X):
        return 3.0 + 0.0 * X[..., 0, 0].expand(*X.shape[:-3], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_middle_ends_and_a_side_of_no_width(dtype):
    bounds = torch.tensor([[-1.0, 10.0, 5.0], [3.0, 30.0, 5.0]], dtype=dtype)
    points = [[1.0, 20.0, 5.0], [-1.0, 30.0, 5.0], [3.0, 20.0, 5.0], [2.0, 20.0, 5.0]]
    lost = [0.0, 2 / 3, 1 / 3, 1 / 12]
    # Time counts for nothing.
    X = torch.tensor([[*point, 7.0] for point in points], dtype=dtype)[:, None, None]
    found = LoweredEnds(Flat(), bounds, 0.5)(X)
    assert found.shape == (4, 2)
    expected = 3 - 0.5 * torch.tensor(lost, dtype=dtype).unsqueeze(-1).expand(4, 2)
    torch.testing.assert_close(found, expected)


def test_its_gradient_points_to_the_middle():
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    X = torch.tensor([[[[0.9, 0.2, 7.0]]]], dtype=torch.float64, requires_grad=True)
    LoweredEnds(Flat(), bounds, 1.0)(X).sum().backward()
    torch.testing.assert_close(X.grad.reshape(-1), torch.tensor([-3.2, 2.4, 0.0]).double())
