"""Plain values in nested frozen dataclasses, which read and write as JSON."""

import dataclasses
import json
import typing

from keras_vit.checks import did_you_mean


class NestedConfig:
    """What a config with parts can do; the parts are fields like the others.

    Field names are unique over the config and its parts, so a plain name says
    where a value belongs.
    """

    def replace(self, **changes: typing.Any) -> typing.Self:
        """Returns a copy with fields replaced, nested ones by plain name.

        `config.replace(num_classes=10, stochastic_depth_rate=0.1)`. An
        `image_size` of `None` means any size that the model can take.
        """
        if "image_size" in changes:
            size = changes.pop("image_size")
            changes["any_image_size"] = size is None
            if size is not None:
                changes["image_size"] = size
        top, nested = {}, {}
        for name, value in changes.items():
            owner = _owner(type(self), name)
            if owner is None:
                top[name] = value
            else:
                nested.setdefault(owner, {})[name] = value
        for owner, values in nested.items():
            part = top.get(owner, getattr(self, owner))
            top[owner] = dataclasses.replace(part, **values)
        return dataclasses.replace(self, **top)  # pyright: ignore

    def to_dict(self) -> dict:
        """Returns nested dicts and lists of plain values, JSON's types."""
        return json.loads(json.dumps(_as_dict(self)))

    @classmethod
    def from_dict(cls, values: dict) -> typing.Self:
        """The inverse of `to_dict`. Unknown fields raise."""
        return _from_dict(cls, values)

    def __str__(self):
        return json.dumps(_as_dict(self), indent=2)


def _as_dict(config) -> dict:
    return dataclasses.asdict(config)


def parts_of(cls: typing.Any) -> dict[str, type]:
    """Returns field name and class of each part of a config class."""
    return {
        field.name: type(field.default)
        for field in dataclasses.fields(cls)
        if dataclasses.is_dataclass(field.default)
    }


def _field_names(cls):
    return [f.name for f in dataclasses.fields(cls)]


def field_names(cls: typing.Any) -> list[str]:
    """Returns every field of a config class and of its parts."""
    parts = parts_of(cls).values()
    return _field_names(cls) + [n for p in parts for n in _field_names(p)]


def _owner(cls, name):
    """The part that holds a field; `None` if it is the config itself."""
    if name in _field_names(cls):
        return None
    parts = parts_of(cls)
    for owner, part in parts.items():
        if name in _field_names(part):
            return owner
    known = field_names(cls)
    raise ValueError(
        f"Unknown field. Expected: one of {', '.join(sorted(known))}. "
        f"Received: {name!r}.{did_you_mean(name, known)}"
    )


def _from_dict(cls, values):
    known = _field_names(cls)
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(
            f"Cannot read this {cls.__name__}: it has fields that this "
            f"version of keras_vit does not know. Expected: "
            f"{', '.join(known)}. Received also: {', '.join(unknown)}. If a "
            f"newer version wrote it, upgrade with "
            f"`pip install -U keras-vit-garden`."
        )
    values = dict(values)
    for name, part in parts_of(cls).items():
        if isinstance(values.get(name), dict):
            values[name] = _from_dict(part, values[name])
    fields: dict[str, typing.Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
    }
    return cls(**fields)
