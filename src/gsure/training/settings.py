"""The settings of a run, presets of them, and config.yaml, which records them. No torch here, so that --help is quick."""

import dataclasses
import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import yaml

from gsure.files import Request, as_request

if TYPE_CHECKING:
    from gsure.data.measurements import Measurements

PRESETS = Path(__file__).parent / "presets"
AT_LEAST_1 = (
    *("batch", "accumulate", "checkpoint_every", "log_every", "keep", "t_bins", "validate_on", "impute_count"),
    *("impute_sampling_steps", "T", "groups", "patch", "layers", "width", "depth"),
)


def _setting(default: Any, about: str, free: bool = False) -> Any:
    """A field with its help. `free` ones say how far or how visibly a run goes: they may change when it is resumed."""
    return field(default=default, metadata={"help": about, "free": free})


@dataclass(frozen=True)
class Settings:
    """Everything that a run does, but for its files. Defaults serve a small image set; presets change them together."""

    train_on: Literal["measurements", "clean", "naive"] = _setting(
        "measurements",
        "data to learn from: measurements; or, to compare, clean (the signals of --clean) or naive (measurements as if they "
        "were clean)",
    )
    objective: Literal["tweedie", "gsure-y", "gsure", "paper", "exact"] = _setting(
        "tweedie", "the loss, see docs/method.md"
    )
    purpose: Literal["restore", "generate", "both"] = _setting(
        "generate",
        "what to train for: restoration in one call, generation, or both, one after the other; --preset auto trains both",
    )
    weighting: Literal["x", "eps", "v", "wiener"] = _setting(
        "x",
        "weight over t: x weights errors in x equally, eps errors in ε, v errors in v, wiener errors relative to those of the "
        "Gaussian prior",
    )
    times: Literal["uniform", "lognormal"] = _setting(
        "uniform", "how timesteps are drawn: uniform, or lognormal noise levels, most of them where images take shape"
    )
    coverage_weighting: bool = _setting(True, "W = E[P]^(-1/2); without it W = I, as in the paper's CelebA experiments")
    hide: float | tuple[float, float] = _setting(
        0.0,
        "hide this share of the measured entries from the network, but keep it in the loss; [low,high] draws a share for each "
        "sample; no effect once signals are imputed",
    )
    impute_at: tuple[int, ...] = _setting(
        (),
        "steps after which the model imputes what was not measured and learns from fully sampled signals; at step 0, "
        "the Gaussian prior imputes",
    )
    impute_count: int = _setting(
        10_000, "number of measurements that are imputed, at most (at 0, all are); the others are then not used"
    )
    impute_sampling_steps: int = _setting(10, "sampling steps of each imputation")
    divergence: Literal["double-backward", "finite-difference"] = _setting(
        "double-backward", "how gsure-y, gsure, paper and exact estimate it"
    )
    divergence_fraction: float = _setting(1.0, "estimate the divergence on this share of each batch")

    base: Literal["none", "gaussian"] = _setting(
        "none",
        "gaussian: the network adds to the posterior mean of the Gaussian prior, and knows the noise of each entry",
    )
    predicts: Literal["x", "eps", "v"] = _setting("x", "what the network predicts, without a base")
    mask_conditioned: bool = _setting(False, "give the network the mask as an input")
    network: Literal["unet", "mlp"] = _setting("unet", "unet for images, mlp for anything")
    width: int = _setting(32, "channels at full resolution; hidden units of an mlp")
    multipliers: tuple[int, ...] = _setting((1, 2, 2), "unet: channels at each resolution, as multiples of width")
    attention: tuple[int, ...] = _setting((), "unet: resolutions that have attention")
    depth: int = _setting(3, "mlp: hidden layers")
    dropout: float = _setting(0.1, "unet: dropout rate")
    groups: int = _setting(32, "unet: groups of each normalisation, at most; use few in a narrow network")
    layers: int = _setting(2, "unet: residual blocks at each resolution on the way down, one more on the way up")
    patch: int = _setting(
        1, "unet: side of the square patches of pixels that become channels; for wider, faster networks"
    )

    schedule: Literal["for_noise", "linear", "cosine"] = _setting(
        "for_noise", "noise schedule; for_noise is linear and starts at the noise level of the data"
    )
    beta_1: float = _setting(1e-4, "for_noise, linear: first step")
    beta_T: float = _setting(0.02, "for_noise, linear: last step; the paper prints 0.2 and uses 0.02")  # noqa: N815
    T: int = _setting(1000, "number of timesteps")

    steps: int = _setting(
        10_000, "training steps; 0, as with --preset auto, takes as many as fit into --minutes", free=True
    )
    minutes: float = _setting(
        0.0, "time budget of the whole run in minutes, if --steps is 0; 15 with --preset auto", free=True
    )
    batch: int = _setting(64, "measurements per step, over all processes")
    accumulate: int = _setting(1, "parts in which a process computes its share of a batch, to save memory")
    lr: float = _setting(2e-4, "learning rate of Adam")
    beta_2: float = _setting(0.999, "decay of the squared gradients in Adam")
    weight_decay: float = _setting(0.0, "weight decay of AdamW; 0 is Adam")
    warmup: int = _setting(0, "steps over which the learning rate rises from zero")
    decay: Literal["none", "linear", "cosine"] = _setting(
        "none", "how the learning rate falls to zero at the last step"
    )
    clip: float = _setting(1.0, "largest norm of the gradient; 0 is no limit")
    ema: float = _setting(0.999, "largest decay of the averaged weights; it rises to this during a run")
    flip: bool = _setting(False, "mirror half of the measurements; only for corruptions that commute with it")
    precision: Literal["float32", "bf16"] = _setting("float32", "bf16 is mixed precision, where the hardware has it")
    channels_last: bool = _setting(True, "memory format of the unet; faster on CPUs and on recent GPUs")
    compile: bool = _setting(False, "torch.compile the network: takes minutes first, then steps are faster")
    seed: int = _setting(0, "seed of weights, order and noise")

    held_out: float = _setting(0.05, "share of the groups kept for validation; 0 validates nothing")
    t_bins: int = _setting(8, "validation: bins of t, each with its own estimate", free=True)
    validate_on: int = _setting(256, "validation: number of held-out measurements, at most", free=True)
    checkpoint_every: int = _setting(500, "steps between checkpoints; each is validated", free=True)
    picture_every: int = _setting(1000, "steps between pictures; 0 draws none", free=True)
    log_every: int = _setting(50, "steps between lines of metrics.jsonl", free=True)
    keep: int = _setting(2, "number of checkpoints to keep, besides the best", free=True)

    def __post_init__(self) -> None:
        for name in ("multipliers", "attention", "impute_at"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.hide, list):
            object.__setattr__(self, "hide", tuple(self.hide))
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))

    def _problems(self) -> Iterator[str]:
        """Everything that is wrong, a sentence each."""
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            if get_origin(setting.type) is Literal and value not in get_args(setting.type):
                yield f"{option(setting.name)} is one of {', '.join(get_args(setting.type))}, not {value!r}."
        for name in AT_LEAST_1:
            if getattr(self, name) < 1:
                yield f"{option(name)} must be at least 1, but is {getattr(self, name)}."
        for name in ("warmup", "clip", "picture_every", "seed", "weight_decay", "minutes", "steps"):
            if not getattr(self, name) >= 0:
                yield f"{option(name)} must be at least 0, but is {getattr(self, name)}."
        if self.steps == 0 and self.minutes == 0:
            yield "--steps and --minutes are both 0: give a time budget of more than 0 minutes, or a number of steps."
        low, high = self.hide if isinstance(self.hide, tuple) else (self.hide, self.hide)
        if not 0 <= low <= high <= 1 or low == 1:
            yield f"--hide is a share in [0, 1), or a range of shares such as [0.3,1.0], but is {self.hide}."
        if self.purpose != "generate" and self.base == "none" and not self.mask_conditioned:
            yield (
                f"--purpose {self.purpose} trains restoration in one call, which needs a network that knows what was "
                "measured: add --base gaussian, or --mask-conditioned."
            )
        if self.base == "gaussian" and self.network == "mlp":
            yield "--base gaussian needs --network unet: an mlp has no input for the noise level of each entry."
        if self.base == "gaussian" and self.objective != "tweedie":
            yield f"--base gaussian is trained with --objective tweedie, not {self.objective}."
        for name in ("ema", "held_out", "dropout", "beta_2"):
            if not 0 <= getattr(self, name) < 1:
                yield f"{option(name)} must lie in [0, 1), but is {getattr(self, name)}."
        if not self.multipliers or min(self.multipliers) < 1:
            yield f"--multipliers are integers of at least 1, one per resolution, but are {self.multipliers}."
        if not 0 < self.lr < float("inf"):
            yield f"--lr must be a positive number, but is {self.lr}."
        for name in ("t_bins", "impute_sampling_steps"):
            if getattr(self, name) > self.T:
                yield (
                    f"{option(name)} divides the range of t, so it cannot exceed T = {self.T}, but is {getattr(self, name)}."
                )
        if list(self.impute_at) != sorted({step for step in self.impute_at if step >= 0}):
            yield f"--impute-at are increasing numbers of steps, of at least 0, but are {self.impute_at}."
        needs_divergence = self.objective in ("gsure-y", "gsure", "paper", "exact")
        if self.compile and needs_divergence and self.divergence == "double-backward":
            yield (
                f"torch.compile has no double backward, which {self.objective} needs: omit --compile, or add "
                "--divergence finite-difference."
            )

    def changed(self) -> dict[str, Any]:
        """What differs from the defaults.

        >>> Settings(lr=0.1).changed()
        {'lr': 0.1}
        """
        default = dataclasses.asdict(Settings())
        return {name: value for name, value in dataclasses.asdict(self).items() if value != default[name]}

    def differences(self, other: "Settings") -> dict[str, tuple[Any, Any]]:
        """Settings that differ and matter, which free ones do not: name -> (this one's value, the other's).

        >>> Settings(lr=0.1, keep=3, impute_count=5).differences(Settings(lr=0.2))
        {'lr': (0.1, 0.2)}
        """
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(other)
        idle = () if self.impute_at or other.impute_at else ("impute_count", "impute_sampling_steps")
        fixed = [f.name for f in dataclasses.fields(self) if not f.metadata["free"] and f.name not in idle]
        return {name: (mine[name], theirs[name]) for name in fixed if mine[name] != theirs[name]}


