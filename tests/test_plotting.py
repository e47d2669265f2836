"""Pictures of signals."""

import torch

from gsure.plotting.images import as_picture


def test_raw_zero_is_black_where_values_were_only_divided_by_a_scale():
    counts = torch.linspace(0, 1.5, 64).reshape(1, 8, 8)
    assert as_picture(counts, False, black=0.0).min() == 0
    assert as_picture(counts, False).min() > 0.3  # of images from -1 to 1, zero is grey
    assert as_picture(counts - 0.2, False, black=0.0).min() == 0  # noise below zero is shown too


def test_magnitudes_of_complex_images_reach_from_black_to_white():
    picture = as_picture(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0)), True)
    assert (picture.min(), picture.max()) == (0, 1)
