"""The tables and figures of the paper. For each, a YAML file lists what to run, and a module makes the table or figure.

Runs, samples and restorations are kept in a work folder and reused. Results are added case by case to a JSON file, which is
committed, so you can extend a table without computing it again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from gsure.experiments.chain import refuse_file
from gsure.experiments.plan import Plan, Scale, names, read_plan
from gsure.experiments.results import Results
from gsure.experiments.work import Work
from gsure.files import record_request

__all__ = ["names", "read_plan", "reproduce"]


@runtime_checkable
class Experiment(Protocol):
    """The interface of a module that makes tables. A case is a unit of work, such as one model; its name is its str."""

    def cases(self, plan: Plan) -> Sequence[Any]: ...
    def asked(self, plan: Plan, case: Any) -> dict[str, Any]: ...
    def compute(self, plan: Plan, case: Any, work: Work) -> list[dict[str, Any]]: ...
    def write(self, plan: Plan, results: Results, work: Work, folder: Path) -> Path: ...


def reproduce(
    name: str,
    scale: Scale = "small",
    *,
    out: str | Path = "results",
    work: str | Path = "work",
    data: str | Path | None = None,
    only: str | None = None,
    draw: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Compute the missing cases of an experiment, one by one, and write its page into `out`.

    `only` selects the cases whose names contain it; `draw` computes nothing and writes the page from existing results.
    `data` is the folder of the dataset, if one is needed. You can stop it at any time; call it again to resume.
    """
    request = record_request("experiments.reproduce", locals())
    plan = read_plan(name, scale)
    refuse_file(Path(out), "--out")
    refuse_file(Path(work), "--work")
    experiment = _experiment(plan.makes)
    results = Results(Path(out) / f"{plan.label}.json")
    keep = Work(Path(work), None if data is None else Path(data), progress)
    cases = [case for case in experiment.cases(plan) if only is None or only in str(case)]
    if not cases:
        raise ValueError(f"No case of {name} has {only!r} in its name: choose among {_list(experiment.cases(plan))}.")
    Path(out).mkdir(parents=True, exist_ok=True)
    made = []
    for case in cases if not draw else []:
        asked = experiment.asked(plan, case)
        if not results.of(asked):
            results.add(asked, experiment.compute(plan, case, keep), request)
            made.append(str(case))
            experiment.write(plan, results, keep, Path(out))  # show what exists so far
    page = experiment.write(plan, results, keep, Path(out))
    missing = [str(case) for case in experiment.cases(plan) if not results.of(experiment.asked(plan, case))]
    return {"page": str(page), "results": str(results.path), "made now": made, "missing": missing}


def _list(cases: Sequence[Any]) -> str:
    return "; ".join(str(case) for case in cases)


def _experiment(makes: str) -> Experiment:
    from gsure.experiments import assumptions, denoising, restorations, samples

    modules = {"samples": samples, "restorations": restorations, "denoising": denoising, "generalization": denoising}
    modules |= {"independence": assumptions, "analytic": assumptions}
    return cast(Experiment, modules[makes])