def refuse_values(given: Mapping[str, Any]) -> None:
    """Raise an error that lists the values that no other settings could make right."""
    problems = []
    for name, value in given.items():
        try:
            Settings(**{name: value})
        except ValueError as error:
            try:
                Settings(**({"base": "gaussian"} | {name: value}))
            except ValueError:
                problems += str(error).splitlines()
    if problems:
        raise ValueError("\n".join(dict.fromkeys(problems)))


COMMON = ("minutes", "purpose", "train_on", "steps", "seed")
"""Settings that most users change; the help of `gsure train` shows them first."""
GROUPS = {
    "objective": ("objective", "weighting", "times", "coverage_weighting", "divergence", "divergence_fraction"),
    "incomplete data": ("hide", "impute_at", "impute_count", "impute_sampling_steps", "flip"),
    "model": (
        *("network", "width", "multipliers", "attention", "layers", "patch", "groups", "dropout", "depth"),
        *("base", "predicts", "mask_conditioned", "schedule", "beta_1", "beta_T", "T"),
    ),
    "optimisation": (
        *("batch", "lr", "beta_2", "weight_decay", "warmup", "decay", "clip", "ema"),
        *("accumulate", "precision", "channels_last", "compile"),
    ),
    "validation": ("held_out", "validate_on", "t_bins"),
    "output": ("checkpoint_every", "keep", "picture_every", "log_every"),
}
"""The others, as the help of `gsure train` groups them."""


