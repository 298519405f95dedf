"""The recipe that measures what a program pays once."""

import pathlib
import sys

import pytest

pytestmark = pytest.mark.once

RECIPES = pathlib.Path(__file__).parent.parent / "recipes"
SMALL = ["--variant", "nano/4", "--image-size", "28", "--rounds", "2"]


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    import fixed_costs

    return fixed_costs


def test_table_of_all_parts(recipe, monkeypatch, capsys):
    parts = []

    def here(args, part):  # ten processes would take a minute
        parts.append(part)
        return recipe.PARTS[part](args)

    monkeypatch.setattr(recipe, "run", here)
    words = ["fixed_costs.py", *SMALL, "--depths", "1"]
    monkeypatch.setattr(sys, "argv", words)
    recipe.main()
    assert set(parts) == set(recipe.PARTS)
    lines = capsys.readouterr().out.splitlines()
    figures = dict(line.strip("| ").split(" | ") for line in lines[2:])
    for name in recipe.JOBS:
        assert {f"{name}, first time", f"{name}, warm"} <= set(figures)
    assert "compiling fit, depth 1" in figures
    assert float(figures["first prediction"]) > 0


def test_a_part_in_its_own_process(recipe, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fixed_costs.py", *SMALL])
    args = recipe.arguments()
    ((name, seconds),) = recipe.run(args, "import").items()
    assert "import" in name
    assert 0 < seconds < 30
