"""How a checkpoint layout is written down: rows of names, nothing else."""

import typing

from keras_vit.config import ViTConfig


class Row(typing.NamedTuple):
    """One layer or variable of ours and the name it has in a layout.

    `kind` is a key of `transforms.KINDS`. `ours` is a layer (`norm`) or a
    variable (`class_token/token`); `{i}` counts blocks. `theirs` is one name,
    or several that hold one of ours between them (query, key and value). A
    name that ends in `_` is joined to `weight` without a separator. Where a
    layout has two names for one layer, `when(config)` tells whether this one
    is the one to save under.
    """

    kind: str
    ours: str
    theirs: str | tuple[str, ...]
    when: typing.Callable[[ViTConfig], bool] | None = None


class Layout(typing.NamedTuple):
    """A checkpoint layout: the same rows are read to load and to save.

    `marks` are names that tell the layout (all must be there, after the
    prefix); `prefixes` are tried in order. `ignored` are shell patterns of
    names that are not weights of the image model. `lacks` are variables of
    ours that a whole file may be without, although others of the layout have
    them. `defaults` are fields of `ViTConfig` that no tensor tells.
    """

    name: str
    dialect: str  # of transforms.SUFFIXES
    rows: tuple[Row, ...]
    marks: tuple[str, ...]
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    defaults: dict = {}
    reference: str = ""


IMAGENET = {
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
CLIP = {
    "mean": (0.48145466, 0.4578275, 0.40821073),
    "std": (0.26862954, 0.26130258, 0.27577711),
}


def with_names(layout: Layout, name: str, changes: dict, **fields) -> Layout:
    """Returns a layout with parts of its names replaced, in order."""

    def renamed(theirs):
        if isinstance(theirs, tuple):
            return tuple(map(renamed, theirs))
        for old, new in changes.items():
            theirs = theirs.replace(old, new)
        return theirs

    rows = tuple(r._replace(theirs=renamed(r.theirs)) for r in layout.rows)
    marks = tuple(map(renamed, layout.marks))
    return layout._replace(name=name, rows=rows, marks=marks, **fields)
