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
    """diffusers' UNet2DModel as network(x_t, t[, mask]) with our t in 1..T; inside it counts from 0, as diffusers does.

    Images may have any height and width. They are padded to what patches and levels need, by repeating the pixels of their
    border, and the result is cropped: nobody outside sees another size.
    """

    def __init__(
        self,
        inner: nn.Module,
        mask_input: MaskInput,
        mask_embedding: nn.Module | None,
        patch: int = 1,
        multiple: int = 1,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.patch = patch
        self.multiple = multiple
        self.mask_input = mask_input
        self.mask_embedding = mask_embedding
        self.mask_planes: int = dict(inner.config)["out_channels"] // patch**2 if mask_input == "channels" else 0  # type: ignore[arg-type]

    def forward(
        self, x_t: Float[Tensor, "b c h w"], t: Int[Tensor, " b"], mask: Float[Tensor, "b _ _ _"] | None = None
    ) -> Float[Tensor, "b _ h w"]:
        if (mask is None) != (self.mask_input == "none"):
            raise ValueError(
                f"This U-Net has mask_input={self.mask_input!r} but was {'not ' if mask is None else ''}given a mask: "
                "set Denoiser(..., mask_conditioned=True) and unet(..., mask_input=...) together."
            )
        labels = None if self.mask_embedding is None else self.mask_embedding(mask)
        height, width = x_t.shape[-2:]
        if mask is not None and self.mask_embedding is None:
            planes = self.mask_planes
            x_t = torch.cat([x_t, mask.expand(-1, planes, height, width)], 1)
        below, right = -height % self.multiple, -width % self.multiple
        if below or right:
            x_t = nn.functional.pad(x_t, (0, right, 0, below), mode="replicate")
        patches = nn.functional.pixel_unshuffle(x_t, self.patch) if self.patch > 1 else x_t
        found = self.inner(patches, t - 1, class_labels=labels).sample
        found = nn.functional.pixel_shuffle(found, self.patch) if self.patch > 1 else found
        return found[..., :height, :width] if below or right else found


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
    size: int | tuple[int, int],
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
    inputs: int = 1,
    zero_output: bool = False,
    seed: int = 0,
) -> UNet:
    """The DDPM U-Net for images of any `size`, a side or (height, width); the defaults are the paper's for CelebA, 78.70 M
    parameters.

    `attention` lists resolutions; the level of the nearest resolution has it. `mask_input="channels"` gives the mask as
    further input channels, where masks live in signal space (the Identity basis); `"embedding"` takes a spectral mask of shape
    `mask_shape`. `inputs` images of `channels` channels each go in, and one comes out; with `zero_output` it is zero before
    training. `groups` of normalisation are at most so many; use few in narrow networks, where a group of one channel loses its
    level and the network may make spots to keep it. With `patch=2` it takes 2 x 2 pixels as channels, at half the resolution:
    wider in the same time; `attention` then lists resolutions in patches. `layers` are the residual blocks of each resolution.
    `seed` fixes the initial weights. fastMRI's network in the paper, 113.67 M, is
    `unet(320, 2, multipliers=(1, 1, 2, 2, 4, 4), attention=(20,))`.
    """
    from diffusers import UNet2DModel  # two seconds of import, paid only by those who build one

    sides = (size, size) if isinstance(size, int) else tuple(size)
    _refuse_unet(sides, patch, mask_input, mask_shape)
    multiple = patch * 2 ** (len(multipliers) - 1)
    padded = [-(-side // multiple) * multiple // patch for side in sides]
    attended = _attended([min(padded) >> level for level in range(len(multipliers))], attention)
    first = width * multipliers[0]
    with forked(keyed_seed(seed, Stream.WEIGHTS)):
        inner = UNet2DModel(
            sample_size=tuple(padded),
            in_channels=channels * patch**2 * (inputs + (mask_input == "channels")),
            out_channels=channels * patch**2,
            block_out_channels=[width * multiplier for multiplier in multipliers],
            down_block_types=["AttnDownBlock2D" if has else "DownBlock2D" for has in attended],
            up_block_types=["AttnUpBlock2D" if has else "UpBlock2D" for has in reversed(attended)],
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
        embedding = None if mask_shape is None else MaskEmbedding(mask_shape, 4 * first)
    if zero_output:
        for parameter in inner.conv_out.parameters():
            nn.init.zeros_(parameter)
    return UNet(inner, mask_input, embedding, patch, multiple)


def _attended(resolutions: Sequence[int], attention: Sequence[int]) -> list[bool]:
    """Which levels have attention: those of the resolutions nearest to the ones that were asked for.

    >>> _attended([32, 16, 8], [16]), _attended([24, 12, 6], [16])
    ([False, True, False], [False, True, False])
    """
    nearest = {min(resolutions, key=lambda r: abs(math.log(r / asked))) for asked in attention}
    return [resolution in nearest for resolution in resolutions]


def _refuse_unet(sides: Sequence[int], patch: int, mask_input: MaskInput, mask_shape: Sequence[int] | None) -> None:
    if patch < 1 or len(sides) != 2 or min(sides) < 1:
        raise ValueError(
            f"A U-Net takes images of (height, width) in patches of at least 1 pixel, not {sides}, {patch}."
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
