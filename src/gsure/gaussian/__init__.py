from gsure.gaussian.old import Gaussian, check_size

__all__ = ["Gaussian", "check_size"]
