"""Finding the weights among what a training script saved with them."""

import typing

from keras_vit.weights.inert_pickle import Record
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import shown
from keras_vit.weights.torch_names import View

# The first that is there wins. DINO keeps student and teacher, and publishes
# the teacher; the average of a DeiT (`model_ema`) is not what DeiT evaluates.
WRAPPERS = (
    "teacher",
    "model",
    "state_dict",
    "model_state_dict",
    "model_ema",
    "state_dict_ema",
)
# Left by DistributedDataParallel, torch.compile and DINO's wrapper.
PREFIXES = ("module.", "_orig_mod.", "backbone.")
MAX_DEPTH = 32
MAX_TENSORS = 100_000


class Weights(typing.NamedTuple):
    """Tensors by name, plain values, and the names of all that was left."""

    views: dict[str, View]
    metadata: dict[str, typing.Any]
    ignored: list[str]


def find_weights(path, root: typing.Any) -> Weights:
    """Takes the weights out of what a pickle held.

    1. An object of a TorchScript archive is its tensors, joined by dots.
    2. A dictionary with an entry of `WRAPPERS` that holds tensors is that
       entry, again and again; what stood beside it is ignored.
    3. Entries that are no tensors are ignored.
    4. A prefix of `PREFIXES` that all names have is cut off, again and again.
       `backbone.` of a teacher is cut off where it is, and what has none (its
       projection head) is ignored.

    Raises:
        CheckpointError: There is no tensor; what there is, is listed.
    """
    if isinstance(root, Record):
        root = dict(_attributes(root))
    outer, metadata, ignored = "", {}, []
    values = root if isinstance(root, dict) else {}
    while (key := _wrapper(values)) is not None:
        beside = {k: v for k, v in values.items() if k != key}
        metadata |= _plain(beside)
        ignored += [outer + str(k) for k in beside]
        values, outer = values[key], f"{outer}{key}."
    views = {n: v for n, v in values.items() if _is_tensor(n, v)}
    rest = {k: v for k, v in values.items() if k not in views}
    if not views:
        kind = "" if isinstance(root, dict) else f"a {type(root).__name__} of "
        raise problem(
            path,
            "There are no weights in this file.",
            f"a dictionary of tensors, or one under {', '.join(WRAPPERS)}",
            f"{kind}{shown(map(repr, values))}",
            "Save the state_dict() of the model.",
        )
    metadata |= _plain(rest)
    ignored += [outer + str(k) for k in rest]
    views, left = _without_prefixes(views, "teacher." in outer)
    return Weights(views, metadata, ignored + [outer + n for n in left])


def _is_tensor(name, value):
    return isinstance(name, str) and isinstance(value, View)


def _wrapper(values, depth=0):
    """The key of the entry that holds the weights, or `None`."""
    for key in WRAPPERS:
        inner = values.get(key)
        if isinstance(inner, dict) and depth < MAX_DEPTH:
            direct = any(_is_tensor(n, v) for n, v in inner.items())
            if direct or _wrapper(inner, depth + 1) is not None:
                return key
    return None


def _plain(values):
    plain = (str, int, float, bool)
    return {
        k: v
        for k, v in values.items()
        if isinstance(k, str) and isinstance(v, plain)
    }


def _without_prefixes(views, from_teacher):
    left = []
    while True:
        cut = next(
            (p for p in PREFIXES if all(n.startswith(p) for n in views)), None
        )
        if cut is None and from_teacher:
            cut = next((PREFIXES[-1] for n in views if _in_backbone(n)), None)
        if cut is None:
            return views, left
        left += [n for n in views if not n.startswith(cut)]
        views = {
            n.removeprefix(cut): v
            for n, v in views.items()
            if n.startswith(cut)
        }


def _in_backbone(name):
    return name.startswith(PREFIXES[-1])


def _attributes(root):
    """Yields `(name, tensor)` of an object and of the objects in it."""
    todo, seen = [("", root, 0)], 0
    while todo:
        prefix, record, depth = todo.pop()
        values = record.state if isinstance(record.state, dict) else {}
        for name, value in values.items():
            seen += 1
            if depth > MAX_DEPTH or seen > MAX_TENSORS:
                return
            if isinstance(value, View):
                yield f"{prefix}{name}", value
            elif isinstance(value, Record):
                todo.append((f"{prefix}{name}.", value, depth + 1))
