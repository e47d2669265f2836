"""The checks of the assumptions: what they must find is found, what is not there is not, and each says so in words."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from conftest import Function, mask_blind_denoiser, z_score
from running import QUICK
from sklearn.cross_decomposition import CCA

import gsure
from gsure import Denoiser, Identity, Measurement, Schedule
from gsure.cli import main
from gsure.data.sources import open_source
from gsure.evaluation.checks import (
    check_agreement,
    check_coverage,
    check_full_sampling,
    check_independence,
    check_noise,
    correlate,
)
from gsure.evaluation.checks.correlation import MIN_SAMPLES, Rows, Windows, linear_cca, pair_correlations, part, shuffle
from gsure.evaluation.checks.coverage import survey
from gsure.evaluation.checks.held_out import HeldOut
from gsure.evaluation.checks.independence import denoising_error
from gsure.evaluation.checks.noise_level import noise_ratio
from gsure.evaluation.checks.windows import place_windows
from gsure.experiments import analytic
from gsure.plotting.checks import density

SCHEDULE = Schedule.linear()


# Canonical correlation


def make_windows(n, places, generator, plant=None, draws=2, dimension=6) -> Windows:
    """Independent windows, unless `plant` (error, mask) -> error makes them dependent."""
    mask = (torch.rand(n, places, dimension, generator=generator) < 0.6).float()
    error = torch.randn(n, draws, places, dimension, generator=generator)
    error = error if plant is None else plant(error, mask[:, None])
    return Windows(error, mask, torch.ones(n, places, dtype=torch.bool), torch.arange(n))


def plant_linear(error, mask):
    """A correlation of 0.8 between the first entries."""
    return torch.cat([0.8 * (mask[..., :1] - 0.6) / 0.24**0.5 + 0.6 * error[..., :1], error[..., 1:]], -1)


def plant_scale(error, mask):
    """Errors are smaller where more is kept, but of mean 0 everywhere: no linear function of them tells."""
    return error * (0.3 + (1 - mask).mean(-1, keepdim=True) ** 2)


def test_linear_cca_recovers_a_planted_correlation(generator):
    found = correlate(make_windows(1000, 4, generator, plant_linear), "linear", generator)
    judged = 0.3 * 1000 * 4  # windows; the draws of noise share their mask
    assert abs(found.value - 0.8) < 5 * (1 - 0.8**2) / judged**0.5
    assert found.level < 0.15


def test_linear_cca_is_that_of_scikit_learn(generator):
    rows = make_windows(400, 1, generator, plant_linear, draws=1).rows()
    ours = pair_correlations(linear_cca(rows), rows)
    x, y = CCA(n_components=2, max_iter=5000, scale=False).fit_transform(rows.error.numpy(), rows.mask.numpy())
    theirs = [np.corrcoef(x[:, k], y[:, k])[0, 1] for k in range(2)]
    assert ours[:2].tolist() == pytest.approx(theirs, abs=2e-3)  # theirs has no ridge


def test_deep_cca_recovers_what_is_linear_and_finds_what_linear_cca_misses(generator):
    deep = correlate(make_windows(400, 4, generator, plant_linear), "deep", generator)
    assert 0.75 < deep.value < 0.9  # more than .8 is right: a binary mask is best predicted by a step
    windows = make_windows(400, 4, generator, plant_scale)
    linear, deep = (correlate(windows, method, generator) for method in ("linear", "deep"))
    assert linear.value < linear.level
    assert deep.value > 2 * deep.level


def test_no_correlation_is_found_in_noise_though_few_samples_have_many_entries():
    values, above = [], 0
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        found = correlate(make_windows(80, 2, generator, dimension=16), "linear", generator, permutations=50)
        values.append(found.value)
        above += found.value > found.level
    assert abs(float(z_score(torch.tensor(values)))) < 5
    assert above <= 2  # one in 700 is expected
    fitted = make_windows(40, 2, generator, dimension=16).rows()
    assert float(pair_correlations(linear_cca(fitted), fitted)[0]) > found.level  # judged by itself, it finds one


def test_deep_cca_finds_no_correlation_in_noise():
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        found = correlate(make_windows(100, 4, generator, dimension=16), "deep", generator)
        assert found.value < found.level < 0.5


def test_places_of_different_error_and_coverage_are_not_taken_for_a_dependence(generator):
    """At each place error and mask are independent; over places both change, and pooled they correlate."""
    scale, keep = torch.tensor([0.1, 0.4, 2.0, 5.0])[None, :, None], torch.tensor([0.1, 0.3, 0.8, 0.95])[None, :, None]
    error = scale[:, None] * (1 + torch.randn(300, 1, 4, 5, generator=generator).abs())
    mask = (torch.rand(300, 4, 5, generator=generator) < keep).float()
    windows = Windows(error, mask, torch.ones(300, 4, dtype=torch.bool), torch.arange(300))
    for method in ("linear", "deep"):
        found = correlate(windows, method, generator)
        assert found.value < max(0.1, found.level)
    one_place = Windows(
        error.movedim(2, 1).reshape(1200, 1, 1, 5),
        mask.reshape(1200, 1, 5),
        torch.ones(1200, 1) == 1,
        torch.arange(1200),
    )
    assert correlate(one_place, "linear", generator).value > 0.5


def test_a_group_stays_on_one_side_and_moves_as_one(generator):
    group = torch.arange(60) // 3
    parts = part(group, generator)
    assert sorted(torch.cat(parts).tolist()) == list(range(60))
    sides = [set(group[some].tolist()) for some in parts]
    assert not sides[0] & sides[1]
    assert not sides[1] & sides[2]
    assert all(len(set(three.tolist())) == 1 for three in group[shuffle(group, generator)].reshape(20, 3))


def test_no_part_is_left_empty_by_a_large_group(generator):
    group = torch.cat([torch.zeros(40), torch.arange(1, 13).repeat_interleave(5)]).long()
    cut_apart = 0
    for _ in range(40):
        parts = part(group, generator)
        assert sorted(torch.cat(parts).tolist()) == list(range(100))
        assert min(map(len, parts)) > 0
        cut_apart += sum(bool((group[some] == 0).any()) for some in parts) > 1
    assert 0 < cut_apart < 40, "only where it must be"


def test_too_few_samples_are_refused(generator):
    with pytest.raises(ValueError, match=f"at least {MIN_SAMPLES} samples, but there are 10"):
        correlate(make_windows(10, 2, generator), "linear", generator)


def test_the_gradient_of_deep_cca_is_finite_where_canonical_correlations_coincide(generator):
    from gsure.evaluation.checks.correlation import _whitened

    x = torch.randn(50, 3, generator=generator, requires_grad=True)
    between, _ = _whitened(Rows(x, x.detach().clone(), torch.zeros(50, dtype=torch.int64)))  # all are 1
    torch.linalg.svdvals(between).sum().backward()
    assert x.grad.isfinite().all()


# The 2-D example


def test_the_example_of_the_paper_as_a_measured_distance(tmp_path):
    """Alike at low SNR for both; at high SNR apart for the Gaussian and alike for the deltas."""
    found = analytic.analytic_example(tmp_path, n=4000)
    assert all(found["statement"].values()), found["statement"]
    assert all(found["beyond the paper"].values())
    at = {(row["distribution"], row["denoiser"], row["t"]): row for row in found["rows"]}
    assert at["gaussian", "ideal", 100]["distance"] > 10 * at["gaussian", "ideal", 100]["level"]
    assert at["deltas", "ideal", 100]["distance"] < at["deltas", "ideal", 100]["level"]
    assert (tmp_path / "analytic.png").stat().st_size > 10_000
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("signals", ["gaussian", "deltas"])
def test_what_the_loss_learns_is_the_conditional_mean_of_kept_entries(signals, generator):
    """The error of a kept entry is uncorrelated with any function of x̄_t; that of the ideal one is not, for the deltas."""
    alpha_bar_t, n = 0.4, 100_000
    z = {}
    for kind in ("learned", "ideal"):
        error, xbar_t = analytic_errors(signals, kind, alpha_bar_t, n, generator.manual_seed(0))
        z[kind] = float(z_score(error * torch.tanh(xbar_t)))
    assert abs(z["learned"]) < 5
    assert signals == "gaussian" or abs(z["ideal"]) > 20


def analytic_errors(signals, kind, alpha_bar_t, n, generator):
    """Of the first entry, which is kept, and x̄_t there."""
    sign = 2.0 * torch.randint(2, (n, 1), generator=generator).double() - 1
    xbar = torch.randn(n, 2, generator=generator).double() if signals == "gaussian" else sign.expand(-1, 2)
    noise = (1 - alpha_bar_t) ** 0.5 * torch.randn(n, 2, generator=generator).double()
    xbar_t = alpha_bar_t**0.5 * torch.tensor([1.0, 0.0]) * xbar + noise
    return (analytic.denoise(signals, kind, xbar_t, alpha_bar_t) - xbar)[:, 0], xbar_t[:, 0]


def test_the_energy_coefficient_is_its_definition_and_knows_equal_from_different(generator):
    x, y = torch.randn(300, 2, generator=generator).double(), torch.randn(200, 2, generator=generator).double()
    value, level = analytic.energy_coefficient(x, y, generator)
    cross = torch.cdist(x, y).mean()
    direct = (2 * cross - torch.cdist(x, x).mean() - torch.cdist(y, y).mean()) / (2 * cross)
    assert value == pytest.approx(float(direct))
    assert value < level
    far, level = analytic.energy_coefficient(x + 50, y, generator)
    assert far > 0.95 > level


def test_the_density_is_one(generator):
    axis = torch.linspace(-6, 6, 121, dtype=torch.float64)
    values = density(torch.randn(1000, 2, generator=generator).double() * torch.tensor([1.0, 0.3]), axis)
    assert float(values.sum()) * 0.1**2 == pytest.approx(1, abs=1e-3)
    assert float(values.sum(1).max()) > 2 * float(values.sum(0).max())  # narrow along the second coordinate: the rows


# Independence of error and mask


def make_data(xbar, mask, std=0.02, clean=True, coverage=None) -> HeldOut:
    noise = std * torch.randn(xbar.shape, generator=torch.Generator().manual_seed(9)).to(xbar)
    measurement = Measurement(mask * (xbar + noise), mask, std)

    def read():
        for first in range(0, len(xbar), 100):
            some = slice(first, first + 100)
            yield measurement[some], xbar[some] if clean else None, range(*some.indices(len(xbar)))

    return HeldOut(read, COVERAGE if coverage is None else coverage, torch.arange(len(xbar)))


def make_denoiser(function) -> Denoiser:
    """function(x_t, ᾱ_t)."""
    return Denoiser(Function(lambda x_t, t: function(x_t, SCHEDULE.at(t, like=x_t))), SCHEDULE, Identity())


def draw_gaussian(n, generator):
    """White signals and masks that are independent of them."""
    xbar = torch.randn(n, 1, 8, 8, generator=generator, dtype=torch.float64)
    return xbar, (torch.rand(n, 1, 8, 8, generator=generator) < 0.6).double()


GAUSSIAN = make_denoiser(lambda x_t, alpha_bar_t: alpha_bar_t.sqrt() * x_t)
COVERAGE = torch.full((1, 1, 8, 8), 0.6)


def test_the_exact_denoiser_of_white_signals_depends_on_the_mask_only_early(generator):
    xbar, mask = draw_gaussian(200, generator)
    check = check_independence(GAUSSIAN, make_data(xbar, mask), [50, 500, 1000])
    assert check.verdict == "doubtful for t < 500"
    assert "4×4 windows" in check.words
    for row in check.numbers["times"]:
        alpha_bar = float(SCHEDULE.alpha_bar[row["t"]])
        kept, dropped = 1 - alpha_bar, 1 + alpha_bar * (1 - alpha_bar)  # squared errors of entries
        assert abs(row["seen"] - kept / (0.6 * kept + 0.4 * dropped)) < 5 * row["seen_se"]


def test_independence_holds_where_the_signal_can_be_told_from_any_part_of_it(generator):
    """The two deltas of the paper, in 64 dimensions."""
    sign = 2.0 * torch.randint(2, (120, 1, 1, 1), generator=generator).double() - 1
    mask = (torch.rand(120, 1, 8, 8, generator=generator) < 0.6).double()
    ideal = make_denoiser(
        lambda x_t, a: torch.tanh(a.sqrt() * x_t.sum((1, 2, 3), keepdim=True) / (1 - a)).expand_as(x_t)
    )
    check = check_independence(ideal, make_data(sign.expand(-1, 1, 8, 8), mask), [100, 1000])
    assert check.verdict == "holds"


def masks_by_signal(xbar, generator):
    """Kept mostly where the signal is bright."""
    return (torch.rand(xbar.shape, generator=generator) < torch.where(xbar > 0, 0.95, 0.2)).double()


def test_masks_that_depend_on_the_signal_break_it_and_kept_entries_show_it(generator):
    """Smooth signals, so that a kept entry knows of its neighbours."""
    xbar = (
        torch.randn(140, 1, 2, 2, generator=generator, dtype=torch.float64)
        .repeat_interleave(4, 2)
        .repeat_interleave(4, 3)
    )
    denoiser = make_denoiser(lambda x_t, alpha_bar_t: alpha_bar_t.sqrt() * x_t)
    verdicts = {}
    for name, mask in (("signal", masks_by_signal(xbar, generator)), ("chance", draw_gaussian(140, generator)[1])):
        for clean in (True, False):
            data = make_data(xbar, mask, clean=clean)
            verdicts[name, clean] = check_independence(denoiser, data, [1000]).verdict
    assert verdicts == {
        ("signal", True): "broken",
        ("signal", False): "broken",
        ("chance", True): "holds",
        ("chance", False): "not checked: needs --clean",
    }


def test_the_error_on_kept_entries_is_the_true_one_and_independent_noise(generator):
    xbar, mask = draw_gaussian(4000, generator)
    for measurement, truth, _ in make_data(xbar, mask, std=0.3).read():
        t, alpha_bar = torch.full((len(truth),), 200), float(SCHEDULE.alpha_bar[200])
        eps = torch.randn(truth.shape, generator=generator, dtype=truth.dtype)
        errors = [denoising_error(GAUSSIAN, measurement, t, x, eps) for x in (truth, None)]
        noise = (errors[1] - errors[0])[measurement.mask == 1]
        variance = 0.3**2 / (1 - alpha_bar * 0.3**2 / (1 - alpha_bar))
        assert abs(float(z_score(noise))) < 5
        assert abs(float(z_score(noise**2 - variance))) < 5
        assert abs(float(z_score(noise * errors[0][measurement.mask == 1]))) < 5
        break
    assert (errors[1][measurement.mask == 0] == 0).all()


def test_windows_fit_the_signal_and_the_mask():
    lines = (torch.rand(50, 1, 1, 32, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    places = place_windows(lines, (2, 32, 32))
    assert places.size == (8, 8)
    assert len(places.corners) == 16
    assert places.cut(torch.zeros(50, 2, 32, 32)).shape == (50, 16, 2 * 8 * 8)
    assert places.cut(lines).shape == (50, 16, 8)
    assert places.cut(torch.zeros(50, 2, 32, 32), (False, True)).shape == (50, 16, 2 * 8)  # the column in the middle
    vectors = (torch.rand(50, 10, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    assert place_windows(vectors, (10,)).cut(vectors).shape == (50, 2, 5)
    assert place_windows(torch.ones(50, 1, 8, 8), (1, 8, 8)).corners == ()  # none in which the mask changes


# Agreement with a clean-trained reference, coverage, noise


def test_agreement_tells_the_distance_and_what_it_costs(generator):
    xbar, mask = draw_gaussian(300, generator)
    far = make_denoiser(lambda x_t, alpha_bar_t: alpha_bar_t.sqrt() * x_t + 0.5)
    near = make_denoiser(lambda x_t, alpha_bar_t: alpha_bar_t.sqrt() * x_t + 0.001)
    times = [100, 500, 1000]
    check = check_agreement(far, GAUSSIAN, make_data(xbar, mask), times, is_complex=False)
    assert check.verdict == "broken"
    for row in check.numbers["times"]:
        error = 1 - float(SCHEDULE.alpha_bar[row["t"]])  # the oracle's, in closed form
        assert row["psnr"] == pytest.approx(20 * math.log10(2 / 0.5), abs=1e-6)
        assert row["cost"] == pytest.approx(0.25 / error, rel=0.05)
        assert row["error_ratio"] == pytest.approx(1 + 0.25 / error, rel=0.05)
    assert check_agreement(near, GAUSSIAN, make_data(xbar, mask), times, is_complex=False).verdict == "holds"


def test_full_sampling_finds_who_uses_the_fully_sampled_signal_and_who_is_confused_by_it(generator):
    """Of white signals other entries tell nothing, of two deltas they tell all; one denoiser errs if nothing is missing."""
    xbar, mask = draw_gaussian(300, generator)
    times = [100, 1000]
    rows = check_full_sampling(GAUSSIAN, make_data(xbar, mask), times).numbers["times"]
    assert [row["ratio"] for row in rows] == [1.0, 1.0]

    sign = 2.0 * torch.randint(2, (300, 1, 1, 1), generator=generator).double() - 1
    ideal = make_denoiser(
        lambda x_t, a: torch.tanh(a.sqrt() * x_t.sum((1, 2, 3), keepdim=True) / (1 - a)).expand_as(x_t)
    )
    late = check_full_sampling(ideal, make_data(sign.expand(-1, 1, 8, 8), mask), [800])
    assert late.verdict == "holds"
    assert late.numbers["times"][0]["ratio"] + 5 * late.numbers["times"][0]["se"] < 1

    def knows_missing(x_t, alpha_bar_t):
        energy = (x_t**2).mean((1, 2, 3), keepdim=True) - (1 - alpha_bar_t)
        return alpha_bar_t.sqrt() * x_t + 0.5 * (energy > 0.8 * alpha_bar_t)

    confused = check_full_sampling(make_denoiser(knows_missing), make_data(xbar, mask), times)
    assert confused.verdict == "doubtful for t < 1000"
    assert "confuse the network" in confused.words

    never = COVERAGE.clone()
    never[..., 0, 0] = 0
    data = make_data(xbar, mask * (never > 0), coverage=never)
    rows = check_full_sampling(GAUSSIAN, data, times).numbers["times"]
    assert [row["ratio"] for row in rows] == [1.0, 1.0]
    everything = make_data(xbar, mask * 0 + 1, coverage=COVERAGE * 0 + 1)
    nothing_missing = check_full_sampling(GAUSSIAN, everything, times)
    assert nothing_missing.verdict == "not checked: no measurement has missing entries"
    with pytest.raises(ValueError, match="needs clean signals"):
        check_full_sampling(GAUSSIAN, make_data(xbar, mask, clean=False), times)


def test_full_sampling_cannot_see_all_of_mask_blindness():
    """Its limit: the exact mask-blind denoiser of correlated Gaussians is better on fully sampled signals too."""
    generator = torch.Generator().manual_seed(3)
    factor = torch.linalg.cholesky(torch.tensor([[1, 0.9], [0.9, 1]], dtype=torch.float64))
    xbar = torch.randn(4000, 2, generator=generator, dtype=torch.float64) @ factor.mT
    mask = (torch.rand(4000, 2, generator=generator) < 0.4).double()
    data = make_data(xbar, mask, coverage=torch.full((1, 2), 0.4))
    check = check_full_sampling(mask_blind_denoiser(0.9, 0.4), data, [50, 200, 600])
    assert check.verdict == "holds"
    assert check.numbers["times"][1]["ratio"] + 5 * check.numbers["times"][1]["se"] < 1


def covered(mask, stated=None, generator=None):
    found = survey(iter(mask.split(100)), generator or torch.Generator().manual_seed(0))
    return check_coverage(found, mask.mean(0, keepdim=True) if stated is None else stated, stated is not None)


def test_coverage_is_counted_and_each_fault_is_named(generator):
    good = (torch.rand(600, 1, 4, 8, generator=generator) < 0.6).float()
    check = covered(good, torch.full((1, 1, 1, 1), 0.6))
    assert check.verdict == "holds"
    assert check.numbers["kept"] == pytest.approx(good.mean(0).flatten().tolist())
    pairs = torch.tensor(
        [(good[:, 0].flatten(1)[:, [i]] * good[:, 0].flatten(1)).mean(0)[i + 1 :].min() for i in range(31)]
    )
    assert check.numbers["least_together"] == pytest.approx(float(pairs.min()))
    never = torch.ones(8)
    never[3] = 0
    halves = (torch.rand(600, 1, 1, 1, generator=generator) < 0.5).float()
    apart = good * torch.cat([halves.expand(-1, 1, 1, 8), (1 - halves).expand(-1, 1, 3, 8)], 2)
    rare = good * (torch.rand(600, 1, 4, 8, generator=generator) < torch.tensor([0.05] + [1.0] * 7)).float()
    ranks = torch.rand(600, 1, 1, 1, generator=generator)
    faults = {
        "never measured, so": (good * never, "broken"),
        "never measured together": (apart, "doubtful"),
        "less than 5 %": (rare, "doubtful"),
        "times as often": (rare, "doubtful"),
        "differ in rank": ((torch.rand(600, 1, 4, 8, generator=generator) < ranks).float(), "doubtful"),
        "keep nothing": (good * (torch.arange(600) > 5).reshape(-1, 1, 1, 1), "doubtful"),
    }
    for words, (mask, verdict) in faults.items():
        check = covered(mask)
        assert check.verdict == verdict, words
        assert words in check.words
    assert "coverage that the file states" in covered(good, torch.full((1, 1, 1, 1), 0.7)).words


def test_the_noise_ratio_is_rho_and_high_noise_is_doubtful():
    std, t = 0.1, 30
    schedule = Schedule.for_noise(std)
    alpha_bar = float(schedule.alpha_bar[t])
    assert float(noise_ratio(schedule, std)[t - 1]) == pytest.approx(alpha_bar * std**2 / (1 - alpha_bar))
    low = check_noise(Schedule.for_noise(0.01), torch.full((5,), 0.01), 1.0, [1, 1000])
    assert low.verdict == "holds"
    assert low.numbers["near_one"] == 1
    high = check_noise(Schedule.for_noise(0.5), torch.full((5,), 0.5), 1.0, [1, 1000])
    assert high.verdict == "doubtful"
    assert "which the paper warns of" in high.words
    slow = check_noise(Schedule.linear(0.25, 0.25, T=2), torch.full((5,), 0.5), 10.0, [1])
    assert slow.verdict == "holds"  # one step is enough
    uneven = check_noise(Schedule.for_noise(0.1), torch.tensor([0.01, 0.01, 0.1]), 1.0, [1, 1000])
    assert "10.0 times the median" in uneven.words


# The command


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A good run and a clean-trained reference; and one whose masks follow the signal and never measure a corner."""
    folder = tmp_path_factory.mktemp("diagnosis")
    patches = gsure.corruption.Patches(p=0.4, size=2)
    gsure.corrupt(open_source("digits"), folder / "d.h5", patches, 0.05, clean=folder / "c.h5", limit=1000)
    settings = dataclasses.replace(
        QUICK, width=64, steps=80, batch=32, lr=3e-3, ema=0.95, checkpoint_every=80, held_out=0.3
    )
    gsure.train(folder / "d.h5", folder / "run", settings)
    gsure.train(
        folder / "d.h5", folder / "oracle", dataclasses.replace(settings, train_on="clean"), clean=folder / "c.h5"
    )

    x = gsure.Signals(folder / "c.h5")[:1000]
    mask = masks_by_signal(x, torch.Generator().manual_seed(0)).float()
    mask[:, :, :1, :1] = 0
    np.save(folder / "y.npy", (x * mask).numpy())
    np.save(folder / "m.npy", mask.numpy())
    gsure.convert("array", folder / "y.npy", folder / "bad.h5", 0.0, mask=folder / "m.npy", basis=Identity())
    gsure.train(folder / "bad.h5", folder / "bad", dataclasses.replace(settings, coverage_weighting=False, steps=20))
    return folder


