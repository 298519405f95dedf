"""Whether a run can begin, and whether it is the one that was begun."""

import json
import warnings

from keras_vit.checks import check_at_least

# What may change between a kill and the next start: names that count models,
# where it runs, what is printed. More steps are checked by the schedule.
FREE = {
    "accumulate",
    "backend",
    "cache",
    "devices",
    "keras",
    "model",
    "on_error",
    "out",
    "steps",
    "verbose",
}


def check_same_run(path, description, done):
    """Raises if a directory was begun with other settings.

    Args:
        path: Of `run.json`.
        description: What would be written there now, as JSON.
        done: Int, steps that have been made.

    Raises:
        ValueError: A setting differs: going on would give neither run.
    """
    try:
        begun = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return  # the checkpoints alone are enough
    now = json.loads(description)
    changed = [
        f"{name}={now[name]!r} (begun with {begun[name]!r})"
        for name in sorted(begun.keys() & now.keys() - FREE)
        if _plain(begun[name]) != _plain(now[name])
    ]
    if done % now["every"] and not changed:
        changed = [f"every={now['every']} after step {done}"]
    if changed:
        raise ValueError(
            f"This run was begun with other settings. Expected: those of "
            f"{path}. Received: {'; '.join(changed)}. Use another directory, "
            f"or the settings that began this one."
        )


def check_settings(model, steps, every):
    """Raises unless there is something to train, in whole pieces."""
    check_at_least("steps", steps, 1)
    check_at_least("every", every, 1)
    if steps % every:
        raise ValueError(
            f"Pieces are of one length. Expected: steps a multiple of "
            f"every={every}. Received: steps={steps}. The next is "
            f"{steps + -steps % every}."
        )
    if not model.built:
        raise ValueError(
            "Only a built model can go on where it was. Expected: a model "
            "with its weights. Received: one without. Call it once on a "
            "batch, or give it an Input."
        )
    if not model.compiled:
        raise ValueError(
            "There is nothing to train with. Expected: a compiled model. "
            "Received: one without an optimizer. Call compile first."
        )
    _check_schedule(model, steps)


def _check_schedule(model, steps):
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    settings = optimizer.get_config()
    scheduled = isinstance(settings["learning_rate"], dict)
    parts = settings["gradient_accumulation_steps"]
    if parts and scheduled and "scales" not in settings:
        warnings.warn(
            f"Keras' schedules count the parts of a step. Expected: an "
            f"optimizer of `layer_decay`, which counts steps. Received: "
            f"{type(optimizer).__name__} with gradient_accumulation_steps="
            f"{parts}. Use `layer_decay(optimizer, model, 1.0)`, or give the "
            f"schedule {parts * steps} steps.",
            UserWarning,
            stacklevel=4,
        )


def _plain(value):
    # An optimizer's name counts those of its process.
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k != "name"}
    return value
