"""Trying again, more and more patiently, what may work the next time."""

import email.utils
import logging
import random
import time
import typing

from keras_vit.fetching.problems import AgainError
from keras_vit.fetching.problems import problem

TRIES = 5  # in a row that bring less than ENOUGH
ENOUGH = 2**20  # bytes that show that a connection works
BASE_DELAY = 1.0  # seconds, doubled from try to try
MAX_DELAY = 60.0  # seconds; longer than any server may make us wait

logger = logging.getLogger("keras_vit")

T = typing.TypeVar("T")


def persist(
    attempt: typing.Callable[[], T],
    progress: typing.Callable[[], int],
    address: str,
    advice: str,
) -> T:
    """Calls `attempt` until it raises no `AgainError`.

    Args:
        attempt: What to try.
        progress: Returns the bytes that there are.
        address: What is fetched.
        advice: What to do when all was in vain.

    Raises:
        FetchError: It failed too often, or the server asks for too long a
            wait.
    """
    failures, most = 0, progress()
    while True:
        try:
            return attempt()
        except AgainError as again:
            reason = again
        # Beyond all that there ever was: bytes that are thrown away and come
        # again are no progress.
        moved = progress() - most >= ENOUGH
        most = max(most, progress())
        failures = 1 if moved else failures + 1
        wait = _delay(failures, reason.wait)
        if failures >= TRIES or wait > 2 * MAX_DELAY:
            raise problem(
                f"Cannot fetch {address}.",
                f"an answer within {TRIES} tries, each after at most "
                f"{MAX_DELAY:g} seconds",
                str(reason),
                advice,
            ) from reason
        logger.warning("%s: %s. Trying again.", address, reason)
        time.sleep(wait)


def _delay(failures, asked):
    """Seconds to wait; twice `MAX_DELAY` and more stands for never."""
    # Jitter: those that failed together shall not come back together.
    own = min(BASE_DELAY * 2 ** (failures - 1), MAX_DELAY)
    own *= random.uniform(0.5, 1.0)
    if asked is None:
        return own
    return asked + own if asked <= MAX_DELAY else float("inf")


def retry_after(header: str | None) -> float | None:
    """Returns the seconds that a `Retry-After` header asks for."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        date = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(date.timestamp() - time.time(), 0.0)
