"""What marks a file as ours."""

from typing import Literal

FORMAT = "gsure"
VERSION = 1
Holds = Literal["measurements", "signals"]
