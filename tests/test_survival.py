"""Runs that are killed, run out of disk, or out of numbers."""

import errno
import json
import logging
import multiprocessing
import os
import pathlib
import random
import signal
import time

import keras
import killed_run
import numpy as np
import pytest

import keras_vit
from keras_vit.runs import state

KILLS = 9  # on each of three backends


def same(model, expected):
    found = killed_run.weights(model)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Weights and history of a run that nobody disturbs."""
    directory = tmp_path_factory.mktemp("whole")
    model, history = killed_run.run(directory)
    return killed_run.weights(model), history, directory


def test_files_of_a_run(whole):
    _, history, directory = whole
    assert history["step"] == list(range(3, 25, 3))
    rows = (directory / "log.csv").read_text().splitlines()
    assert rows[0] == ",".join(history)
    assert len(rows) == 9
    facts = json.loads((directory / "run.json").read_text())
    assert facts["steps"] == 24
    assert facts["config"]["depth"] == 1
    assert facts["backend"] == keras.config.backend()
    assert (directory / "curves.png").stat().st_size > 5000
    kept = sorted(p.name for p in (directory / "checkpoints").iterdir())
    assert kept == ["step_000000021.npz", "step_000000024.npz"]


@pytest.mark.parametrize("stop", [3, 12, 21])
def test_goes_on_to_the_same_weights(stop, whole, tmp_path):
    """Bit-equal, history and averages included, in another process or not."""
    expected, history, _ = whole

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if (epoch + 1) * killed_run.EVERY == stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed_run.run(tmp_path, callbacks=[Stop()])
    model, again = killed_run.run(tmp_path)
    same(model, expected)
    assert again == history


def test_finished_runs_stay_finished(whole):
    expected, history, directory = whole
    before = (directory / "log.csv").stat().st_mtime_ns
    model, again = killed_run.run(directory)
    same(model, expected)
    assert again == history
    assert (directory / "log.csv").stat().st_mtime_ns == before


def test_killed_at_any_moment(whole, tmp_path):
    """SIGKILL, at random, until the run is through: nothing is lost."""
    expected, _, _ = whole
    directory, result = tmp_path / "run", tmp_path / "result.npz"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["keras_vit"])
    rng = random.Random(0)
    kills, steps = 0, []
    while not result.exists():
        process = context.Process(
            target=killed_run.child, args=(directory, result)
        )
        process.start()
        if len(steps) < KILLS:
            done = newest(directory)
            deadline = time.monotonic() + 120
            # The first checkpoint beyond what there was, and a little more.
            while newest(directory) == done and process.is_alive():
                time.sleep(0.001)
                assert time.monotonic() < deadline
            time.sleep(rng.random() * 0.02)
            process.kill()
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
        steps.append(newest(directory))
        assert len(steps) <= KILLS + 1
    assert steps == sorted(steps)
    assert kills >= 7
    with np.load(result) as file:
        found = [file[name] for name in file.files]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def newest(directory):
    names = sorted(p.stem for p in directory.glob("checkpoints/*.npz"))
    return int(names[-1].removeprefix("step_")) if names else 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_checkpoint(damage, whole, tmp_path, caplog):
    """The one before it is taken, and said so."""
    expected, _, _ = whole
    killed_run.run(tmp_path, steps=12)
    path = tmp_path / "checkpoints" / "step_000000012.npz"
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 255
    path.write_bytes({"cut": data[:-200], "empty": b""}.get(damage, data))
    (tmp_path / "checkpoints" / "step_000000015.part").write_bytes(b"half")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        model, _ = killed_run.run(tmp_path)
    assert "step_000000012.npz is damaged" in caplog.text
    same(model, expected)
    assert not list(tmp_path.rglob("*.part"))


def test_full_disk(whole, tmp_path, caplog, monkeypatch):
    """Training goes on; the last whole checkpoint stays; it is said."""
    expected, _, _ = whole
    real, calls = os.replace, []

    def full(source, target):
        calls.append(target)
        if 3 <= len(calls) <= 6:  # pieces 2 and 3
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(state.os, "replace", full)
    with caplog.at_level(logging.WARNING, "keras_vit"):
        model, _ = killed_run.run(tmp_path)
    assert "could not be saved" in caplog.text
    assert "No space left" in caplog.text
    same(model, expected)
    assert not list(tmp_path.rglob("*.part"))


def test_full_disk_at_the_end(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    killed_run.run(tmp_path, steps=3)
    monkeypatch.setattr(state.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        killed_run.run(tmp_path, steps=6)
    assert newest(tmp_path) == 3


class Poisoned:
    """Batches that are no numbers from a step on."""

    def __init__(self, step):
        self.step = step

    def stream(self, start):
        inner = killed_run.batches().stream(start)
        for i, (x, y) in enumerate(inner, start):
            yield x, y * (np.nan if i >= self.step else 1)


def test_loss_that_is_no_number(tmp_path):
    """D01: stops, names the steps, and keeps the checkpoint before."""
    model = killed_run.made()
    with pytest.raises(FloatingPointError, match="steps 7 to 9.*step 6 is"):
        keras_vit.train(model, Poisoned(7), 24, tmp_path, every=3, verbose=0)
    assert newest(tmp_path) == 6


def test_runs_of_other_models(tmp_path):
    killed_run.run(tmp_path, steps=3)
    model = killed_run.made()
    model.compile(keras.optimizers.SGD(0.1), keras_vit.Crossentropy())
    with pytest.raises(ValueError, match="of another model.*another directory"):
        keras_vit.train(model, killed_run.batches(), 6, tmp_path, every=3)
    with pytest.raises(ValueError, match="every=5.*next is 25"):
        killed_run.run(tmp_path, every=5)
    schedule = keras_vit.WarmUp(0.1, 6, 1)
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=2)
    model.compile(optimizer, keras_vit.Crossentropy())
    with pytest.warns(UserWarning, match="accumulation_steps=2.*12 steps"):
        keras_vit.train(
            model, killed_run.batches(), 6, tmp_path / "two", 3, verbose=0
        )
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    model.compile(optimizer, keras_vit.Crossentropy())
    devices = keras_vit.devices.Devices("cpu", 2)
    devices.accumulates = False  # as of TensorFlow's strategies
    with pytest.raises(ValueError, match="replicas=2.*and 2. Set KERAS_BACK"):
        keras_vit.train(
            model, killed_run.batches(), 12, tmp_path / "3", 3, devices=devices
        )
    model = keras_vit.ViT(model.config)
    with pytest.raises(ValueError, match="compile first"):
        keras_vit.train(model, killed_run.batches(), 6, tmp_path, every=3)


def test_runs_with_other_settings(tmp_path):
    """What would give neither the old run nor the new one."""
    killed_run.run(tmp_path, steps=12, facts={"rate": 1.0, "out": "a"})
    again = {"steps": 24, "facts": {"rate": 1.0, "out": "b"}}
    with pytest.raises(ValueError, match="rate=2.0 .begun with 1.0."):
        killed_run.run(tmp_path, steps=24, facts={"rate": 2.0})
    with pytest.raises(ValueError, match="every=8.*begun with 3"):
        killed_run.run(tmp_path, **again, every=8)
    model = killed_run.made()
    optimizer = keras.optimizers.AdamW(0.1, use_ema=True, ema_momentum=0.9)
    optimizer = keras_vit.layer_decay(optimizer, model, 0.8)
    model.compile(optimizer, keras_vit.Crossentropy())
    with pytest.raises(ValueError, match="optimizer=.*0.1|of another model"):
        keras_vit.train(model, killed_run.batches(), 24, tmp_path, every=3)
    killed_run.run(tmp_path, **again)


def test_batches_that_devices_cannot_share(tmp_path):
    """TensorFlow would weigh the images of the smaller share more."""
    devices = keras_vit.devices.Devices("cpu", 4)
    with pytest.raises(ValueError, match="times 4 devices. Received: 6"):
        killed_run.run(tmp_path, devices=devices)


def test_only_one_process_writes(tmp_path):
    """G10: the others train alike."""
    other = keras_vit.devices.Devices("cpu", process=1)
    model, _ = killed_run.run(tmp_path / "quiet", devices=other)
    assert not pathlib.Path(tmp_path / "quiet").exists()
    assert model.optimizer.iterations == killed_run.STEPS
