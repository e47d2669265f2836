"""Random streams: every draw of the package has a purpose, and no two purposes share random numbers."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import gsure
from gsure.random import Stream, generators, keyed_generator, normal, numpy_generator

SOURCE = Path(gsure.__file__).parent
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "random.py"]


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Every call in a file, with the name that is called."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "") for call in found)
    return list(zip(names, found, strict=True))


def test_every_stream_is_used_for_one_purpose_in_one_module():
    places = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Stream":
                places[node.attr].add(str(path.relative_to(SOURCE)))
    assert set(places) == {stream.name for stream in Stream}
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_generator_is_made_without_a_stream(path):
    for name, call in calls(path):
        assert name not in ("manual_seed", "default_rng", "PCG64", "RandomState"), f"line {call.lineno}"
        if name in ("generators", "keyed_generator", "numpy_generator", "keyed_seed"):
            stream = call.args[1]
            passed_on = isinstance(stream, ast.Name) and stream.id == "stream"  # by a function that takes one
            named = isinstance(stream, ast.Attribute) and getattr(stream.value, "id", "") == "Stream"
            assert passed_on or named, f"line {call.lineno}: the key after the seed is not a stream"


def test_no_two_streams_share_random_numbers():
    drawn = {stream: torch.rand(3, generator=keyed_generator(0, stream)) for stream in Stream}
    drawn |= {(stream, k): torch.rand(3, generator=keyed_generator(0, stream, k)) for stream in Stream for k in (0, 1)}
    drawn |= {k: torch.rand(3, generator=generators(0, indices=[k])[0]) for k in range(50)}  # those of a user
    values = torch.stack(list(drawn.values()))
    assert len(values.unique(dim=0)) == len(drawn)
    assert numpy_generator(0, Stream.PHANTOM, 1).random() != numpy_generator(0, Stream.TINT, 1).random()


def test_sample_k_does_not_start_from_the_noise_of_measurement_k():
    """As it did when both were keyed by (seed, k)."""
    like = torch.empty(0)
    measured = normal((4, 1000), generators(0, Stream.CORRUPT, indices=range(4)), like)
    sampled = normal((4, 1000), generators(0, Stream.SAMPLE, indices=range(4)), like)
    assert float((measured * sampled).mean().abs()) < 5 / 4000**0.5
    again = normal((4, 1000), generators(0, Stream.SAMPLE, indices=range(4)), like)
    assert float((again * sampled).mean()) > 0.9


def test_noise_is_drawn_where_the_generators_are():
    made = generators(0, Stream.TRAIN, indices=range(2), device="cpu")
    assert {generator.device.type for generator in made} == {"cpu"}
    assert normal((2, 3), made, torch.empty(0, device="meta")).device.type == "meta"
