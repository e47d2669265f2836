"""All figures and grids of the package, as functions of tensors, numbers and labels."""

from gsure.plotting.images import (
    Picture,
    as_picture,
    draw_comparison,
    draw_measurements,
    draw_panel,
    draw_rows,
    root_sum_of_squares,
    tint_missing,
)

__all__ = [
    "Picture",
    "as_picture",
    "draw_comparison",
    "draw_measurements",
    "draw_panel",
    "draw_rows",
    "root_sum_of_squares",
    "tint_missing",
]