def test_a_good_run_is_told_in_words_and_figures(files, few_times, capsys):
    arguments = [
        "diagnose",
        str(files / "run"),
        "--reference-run",
        str(files / "oracle"),
        "--clean",
        str(files / "c.h5"),
    ]
    assert main([*arguments, "--n", "100"]) == 0
    told = capsys.readouterr().out
    folder = files / "run" / "diagnosis"
    result = json.loads((folder / "diagnosis.json").read_text())
    checks = {check["name"]: check for check in result["checks"]}
    assert list(checks) == ["coverage", "noise", "independence", "full_sampling", "agreement"]
    assert checks["coverage"]["verdict"] == checks["noise"]["verdict"] == "holds"
    assert checks["independence"]["verdict"] in ("holds", "doubtful for t < 1000")
    assert checks["agreement"]["verdict"] != "broken"
    for check in checks.values():
        assert check["title"] in told
        assert check["words"].endswith(".")
        assert (folder / check["figure"]).stat().st_size > 5_000
    assert result["run"] == str((files / "run").resolve())
    assert result["request"]["command"] == ["gsure", *arguments, "--n", "100"]
    assert main(arguments) == 2
    assert "already has a diagnosis: add --force" in capsys.readouterr().err


def test_a_run_whose_assumptions_are_broken_is_told_so_without_clean_signals(files, few_times, capsys):
    assert main(["diagnose", str(files / "bad"), "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["coverage"]["verdict"] == "broken"
    assert "1 of 64 entries are never measured" in checks["coverage"]["words"]
    assert checks["independence"]["verdict"] == "broken"
    assert "the masks themselves depend on the signals" in checks["independence"]["words"]
    assert checks["full_sampling"]["verdict"] == "not checked: needs --clean"
    assert checks["agreement"]["verdict"] == "not checked: needs --reference-run and --clean"
    assert checks["agreement"]["figure"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["oracle"], "was trained on clean signals, so it makes no assumptions on masks"),
        (["d.h5"], "is not a run of gsure train"),
        (["run", "--reference-run", "oracle"], "needs clean signals: give them with --clean"),
        (["run", "--reference-run", "run", "--clean", "c.h5"], "was trained with --train-on measurements"),
        (["bad", "--clean", "c.h5"], "not of one run of gsure corrupt"),
        (["run", "--n", "5"], "n must be at least 40"),
        (["run", "--checkpoint", "7"], "has no checkpoint of step 7"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused_in_a_sentence(files, arguments, words, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert main(["diagnose", *arguments]) == 2
    assert words in capsys.readouterr().err
