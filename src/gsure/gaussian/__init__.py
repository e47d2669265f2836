"""A Gaussian prior in closed form, fitted to incomplete measurements: the first model of every run.

It restores, denoises at any noise level, draws from its posterior, and knows its error bars exactly. Its covariance has one of
several structures, of which `fit_gaussian` chooses the one that predicts hidden measured entries best.

| module | what it has |
|---|---|
| `base` | `Gaussian`: mean, std, draw; `Given`: what it makes of measured entries, for drawing in context |
| `blocks` | covariances of blocks: of all entries, or of rows in hybrid space |
| `phase`, `referenced` | rows relative to a phase reference, for complex images of smooth phase; their linear algebra |
| `stationary` | a power spectrum, for everything else |
| `coordinates`, `moments` | vectors of entries, and their second moments |
| `fit` | which structure, and with which options |
| `store` | the file |
"""

from gsure.gaussian.base import Gaussian, filled
from gsure.gaussian.coordinates import as_complex, as_pairs, with_conjugates
from gsure.gaussian.fit import About, Fitted, fit_gaussian
from gsure.gaussian.store import load_gaussian, save_gaussian

__all__ = [
    "About",
    "Fitted",
    "Gaussian",
    "as_complex",
    "as_pairs",
    "filled",
    "fit_gaussian",
    "load_gaussian",
    "save_gaussian",
    "with_conjugates",
]
