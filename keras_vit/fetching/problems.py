"""The error of everything that keeps a file from being fetched."""

import contextlib
import errno
import pathlib
import typing

FULL = (errno.ENOSPC, errno.EDQUOT)


class FetchError(OSError):
    """A file that could not be fetched, and what to do about it."""


def problem(what: str, expected: str, received: str, advice: str) -> FetchError:
    """Returns an error in the four parts that all errors here have."""
    return FetchError(
        f"{what} Expected: {expected}. Received: {received}. {advice}"
    )


def disk_problem(path: pathlib.Path, error: OSError) -> FetchError:
    """Returns the error of a cache that cannot be written."""
    if error.errno in FULL:
        return full_disk(path, None, str(error))
    return problem(
        "Cannot write to the cache.",
        "a folder that this user may write to",
        f"{error}, for {path}",
        "Set the environment variable KERAS_VIT_HOME to another folder.",
    )


@contextlib.contextmanager
def disk_errors(path: pathlib.Path) -> typing.Iterator[None]:
    """Turns an error of the file system into one that says what to do."""
    try:
        yield
    except FetchError:
        raise
    except OSError as error:
        raise disk_problem(path, error) from error


def full_disk(
    path: pathlib.Path, missing: int | None, received: str
) -> FetchError:
    """Returns the error of a disk without room for the rest of a file."""
    room = "room" if missing is None else f"{missing:,} free bytes"
    return problem(
        "The disk is full.",
        f"{room} for {path}",
        received,
        "Free some, and fetch it again: what has come so far is kept as "
        "*.part and gone on with. Or set KERAS_VIT_HOME to a larger disk.",
    )


class AgainError(Exception):
    """A failure that may pass.

    Attributes:
        wait: Seconds that the server asks to wait, or `None`.
    """

    def __init__(self, reason: typing.Any, wait: float | None = None):
        super().__init__(str(reason))
        self.wait = wait
