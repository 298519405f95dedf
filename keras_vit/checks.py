"""Checks of plain values, each with an error that says what to do."""

import difflib
import typing


def as_pair(name: str, value: typing.Any) -> tuple[int, int]:
    """Returns `(height, width)` from an int or a pair of positive ints."""
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(is_int(v) and v > 0 for v in pair):
        raise ValueError(
            f"`{name}` is a size in pixels. Expected: a positive int or a "
            f"(height, width) pair of them. Received: {name}={value!r}."
        )
    return int(pair[0]), int(pair[1])


def check_image_size(image_size, patch_size):
    """Raises unless both sides of the image are whole numbers of patches."""
    for side, pixels, patch in zip(
        ("height", "width"), image_size, patch_size, strict=True
    ):
        if pixels % patch == 0:
            continue
        below = pixels // patch * patch
        near = [n for n in (below, below + patch) if n]
        raise ValueError(
            f"Cannot cut the image into whole patches. Expected: a {side} "
            f"that is a multiple of the patch size {patch}. Received: {side} "
            f"{pixels} in image size {tuple(image_size)}. The nearest legal "
            f"values are {' and '.join(map(str, near))}: resize or crop the "
            f"image, or take a variant with another patch size."
        )


def check_choice(name: str, value: typing.Any, choices: typing.Iterable[str]):
    """Raises unless `value` is one of the named choices."""
    if value not in choices:
        raise ValueError(
            f"Unknown `{name}`. Expected: one of {', '.join(choices)}. "
            f"Received: {name}={value!r}.{did_you_mean(str(value), choices)}"
        )


def check_at_least(name, value, least):
    """Raises unless `value` is an int of at least `least`."""
    if not is_int(value) or value < least:
        raise ValueError(
            f"`{name}` is a count. Expected: an int of at least {least}. "
            f"Received: {name}={value!r}."
        )


def check_rate(name, value):
    """Raises unless `value` is in `[0, 1)`."""
    if not 0 <= value < 1:
        raise ValueError(
            f"`{name}` is the part that is dropped. Expected: a number in "
            f"[0, 1). Received: {name}={value!r}."
        )


def did_you_mean(word: str, known: typing.Iterable[str]) -> str:
    """Returns a sentence with the nearest known names, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def is_int(value: typing.Any) -> bool:
    """Whether `value` is an integer of any kind, NumPy's included."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def check_config(model: type, config: typing.Any) -> None:
    """Raises unless a model can be built from `config`.

    Args:
        model: A class with a `config_class`.
        config: What it was given.
    """
    expected = model.config_class
    if not isinstance(config, expected):
        name = f"keras_vit.{model.__name__}"
        make = expected.__name__.removesuffix("Config").lower() + "_config"
        raise TypeError(
            f"A model is built from a config. Expected: a "
            f"{expected.__name__}. Received: {config!r}. Write "
            f"{name}(keras_vit.{make}(...)) for a new model, or "
            f"{name}.from_preset(...) for a trained one."
        )


def check_labels(labels: typing.Sized | None, num_classes: int) -> None:
    """Raises unless there is one label for each class, or there are none."""
    if labels is not None and len(labels) != num_classes:
        raise ValueError(
            f"Every class needs one name. Expected: {num_classes} labels for "
            f"num_classes={num_classes}. Received: {len(labels)} labels."
        )
