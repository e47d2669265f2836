"""Bias of the finite-difference divergence against its step, in float32, relative to the divergence itself.

A U-Net with attention and random weights, probes shared between the two methods: the mean of the paired difference and its
standard error. Too small a step is rounding noise, too large a one curvature.
"""

import torch

import gsure

STEPS = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5)


def main(probes: int = 24) -> None:
    schedule = gsure.Schedule.for_noise(0.05)
    network = gsure.unet(size=8, channels=1, width=32, multipliers=(1, 2), attention=(4,), dropout=0.0)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():  # away from the near-linear start of training
        parameter.data += 0.03 * torch.randn(parameter.shape, generator=generator)
    denoiser = gsure.Denoiser(network, schedule, gsure.Identity()).eval().requires_grad_(False)
    x = torch.randn(32, 1, 8, 8, generator=generator)
    ones = torch.ones_like(x)
    print("step (in units of the noise)   relative bias ± its standard error   relative rounding-and-curvature noise")
    for step in STEPS:
        differences, values = [], []
        for _ in range(probes):
            t = schedule.draw(len(x), generator)
            alpha_bar_t = schedule.at(t, like=x)
            x_t = gsure.Measurement.clean(x).perturb(alpha_bar_t, torch.randn(x.shape, generator=generator))
            probe, scale = torch.randn(x.shape, generator=generator), (1 - alpha_bar_t).sqrt()

            def f(x: torch.Tensor, samples: torch.Tensor, t: torch.Tensor = t) -> torch.Tensor:
                return denoiser(x, t[samples])

            with torch.no_grad():
                estimates = [
                    gsure.Divergence(method, step=step)(f, x_t, ones, probe, scale, generator)[1]
                    for method in ("double-backward", "finite-difference")
                ]
            differences.append(estimates[1] - estimates[0])
            values.append(estimates[0])
        difference, size = torch.cat(differences), torch.cat(values).abs().mean()
        mean, spread = difference.mean() / size, difference.std() / size
        print(f"{step:>12g} {mean:>30.2e} ± {spread / len(difference) ** 0.5:.1e} {spread:>30.1e}", flush=True)


if __name__ == "__main__":
    main()
