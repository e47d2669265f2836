"""Networks: the U-Net of the paper, from diffusers, and a small MLP for vectors. They take (x_t, t) or (x_t, t, mask)."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gsure.random import Stream, forked, keyed_seed

MaskInput = Literal["none", "channels", "embedding"]


class UNet(nn.Module):
    """diffusers' UNet2DModel as network(x_t, t[, mask]) with our t in 1..T; inside it counts from 0, as diffusers does."""

    def __init__(
        self, inner: nn.Module, mask_input: MaskInput, mask_embedding: nn.Module | None, patch: int = 1
    ) -> None:
        super().__init__()
        self.inner = inner
        self.patch = patch
        self.mask_input = mask_input
        self.mask_embedding = mask_embedding

    def forward(
        self, x_t: Float[Tensor, "b c h w"], t: Int[Tensor, " b"], mask: Float[Tensor, "b _ _ _"] | None = None
    ) -> Float[Tensor, "b c h w"]:
        if (mask is None) != (self.mask_input == "none"):
            raise ValueError(
                f"This U-Net has mask_input={self.mask_input!r} but was {'not ' if mask is None else ''}given a mask: "
                "set Denoiser(..., mask_conditioned=True) and unet(..., mask_input=...) together."
            )
        labels = None if self.mask_embedding is None else self.mask_embedding(mask)
        if mask is not None and self.mask_embedding is None:
            x_t = torch.cat([x_t, mask.expand_as(x_t)], 1)
        if self.patch == 1:
            return self.inner(x_t, t - 1, class_labels=labels).sample
        patches = nn.functional.pixel_unshuffle(x_t, self.patch)
        return nn.functional.pixel_shuffle(self.inner(patches, t - 1, class_labels=labels).sample, self.patch)


class MaskEmbedding(nn.Module):
    """A vector from a compact mask, such as the (1, 1, width) of a line mask; what U-Nets call a class embedding."""

    def __init__(self, mask_shape: Sequence[int], features: int) -> None:
        super().__init__()
        self.mask_shape = tuple(mask_shape)
        self.layers = nn.Sequential(
            nn.Linear(math.prod(mask_shape), features), nn.SiLU(), nn.Linear(features, features)
        )

    def forward(self, mask: Float[Tensor, "b _ _ _"]) -> Float[Tensor, "b features"]:
        return self.layers(mask.expand(-1, *self.mask_shape).flatten(1))


def unet(
    size: int,
    channels: int,
    width: int = 128,
    multipliers: Sequence[int] = (1, 2, 2, 2, 4),
    attention: Sequence[int] = (16,),
    dropout: float = 0.1,
    groups: int = 32,
    patch: int = 1,
    layers: int = 2,
    mask_input: MaskInput = "none",
    mask_shape: Sequence[int] | None = None,
    seed: int = 0,
) -> UNet:
    """The DDPM U-Net for square images; the defaults are the paper's for CelebA, 78.70 M parameters.

    `attention` lists the resolutions that have it. `mask_input="channels"` gives the mask as further input channels,
    where masks live in signal space (the Identity basis); `"embedding"` takes a spectral mask of shape `mask_shape`.
    `groups` of normalisation are at most so many; use few in narrow networks, where a group of one channel loses its level and
    the network may make spots to keep it. With `patch=2` it takes 2 x 2 pixels as channels, at half the resolution: wider in
    the same time; `attention` then lists resolutions in patches. `layers` are the residual blocks of each resolution. `seed`
    fixes the initial weights. fastMRI's network in the paper, 113.67 M, is
    `unet(320, 2, multipliers=(1, 1, 2, 2, 4, 4), attention=(20,))`.
    """
    from diffusers import UNet2DModel  # two seconds of import, paid only by those who build one

    size, channels = _in_patches(size, patch), channels * patch**2
    resolutions = [size >> level for level in range(len(multipliers))]
    _refuse_unet(size, resolutions, attention, mask_input, mask_shape)
    features = 4 * width
    with forked(keyed_seed(seed, Stream.WEIGHTS)):
        inner = UNet2DModel(
            sample_size=size,
            in_channels=channels * (2 if mask_input == "channels" else 1),
            out_channels=channels,
            block_out_channels=[width * multiplier for multiplier in multipliers],
            down_block_types=["AttnDownBlock2D" if r in attention else "DownBlock2D" for r in resolutions],
            up_block_types=["AttnUpBlock2D" if r in attention else "UpBlock2D" for r in reversed(resolutions)],
            layers_per_block=layers,
            dropout=dropout,
            class_embed_type="identity" if mask_input == "embedding" else None,
            norm_num_groups=math.gcd(groups, width),
            # Where diffusers' defaults differ from the DDPM network:
            norm_eps=1e-6,
            downsample_padding=0,
            flip_sin_to_cos=False,
            freq_shift=1,
            attention_head_dim=None,
        )
        return UNet(inner, mask_input, None if mask_shape is None else MaskEmbedding(mask_shape, features), patch)


