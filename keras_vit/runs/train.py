"""Training that survives: `fit` in pieces, each with a checkpoint."""

import csv
import io
import json
import logging
import math
import os
import pathlib

import keras

from keras_vit.devices import Devices
from keras_vit.runs.generators import generator_states
from keras_vit.runs.generators import restore_generators
from keras_vit.runs.settings import check_same_run
from keras_vit.runs.settings import check_settings
from keras_vit.runs.state import folder_of
from keras_vit.runs.state import load_state
from keras_vit.runs.state import save_state

logger = logging.getLogger("keras_vit")


def train(
    model,
    batches,
    steps,
    directory,
    every=500,
    facts=None,
    devices=None,
    **fit_options,
):
    """Trains a compiled model for a number of steps, whatever happens.

    Plain `model.fit`, whose epochs are pieces of `every` steps. After each the
    whole state goes to `directory`: weights, optimizer, seeds, history. Called
    again after a kill at any moment it goes on from the last checkpoint, with
    the batches that would have come next, to the same weights.

    `directory` has `run.json` (what was trained, with what), `log.csv` (a row
    per piece), `curves.png` at the end (with matplotlib) and `checkpoints/`.

    With an optimizer of `gradient_accumulation_steps=n` each batch is fed in
    `n` parts, one after another, for a step: memory for a part is enough.

    Args:
        model: A compiled `keras.Model`.
        batches: A `data.Batches`, or anything with `stream(start)` that yields
            the batches of step `start` and on, always the same.
        steps: Int, optimizer steps in all.
        directory: Of this run alone.
        every: Int, steps from checkpoint to checkpoint; it divides `steps`.
        facts: Optional dict for `run.json`, such as the arguments.
        devices: What `use_devices` returned: each process trains on its share
            of a batch, and one writes.
        fit_options: Of `fit`: `validation_data`, `callbacks`, `verbose`.

    Returns:
        `{name: [value per piece]}`, of the whole run.

    Raises:
        FloatingPointError: The loss is no number; the last checkpoint, made
            before, is kept.
        ValueError: The directory holds a run of another model or with other
            settings, the model is not built or not compiled, `every` does not
            divide `steps`, or the number of parts and devices a batch.

    Example:
    ```python
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    model.compile(keras.optimizers.SGD(0.01), keras_vit.Crossentropy())
    images = keras_vit.load_images(keras_vit.sample_images(), model)
    images = keras_vit.data.LabelledImages(images, np.arange(10), model.labels)
    batches = keras_vit.data.Batches(images, 5, 28, augment="shift")
    keras_vit.train(model, batches, 4, "runs/example", every=2, verbose=0)
    ```
    """
    check_settings(model, steps, every)
    directory = pathlib.Path(directory)
    devices = devices or Devices("any")
    devices.prepare(model)
    with devices.scope():
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        done, saved = load_state(folder_of(directory), model)
    history = saved.get("history", {})
    if done:
        check_same_run(
            directory / "run.json", _describe(model, steps, every, facts), done
        )
        logger.info("%s: going on from step %d of %d", directory, done, steps)
    elif devices.writer:
        _write(directory / "run.json", _describe(model, steps, every, facts))
    keeper = _Keeper(directory, history, every, steps, done, devices.writer)
    keeper.generators = saved.get("generators", {})
    if done < steps:
        stream = devices.share(batches).stream(done)
        _fit(model, stream, keeper, devices, fit_options)
    else:
        # As `fit` does at its end: a moving average becomes the weights.
        model.optimizer.finalize_variable_values(model.trainable_variables)
    if devices.writer:
        _draw(directory, history)
    return history


