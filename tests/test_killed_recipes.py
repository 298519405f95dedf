"""The recipes as they are started, killed by SIGKILL again and again."""

import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
from test_recipes import idx_files

logger = logging.getLogger(__name__)
ROOT = pathlib.Path(__file__).parent.parent
STEPS = 40
KILLS = 6  # of each recipe, on each backend
# Recipe to its words beyond those of all.
RECIPES = {
    "pretrain": ["--augreg", "--every", "2", "--steps", str(STEPS)],
    "finetune": ["--recipe", "modern", "--steps", str(STEPS)]
    + ["--every", "2", "--batch-size", "8"],
    "mae": ["--every", "2", "--steps", str(STEPS), "--batch-size", "8"],
    "masked_patches": ["--every", "2", "--steps", str(STEPS)]
    + ["--batch-size", "8"],
    "distill": ["--every", "2", "--steps", str(STEPS), "--batch-size", "8"]
    + ["--seeds", "1"],
}


def start(recipe, data, out):
    """Returns a process of the recipe."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    path = [str(ROOT), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    words = ["--toy", *RECIPES[recipe], "--data", str(data), "--out", str(out)]
    with open(f"{out}.txt", "ab") as said:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "recipes" / f"{recipe}.py"), *words],
            env=env,
            stdout=said,
            stderr=subprocess.STDOUT,
        )


def state(out):
    """All of the last checkpoints, and the weights that were saved."""
    found = {}
    for path in sorted(out.rglob("*.h5")):
        with h5py.File(path) as file:
            where = path.relative_to(out)
            file.visititems(
                lambda name, item, where=where: (
                    found.update({(where, name): item[()]})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
    assert found
    for folder in sorted(out.rglob("checkpoints")):
        last = max(folder.glob("step_*.npz"))
        with np.load(last) as file:
            for name in file.files:
                if name != "meta":  # it has the numbers of layers
                    key = folder.parent.relative_to(out), last.name, name
                    found[key] = file[name]
    return found


def killed(recipe, data, out, seconds, rng):
    """Runs a recipe to its end, killing it on the way; returns how often."""
    kills = 0
    while kills < KILLS:
        process = start(recipe, data, out)
        wait = rng.random() * seconds / 2
        # Half of them while training goes on, where most is to lose.
        if rng.random() < 0.5:
            known = _files(out)
            while process.poll() is None and known == _files(out):
                time.sleep(0.002)
            wait = rng.random() * 0.3
        _wait(process, wait)
        process.kill()
        code = process.wait()
        assert code in (0, -signal.SIGKILL), said(out)
        if code == 0:
            return kills
        kills += 1
    assert start(recipe, data, out).wait() == 0, said(out)
    return kills


def said(out):
    return pathlib.Path(f"{out}.txt").read_text()[-3000:]


def _files(out):
    return sorted(out.rglob("step_*.npz"))


def _wait(process, seconds):
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_killed_at_any_moment(recipe, tmp_path):
    """From the first import to the last file: equal to the bit."""
    data = tmp_path / "data"
    data.mkdir()
    idx_files(data)
    whole, broken = tmp_path / "whole", tmp_path / "killed"
    seed = int.from_bytes(os.urandom(4), "big")
    begun = time.monotonic()
    assert start(recipe, data, whole).wait() == 0, said(whole)
    seconds = time.monotonic() - begun
    kills = killed(recipe, data, broken, seconds, random.Random(seed))
    logger.info("%s: %d kills", recipe, kills)
    assert kills > 1
    expected, found = state(whole), state(broken)
    assert expected.keys() == found.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(
            found[key], array, err_msg=f"{key}, seed {seed}"
        )
