"""Estimates of a weighted divergence Σ_i D_i ∂f_i/∂x_i per sample, by Hutchinson's vᵀDJv, E[v vᵀ] = I where D is not 0.

Two ways to get Jv: exactly, by a derivative that is itself differentiated in training (double backward, as the paper), or
by a finite difference, (f(x + h v) - f(x)) / h, at the price of one more forward pass.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gsure.random import Generators, uniform

Method = Literal["double-backward", "finite-difference"]


@dataclass(frozen=True)
class Divergence:
    """How to estimate a divergence: by which method, and on how much of the batch.

    `fraction` < 1 takes each sample with that probability and divides by it, still unbiased; an eighth costs little.
    `step` is h of the finite difference in units of the diffusion noise √(1-ᾱ_t). The first-order term of its bias vanishes,
    because v and -v are equally likely; docs/method.md has the measurement behind the default (`bench/finite_difference.py`).
    """

    method: Method = "double-backward"
    fraction: float = 1.0
    step: float = 1e-3

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"A divergence is estimated by {' or '.join(get_args(Method))}, not by {self.method!r}.")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must lie in (0, 1], but is {self.fraction}.")
        if not self.step > 0:
            raise ValueError(f"step must be above 0, but is {self.step}.")

    def __call__(
        self,
        f: Callable[[Float[Tensor, "s *n"], Int[Tensor, " s"]], Float[Tensor, "s *n"]],
        x: Float[Tensor, "b *n"],
        diagonal: Float[Tensor, "b *n"],
        probe: Float[Tensor, "b *n"],
        scale: Float[Tensor, "b *ones"],
        generator: Generators,
    ) -> tuple[Float[Tensor, "b *n"], Float[Tensor, " b"]]:
        """f(x), and the divergence of each sample.

        `f` is called with some samples and their indices, and must use the same dropout each time; `scale` is √(1-ᾱ_t).
        Samples whose diagonal is zero, and those that `fraction` leaves out, are not differentiated. Which these are is read
        on the host.
        """
        everything = torch.arange(len(x), device=x.device)
        taken = diagonal.flatten(1).any(1)
        if self.fraction < 1:
            taken = taken & (uniform((len(x),), generator, like=x) < self.fraction)
        subset = everything[taken]
        if not len(subset):
            return f(x, everything), x.new_zeros(len(x))
        is_all = len(subset) == len(x)
        by_difference = self.method == "finite-difference"
        training = torch.is_grad_enabled()

        x_s, v = x[subset].detach().requires_grad_(not by_difference), probe[subset]
        with contextlib.nullcontext() if by_difference else _twice_differentiable():
            f_s = f(x_s, subset)
        if by_difference:
            h = (self.step * scale[subset]).to(x)
            jv = (f(x_s + h * v, subset) - f_s) / h
            products = diagonal[subset] * v * jv
        else:
            (vjp,) = torch.autograd.grad(f_s, x_s, diagonal[subset] * v, create_graph=training)
            products = vjp * v
            f_s = f_s if training else f_s.detach()

        divergence = x.new_zeros(len(x)).index_put((subset,), products.flatten(1).sum(1) / self.fraction)
        return (f_s if is_all else f(x, everything)), divergence


@contextlib.contextmanager
def _twice_differentiable() -> Iterator[None]:
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
    ):  # the only attention kernel that can be differentiated twice
        yield