def _in_patches(size: int, patch: int) -> int:
    if patch < 1 or size % patch:
        raise ValueError(f"Patches of {patch} pixels do not tile images of size {size}.")
    return size // patch


def _refuse_unet(
    size: int,
    resolutions: Sequence[int],
    attention: Sequence[int],
    mask_input: MaskInput,
    mask_shape: Sequence[int] | None,
) -> None:
    halvings = 2 ** (len(resolutions) - 1)
    if never := [resolution for resolution in attention if resolution not in resolutions]:
        raise ValueError(
            f"attention is asked for at {never[0]}, but this network has only the resolutions {resolutions}: choose "
            "attention at one of these, none at all, or a preset for images of this size."
        )
    if size < 1 or size % halvings:
        raise ValueError(
            f"A U-Net of {len(resolutions)} levels needs a size divisible by {halvings}, but was given {size}: "
            "use fewer multipliers, or pad."
        )
    if mask_input not in get_args(MaskInput):
        raise ValueError(f"mask_input is one of {', '.join(get_args(MaskInput))}, not {mask_input!r}.")
    if (mask_input == "embedding") != (mask_shape is not None):
        raise ValueError(
            f"mask_shape goes with mask_input='embedding', but mask_input={mask_input!r} and "
            f"mask_shape={mask_shape} were given."
        )


class MLP(nn.Module):
    """A multilayer perceptron on flattened signals, with sines and cosines of the time as further inputs."""

    def __init__(self, size: int, width: int, depth: int, mask_conditioned: bool) -> None:
        super().__init__()
        self.width = width
        self.mask_conditioned = mask_conditioned
        self.enter = nn.Linear(size * (2 if mask_conditioned else 1), width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width * depth))
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.leave = nn.Linear(width, size)

    def forward(
        self, x_t: Float[Tensor, "b *n"], t: Int[Tensor, " b"], mask: Float[Tensor, "b *m"] | None = None
    ) -> Float[Tensor, "b *n"]:
        if (mask is not None) != self.mask_conditioned:
            raise ValueError(
                f"This MLP has mask_conditioned={self.mask_conditioned} but was {'not ' if mask is None else ''}given a mask: "
                "set Denoiser(..., mask_conditioned=...) and mlp(..., mask_conditioned=...) together."
            )
        seen = x_t.flatten(1) if mask is None else torch.cat([x_t.flatten(1), mask.expand_as(x_t).flatten(1)], 1)
        h = self.enter(seen)
        frequencies = torch.exp(
            torch.arange(self.width // 2, device=t.device) * (-math.log(10_000) / (self.width // 2))
        ).to(x_t)
        angles = t[:, None].to(x_t) * frequencies
        times = self.time(torch.cat([angles.sin(), angles.cos()], 1)).chunk(len(self.hidden), 1)
        for layer, time in zip(self.hidden, times, strict=True):
            h = h + layer(nn.functional.silu(h + time))
        return self.leave(nn.functional.silu(h)).reshape(x_t.shape)


def mlp(size: int, width: int = 128, depth: int = 3, mask_conditioned: bool = False, seed: int = 0) -> MLP:
    """A small residual MLP for signals of `size` entries in all; `seed` fixes the initial weights."""
    if size < 1 or width < 2 or width % 2 or depth < 1:
        raise ValueError(
            f"An MLP needs size >= 1, an even width and depth >= 1, but was given size={size}, width={width}, depth={depth}."
        )
    with forked(keyed_seed(seed, Stream.WEIGHTS)):
        return MLP(size, width, depth, mask_conditioned)
