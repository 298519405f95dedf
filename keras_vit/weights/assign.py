"""Tensors into variables by the rows of a layout, all or nothing."""

import fnmatch
import typing

import numpy as np

from keras_vit.checks import did_you_mean
from keras_vit.weights.transforms import Rule
from keras_vit.weights.transforms import rules_of


class Report(typing.NamedTuple):
    """What became of a checkpoint.

    `used` are names of the file, `ignored` those left out by pattern;
    `resized` are variables of ours that were resampled for another image or
    patch size, `initialised` those of a new head.
    """

    layout: str
    prefix: str
    used: list[str]
    ignored: list[str]
    resized: list[str] = []
    initialised: list[str] = []

    def after(self, old: typing.Any, new: typing.Any) -> "Report":
        """Returns the report of model `new`, made from `old`."""
        before = {v.path: tuple(v.shape) for v in old.weights}
        changed = [
            v.path for v in new.weights if before.get(v.path) != tuple(v.shape)
        ]
        heads = [path for path in changed if path.startswith("head")]
        return self._replace(
            resized=[path for path in changed if path not in heads],
            initialised=heads,
        )

    def __str__(self):
        return (
            f"{self.layout} layout, prefix {self.prefix!r}: {len(self.used)} "
            f"tensors used, {len(self.ignored)} ignored, "
            f"{len(self.resized)} resized, {len(self.initialised)} initialised"
        )


def plan(reading, variables: typing.Mapping[str, tuple]) -> list[Rule]:
    """Returns one rule for each variable, names in full.

    Args:
        reading: The file, as `describe.Reading`.
        variables: Our paths and their shapes.

    Raises:
        ValueError: A variable without a tensor, or a tensor that no rule and
            no pattern of the layout knows; all are listed.
    """
    blocks = [path for path in variables if path.startswith("block_")]
    depth = sum(path.endswith("/norm_1/gamma") for path in blocks)
    filled, chosen = set(), []
    for rule in rules_of(reading.layout, depth):
        rule = rule._replace(theirs=tuple(map(reading.name, rule.theirs)))
        ours = set(rule.ours)
        there = all(name in reading.tensors for name in rule.theirs)
        if there and ours <= variables.keys() and not ours & filled:
            filled |= ours
            chosen.append(rule)
    _check_complete(reading, variables.keys() - filled, chosen)
    return chosen


def ignored_names(reading, used: set[str]) -> tuple[list[str], list[str]]:
    """Splits the names that are not used into ignored and unknown ones."""
    ignored, unknown = [], []
    for name in sorted(set(reading.tensors) - used):
        # Under a prefix are the weights: what stands beside them (`^`) is not.
        inside = reading.prefix and name.startswith(reading.prefix)
        known = any(
            fnmatch.fnmatchcase(name, reading.name(pattern))
            for pattern in reading.layout.ignored
            if not (inside and pattern[0] == "^")
        )
        (ignored if known else unknown).append(name)
    return ignored, unknown


def _check_complete(reading, missing, chosen):
    used = {name for rule in chosen for name in rule.theirs}
    _, unknown = ignored_names(reading, used)
    if not missing and not unknown:
        return
    lines = [f"no tensor for {path}" for path in sorted(missing)]
    lines += [
        f"unknown tensor {name} {tuple(reading.tensors[name].shape)}"
        for name in unknown
    ]
    more = f" and {len(lines) - 10} more" if len(lines) > 10 else ""
    hint = did_you_mean(unknown[0], used) if unknown and missing else ""
    raise ValueError(
        f"This file is not what its layout says. Expected: every tensor of "
        f"the {reading.layout.name} layout and no other. Received: "
        f"{'; '.join(lines[:10])}{more}.{hint}"
    )


def arrays(reading, rules, variables, config):
    """Yields `(path, array)` for every variable, one rule in memory.

    A tensor has the right shape if it is what would be saved: many a wrong
    one could be reshaped to fit, as Flax's query to its output projection.

    Raises:
        ValueError: A shape that does not fit, or values that are not finite.
    """
    for rule in rules:
        shapes = [variables[path] for path in rule.ours]
        theirs = [_read(reading, name) for name in rule.theirs]
        try:
            values = rule.load(theirs, shapes)
        except ValueError as error:
            _refuse_shape(rule, theirs, shapes, error)
        if [tuple(value.shape) for value in values] != shapes:
            _refuse_shape(rule, theirs, shapes)
        back = rule.save(values, config)
        if [_sides(a) for a in back] != [_sides(a) for a in theirs]:
            _refuse_shape(rule, theirs, shapes)
        yield from zip(rule.ours, values, strict=True)


def _sides(array):
    """The shape without axes of size one, which libraries put in or leave."""
    return [size for size in array.shape if size != 1]


def _read(reading, name):
    array = reading.tensors[name].read().astype("float32", copy=False)
    if not np.isfinite(array).all():
        raise ValueError(
            f"Some weights are not numbers. Expected: finite values. "
            f"Received: {int((~np.isfinite(array)).sum())} NaN or infinite "
            f"ones in {name}. Fetch the file again."
        )
    return array


def _refuse_shape(rule, theirs, shapes, cause=None):
    expected = [
        f"{p} {tuple(s)}" for p, s in zip(rule.ours, shapes, strict=True)
    ]
    received = [
        f"{n} {a.shape}" for n, a in zip(rule.theirs, theirs, strict=True)
    ]
    raise ValueError(
        f"A tensor has the wrong shape. Expected: what makes "
        f"{', '.join(expected)}. Received: {', '.join(received)}."
    ) from cause
