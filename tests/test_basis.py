from dataclasses import dataclass

import pytest
import scipy.fft
import torch

from gsure import Basis, Cosine, Dense, Fourier, Hadamard, Hartley, Identity, Measurement, check_basis

ORTHOGONAL = torch.linalg.qr(torch.randn(60, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
CASES = [
    *(
        (basis, shape)
        for basis in (Identity(), Fourier(), Hartley(), Cosine())
        for shape in ((2, 6, 5), (4, 5, 8), (2, 1, 7))
    ),
    *((basis, shape) for basis in (Identity(), Hartley(), Cosine()) for shape in ((1, 6, 6), (3, 5, 4))),
    *((Hadamard(), shape) for shape in ((1, 8, 8), (3, 2, 16), (2, 1, 4))),
    (Identity(), (7,)),
    (Dense(ORTHOGONAL), (60,)),
    (Dense(ORTHOGONAL), (3, 4, 5)),
]
NAMES = [f"{type(basis).__name__}-{shape}" for basis, shape in CASES]


@pytest.mark.parametrize(("basis", "shape"), CASES, ids=NAMES)
def test_every_basis_passes_all_checks(basis, shape):
    check_basis(basis, shape)


@pytest.mark.parametrize(("basis", "shape"), CASES, ids=NAMES)
def test_every_basis_is_an_orthogonal_matrix_built_column_by_column(basis, shape):
    n = torch.Size(shape).numel()
    unit_vectors = torch.eye(n, dtype=torch.float64).reshape(n, *shape)
    V = basis.to_signal(unit_vectors).reshape(n, n).mT
    torch.testing.assert_close(V.mT @ V, torch.eye(n, dtype=torch.float64), rtol=0, atol=1e-12)
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(basis.to_spectral(x).flatten(1), x.flatten(1) @ V)


@pytest.mark.parametrize(("h", "w"), [(4, 6), (5, 7), (6, 3)])
def test_fourier_is_the_centred_sum(h, w):
    x = torch.randn(1, 4, h, w, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    i, j = torch.arange(h) - h // 2, torch.arange(w) - w // 2
    rows = torch.exp(-2j * torch.pi * i[:, None].double() * i / h)
    columns = torch.exp(-2j * torch.pi * j[:, None].double() * j / w)
    direct = rows @ torch.complex(x[0, 0::2], x[0, 1::2]) @ columns.mT / (h * w) ** 0.5
    xbar = Fourier().to_spectral(x)[0]
    torch.testing.assert_close(torch.complex(xbar[0::2], xbar[1::2]), direct)


def test_cosine_is_the_dct_of_scipy():
    x = torch.randn(2, 3, 6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.from_numpy(scipy.fft.dctn(x.numpy(), type=2, norm="ortho", axes=(-2, -1)))
    torch.testing.assert_close(Cosine().to_spectral(x), expected)


def test_hadamard_orders_patterns_by_sign_changes():
    patterns = Hadamard().to_signal(torch.eye(8).reshape(8, 1, 8, 1) * torch.eye(1, 8)[0])[:, 0, :, 0]
    assert (patterns.sign().diff(dim=1) != 0).sum(1).tolist() == list(range(8))


def convolution(kernel: torch.Tensor) -> torch.Tensor:
    """H of a circular convolution, as a matrix."""
    n = kernel.numel()
    images = torch.eye(n, dtype=torch.float64).reshape(n, *kernel.shape)
    blurred = torch.fft.ifft2(torch.fft.fft2(images) * torch.fft.fft2(kernel)).real
    return blurred.reshape(n, n).mT


@pytest.mark.parametrize("size", [(6, 6), (5, 7), (4, 5)])
def test_every_convolution_is_diagonal_in_the_hartley_basis_with_singular_values_h_hat(size, generator):
    kernel = torch.randn(size, generator=generator, dtype=torch.float64)  # not symmetric
    H = convolution(kernel)
    n = kernel.numel()
    V = Hartley().to_signal(torch.eye(n, dtype=torch.float64).reshape(n, 1, *size)).reshape(n, n).mT
    gram = V.mT @ H.mT @ H @ V
    torch.testing.assert_close(gram, torch.diag(torch.fft.fft2(kernel).abs().flatten() ** 2))


def test_the_separable_hartley_transform_would_not_do(generator):
    kernel = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    H = convolution(kernel)
    angle = 2 * torch.pi * torch.arange(6)[:, None] * torch.arange(6) / 6
    cas = (angle.cos() + angle.sin()).double() / 6**0.5
    V = torch.kron(cas, cas)
    gram = V.mT @ H.mT @ H @ V
    assert (gram - gram.diag().diag()).abs().max() > 0.1


@dataclass(frozen=True)
class Wrong(Basis):
    """Orthonormal forwards, but scaled on the way back."""

    def to_spectral(self, x):
        return x.flip(-1)

    def to_signal(self, xbar):
        return 1.01 * xbar.flip(-1)


@dataclass(frozen=True)
class Mutating(Basis):
    def to_spectral(self, x):
        return x.neg_()

    def to_signal(self, xbar):
        return -xbar


def test_check_basis_says_what_fails():
    with pytest.raises(
        ValueError, match=r"be inverted by to_signal; invert to_signal; have to_signal as its adjoint\.$"
    ):
        check_basis(Wrong(), (3, 4))
    with pytest.raises(ValueError, match="leave its argument unchanged"):
        check_basis(Mutating(), (3, 4))
    with pytest.raises(ValueError, match="cannot transform signals of shape"):
        check_basis(Dense(ORTHOGONAL), (7,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fourier().to_spectral(torch.zeros(1, 3, 4, 4)), "3 channels"),
        (lambda: Hadamard().to_spectral(torch.zeros(1, 1, 6, 8)), "powers of two, but was given 6"),
        (lambda: Dense(torch.ones(3, 3)), "orthogonal"),
        (lambda: Dense(torch.full((3, 3), torch.nan)), "orthogonal"),
        (lambda: Dense(torch.eye(3)[:2]), "square"),
    ],
)
def test_impossible_transforms_are_refused(make, message, outside):
    with pytest.raises(ValueError, match=message):
        make()


def shared(generator, k=4, n=6):
    """Operators U Σ Vᵀ of one V, with some singular values 0, and of all sizes."""
    V = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q
    svals = torch.rand(k, n, generator=generator, dtype=torch.float64) * (
        torch.rand(k, n, generator=generator, dtype=torch.float64) < 0.7
    )
    U = torch.linalg.qr(torch.randn(k, n + 2, n + 2, generator=generator, dtype=torch.float64)).Q[..., :n]
    return U * svals[:, None, :] @ V.mT, svals


def test_operators_that_share_a_basis_have_it_found(generator):
    H, _ = shared(generator)
    basis = Dense.from_operators(H)
    check_basis(basis, (6,))
    gram = basis.V.mT @ H.mT @ H @ basis.V
    off_diagonal = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    assert float(off_diagonal.abs().max()) < 1e-10
    single = Dense.from_operators(H[0])
    gram = single.V.mT @ H[0].mT @ H[0] @ single.V
    assert float((gram - gram.diagonal().diag()).abs().max()) < 1e-10


def test_what_operators_measured_becomes_measurements_of_the_signal(generator):
    H, _ = shared(generator, k=50)
    x = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    basis = Dense.from_operators(H)
    measurement = Measurement.from_operators((H @ x[..., None])[..., 0], H, basis.V, 0.1)
    xbar = basis.to_spectral(x)
    torch.testing.assert_close(measurement.ybar, measurement.mask * xbar)
    assert 0.4 < float(measurement.mask.mean()) < 0.95
    lengths = (H @ basis.V).norm(dim=1)
    torch.testing.assert_close(measurement.mask * measurement.std * lengths, 0.1 * measurement.mask)


def test_operators_that_share_none_are_told_how_far_they_are_from_it(generator, outside):
    H = torch.randn(3, 5, 5, generator=generator)
    with pytest.raises(ValueError, match=r"share no V: in the best common one, 0\.\d+ of HᵀH of operator \d is off"):
        Dense.from_operators(H)
    nearly, _ = shared(generator)
    nearly = nearly + 1e-6 * torch.randn(nearly.shape, generator=generator)
    Dense.from_operators(nearly)  # within the tolerance
    with pytest.raises(ValueError, match="Operator 1 is zero"):
        Dense.from_operators(torch.stack([torch.eye(3), torch.zeros(3, 3)]))
    with pytest.raises(ValueError, match="a real matrix"):
        Dense.from_operators(torch.eye(3) + 0j)