def option(name: str, on: bool = True) -> str:
    """How a setting is spelled on the command line; one that is yes or no, as `on` says."""
    return f"--{'' if on else 'no-'}{name.replace('_', '-')}"


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


INCOMPLETE_ONLY = ("mask_conditioned", "hide", "impute_at", "impute_count", "impute_sampling_steps")
"""Settings that only incomplete data needs."""


def read_preset(name: str, changes: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The settings of a preset, with changes. Trained on clean or naive data, it has no use for those of incomplete data.

    >>> read_preset("fashion16")["impute_at"], "impute_at" in read_preset("fashion16", {"train_on": "clean"})
    ((0,), False)
    """
    if name not in preset_names():
        near = difflib.get_close_matches(name, preset_names(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"There is no preset {name!r}: {hint}There are {', '.join(preset_names())}.")
    values = yaml.safe_load((PRESETS / f"{name}.yaml").read_text())
    del values["cost"]  # is for people
    if changes.get("train_on", "measurements") != "measurements":
        values = {setting: value for setting, value in values.items() if setting not in INCOMPLETE_ONLY}
    return known(values, f"Preset {name}") | known(changes, "What is changed of it")


def known(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What a YAML file says, as settings: refused if one is unknown or of another type."""
    settings = {setting.name: setting for setting in dataclasses.fields(Settings)}
    result = {}
    for name, value in values.items():
        if name not in settings:
            near = difflib.get_close_matches(name, settings, n=1)
            raise ValueError(
                f"{where} sets {name!r}, which is no setting{f'; did you mean {near[0]}?' if near else '.'}"
            )
        kind: Any = type(settings[name].default)  # YAML has lists for tuples, and 1 for 1.0
        if name == "hide" and isinstance(value, list | tuple):
            kind = tuple
        as_kind = kind(value) if (kind, type(value)) in ((tuple, list), (float, int)) else value
        if type(as_kind) is not kind:
            raise ValueError(
                f"{where} sets {name} to {value!r}, where {'an' if kind is int else 'a'} {kind.__name__} is wanted."
            )
        result[name] = as_kind
    return result


VERSION = 4
"""Of the folder of a run: its files, and the names of settings."""


@dataclass(frozen=True)
class DataInfo:
    """What a run must know of its data, to build the denoiser and to recognise the data when it is resumed."""

    shape: tuple[int, ...]
    basis: str
    mask_shape: tuple[int, ...]
    unit: tuple[int, ...]
    is_complex: bool
    max_std: float
    samples: int
    made_by: dict[str, Any]

    @staticmethod
    def of(data: "Measurements") -> "DataInfo":
        return DataInfo(
            shape=tuple(data.shape),
            basis=type(data.basis).__name__,
            mask_shape=data.mask_shape,
            unit=data.unit,
            is_complex=data.header["complex"],
            max_std=data.max_std,
            samples=len(data),
            made_by={key: data.header[key] for key in ("source", "corruption", "sigma_0", "seed")},
        )


@dataclass(frozen=True)
class Config:
    """config.yaml: the settings, the files, what is known of the data, and the request that the run answers."""

    settings: Settings
    data_info: DataInfo
    data: str
    clean: str | None
    own_network: bool
    request: Request
    data_request: Request
    """What `gsure corrupt` or `gsure import` was asked for."""

    def learned_from_imputed(self, step: int) -> bool:
        """Whether the weights of this step have learned from signals whose missing part was imputed."""
        return any(at < step for at in self.settings.impute_at)

    def as_dict(self) -> dict[str, Any]:
        plain = json.loads(json.dumps(dataclasses.asdict(self)))  # tuples to lists, as YAML and JSON want them
        return {"version": VERSION, **plain}

    @staticmethod
    def from_dict(values: Mapping[str, Any], where: str) -> "Config":
        try:
            if (version := values["version"]) != VERSION:
                raise ValueError(
                    f"{where} has format version {version!r}, but this gsure reads version {VERSION} only."
                )
            info: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in dict(values["data_info"]).items()
            }
            settings = Settings(**known(values["settings"], where))
            data, clean, own_network = (values[key] for key in ("data", "clean", "own_network"))
            if not isinstance(data, str) or not isinstance(clean, str | None) or not isinstance(own_network, bool):
                raise TypeError("data, clean or own_network is of another type")
            requests = (as_request(values[key]) for key in ("request", "data_request"))
            return Config(settings, DataInfo(**info), data, clean, own_network, *requests)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{where} is not a configuration that this gsure can read ({error}).") from error