def _fit(model, stream, keeper, devices, options):
    others = options.pop("callbacks", ())
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    parts = optimizer.gradient_accumulation_steps or 1
    if parts > 1 and not devices.accumulates:
        raise ValueError(
            f"Keras gathers no gradients under a strategy of TensorFlow. "
            f"Expected: one device, or gradient_accumulation_steps=None. "
            f"Received: {devices} and {parts}. Set KERAS_BACKEND=jax."
        )
    try:
        model.fit(
            _in_parts(stream, parts, devices.replicas // devices.processes),
            steps_per_epoch=keeper.every * parts,
            epochs=keeper.steps // keeper.every,
            initial_epoch=keeper.done // keeper.every,
            # The keeper before the rest: another may swap averages in.
            callbacks=[*devices.callbacks(), keeper, *others],
            shuffle=False,  # the stream is
            **options,
        )
    finally:
        stream.close()


def _in_parts(stream, parts, replicas):
    """Yields each batch as so many smaller ones."""
    for batch in stream:
        size = len(batch[0])
        if size % (parts * max(replicas, 1)):
            raise ValueError(
                f"Parts of a batch weigh alike. Expected: a batch size that "
                f"is a multiple of gradient_accumulation_steps={parts} times "
                f"{replicas} devices. Received: {size}."
            )
        for first in range(0, size, size // parts):
            rows = slice(first, first + size // parts)
            yield tuple(array[rows] for array in batch)


class _Keeper(keras.callbacks.Callback):
    """Writes the state at the end of each piece, unless it is spoilt."""

    def __init__(self, directory, history, every, steps, done, writer):
        super().__init__()
        self.directory = directory
        self.history = history
        self.every, self.steps, self.done = every, steps, done
        self.writer = writer
        self.generators = {}
        self._fresh = True

    def on_epoch_begin(self, epoch, logs=None):
        self._fresh = True

    def on_train_batch_begin(self, batch, logs=None):
        if self._fresh:
            # What starts a piece, such as torch's loader, draws as well.
            restore_generators(self.generators)
            self._fresh = False

    def on_epoch_end(self, epoch, logs=None):
        logs = {k: float(v) for k, v in (logs or {}).items()}
        last, self.done = self.done, min((epoch + 1) * self.every, self.steps)
        if not math.isfinite(logs.get("loss", 0.0)):
            raise FloatingPointError(
                f"The loss is no number any more. Expected: a finite loss. "
                f"Received: {logs['loss']} in steps {last + 1} to {self.done}. "
                f"The checkpoint of step {last} is whole: lower the learning "
                f"rate, clip gradients or lengthen the warm-up, and go on."
            )
        for name, value in {"step": self.done, **logs}.items():
            self.history.setdefault(name, []).append(value)
        self.generators = generator_states()
        if self.writer:
            self._save(last)

    def _save(self, last):
        try:
            save_state(
                folder_of(self.directory),
                self.done,
                self.model,
                {"history": self.history},
                self.generators,
            )
            _write(self.directory / "log.csv", _table(self.history))
        except OSError as error:
            if self.done == self.steps:
                raise
            logger.warning(
                "step %d could not be saved (%s); training goes on, and would "
                "be resumed from the last whole checkpoint in %s",
                self.done,
                error,
                folder_of(self.directory),
            )


def _describe(model, steps, every, facts):
    config = getattr(model, "config", None)
    return json.dumps(
        {
            "steps": steps,
            "every": every,
            "model": model.name,
            "config": None if config is None else config.to_dict(),
            "optimizer": _plain(model.optimizer.get_config()),
            "dtype": model.dtype_policy.name,
            "backend": keras.config.backend(),
            "keras": keras.__version__,
            **(facts or {}),
        },
        indent=2,
        default=str,
    )


def _plain(config):
    # The rates of every variable are told by `decay` in the facts of a recipe.
    return {k: v for k, v in config.items() if k not in ("scales", "decayed")}


def _table(history):
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(history)
    rows.writerows(zip(*history.values(), strict=True))
    return stream.getvalue()


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _draw(directory, history):
    from keras_vit.analysis.plots import curves_figure

    curves = {k: v for k, v in history.items() if k != "step"}
    try:
        figure = curves_figure(curves, directory.name)
    except (ImportError, ValueError):
        return  # no matplotlib, or nothing to draw: log.csv has the numbers
    figure.savefig(directory / "curves.png")
