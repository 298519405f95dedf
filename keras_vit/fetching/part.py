"""An unfinished download beside its place, and what is known about it."""

import json
import os
import pathlib
import typing

from keras_vit.fetching.problems import disk_errors


class Part:
    """`NAME.part`, and `NAME.part.json` with notes on where it comes from.

    The notes are what makes it safe to go on after a kill: a part whose
    server gave no validator, or whose notes are lost, is fetched anew.
    """

    def __init__(self, target: pathlib.Path):
        self.target = target
        self.path = target.with_name(f"{target.name}.part")
        self._notes = target.with_name(f"{target.name}.part.json")

    @property
    def size(self) -> int:
        """Bytes that have come."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def notes(self) -> dict[str, typing.Any]:
        """What the server said: `url`, `validator`, `size`, `checks`."""
        try:
            notes = json.loads(self._notes.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return notes if isinstance(notes, dict) else {}

    def start(self, notes: dict[str, typing.Any]) -> None:
        """Notes on the bytes that come; they are written before these."""
        self.path.unlink(missing_ok=True)
        self._notes.write_text(json.dumps(notes), "utf-8")

    def open(self) -> typing.BinaryIO:
        """Opens it for the bytes that follow."""
        return open(self.path, "ab")

    def discard(self) -> None:
        """Forgets all of it."""
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)

    def place(self) -> None:
        """Puts the whole file into its place: there now, or after a crash."""
        with disk_errors(self.path):
            with self.open() as file:
                os.fsync(file.fileno())
            os.replace(self.path, self.target)
        self._notes.unlink(missing_ok=True)
