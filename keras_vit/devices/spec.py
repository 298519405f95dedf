"""What `"gpu:4"` and `"model=4,data=2"` mean."""

import re
import typing

KINDS = ("cpu", "gpu", "tpu")


class Spec(typing.NamedTuple):
    """Devices asked for: a kind and a number, or the sides of a mesh.

    `kind` is `None` for whatever there is, `count` `None` for all of them.
    """

    kind: str | None = None
    count: int | None = None
    model: int = 1
    data: int | None = None


def parse(text: str) -> Spec:
    """Returns the meaning of a text for `use_devices`.

    Raises:
        ValueError: It has none.
    """
    if text == "auto":
        return Spec()
    kind = re.fullmatch(r"(cpu|gpu|tpu)(?::([1-9]\d*))?", text)
    if kind:
        return Spec(kind[1], int(kind[2]) if kind[2] else None)
    sides = dict(re.findall(r"(?:^|,)(model|data)=([1-9]\d*)(?=,|$)", text))
    parts = text.split(",")
    if sides and len(sides) == len(parts):
        data = int(sides["data"]) if "data" in sides else None
        return Spec(model=int(sides.get("model", 1)), data=data)
    raise ValueError(
        f"These are no devices. Expected: 'auto', 'cpu', 'gpu' or 'tpu', with "
        f"a number after a colon if not all of them ('gpu:4'), or the sides "
        f"of a mesh ('model=4,data=2'). Received: {text!r}."
    )


def check_count(wanted, found, kind):
    """Raises unless there are so many devices."""
    if wanted > len(found):
        raise ValueError(
            f"There are not so many devices. Expected: {wanted} of kind "
            f"{kind}. Received: {len(found)}, {', '.join(map(str, found))}."
        )
