"""`python -m gsure` is `gsure`, also under torchrun."""

from gsure.cli import main

raise SystemExit(main())
