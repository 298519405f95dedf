"""One file over HTTP into the cache: once, whole, or to be continued."""

import contextlib
import http.client
import logging
import re
import shutil
import time

from keras_vit.fetching.address import WebFile
from keras_vit.fetching.checksums import Checks
from keras_vit.fetching.checksums import mismatch
from keras_vit.fetching.checksums import server_checks
from keras_vit.fetching.connection import RangeRefusedError
from keras_vit.fetching.connection import chunks
from keras_vit.fetching.connection import open_url
from keras_vit.fetching.part import Part
from keras_vit.fetching.problems import AgainError
from keras_vit.fetching.problems import disk_errors
from keras_vit.fetching.problems import full_disk
from keras_vit.fetching.problems import problem
from keras_vit.fetching.retrying import persist

PARTIAL = 206
PAGES = (b"<!doctype", b"<html", b"<head", b"<?xml", b"<body")
POINTER = b"version https://git-lfs"

logger = logging.getLogger("keras_vit")


def download(file: WebFile, checks: Checks) -> None:
    """Brings a file into its place in the cache.

    The bytes that came before a failure or a kill are kept as `NAME.part`
    and not fetched again. A second process waits for the first.

    Args:
        file: What and where to.
        checks: Checksums known beforehand; those of the server are added.

    Raises:
        FetchError: It cannot be had. Nothing is at its place then.
    """
    with _locked(file.target):
        if not file.target.is_file():
            _download(file, checks)


def _download(file, checks):
    part, start = Part(file.target), time.monotonic()
    wrong = ("", "")
    logger.info("Fetching %s.", file.address)
    for _ in range(2):
        persist(
            lambda: _attempt(file, part),
            lambda: part.size,
            file.address,
            f"Look at the network and the proxy (https_proxy), or put the "
            f"file itself at {file.target}.",
        )
        _refuse_pages(file, part)
        known = part.notes().get("checks", {}) | checks
        wrong = mismatch(part.path, known)
        if wrong is None:
            part.place()
            seconds = time.monotonic() - start
            logger.info("Fetched %s in %.1f s.", file.target, seconds)
            return
        part.discard()
        logger.warning("%s came with %s.", file.address, wrong[1])
    raise problem(
        f"The file from {file.address} is not the one that was published.",
        wrong[0],
        f"{wrong[1]}, twice",
        f"A proxy may have changed it, or the publisher: compare with the "
        f"page of the model. To use a copy of your own, put it at "
        f"{file.target}.",
    )


def _attempt(file, part):
    """Goes on with a part, or starts anew where that is not safe."""
    notes, offset = part.notes(), part.size
    if notes.get("url") != file.url or not notes.get("validator"):
        offset = 0
    if offset and offset == notes.get("size"):
        return
    headers = {}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        headers["If-Range"] = notes["validator"]
    try:
        response = open_url(file.url, file.address, headers)
    except RangeRefusedError:
        part.discard()
        raise
    with response:
        size = _begin(file, part, response, offset)
        _write(file, part, response, size)


def _begin(file, part, response, offset):
    """Makes the part ready for what comes; returns the size of the whole."""
    notes = {
        "url": file.url,
        "validator": _validator(response),
        "size": _whole_size(response),
        "checks": server_checks(response.headers),
    }
    with disk_errors(part.path):
        if response.status != PARTIAL:
            part.start(notes)
        elif not _continues(response, part.notes(), offset):
            part.discard()
            raise AgainError("other bytes than those asked for")
    _check_room(part, notes["size"])
    return notes["size"]


def _validator(response):
    """What tells this version of the file from any other one."""
    etag = response.headers.get("ETag") or ""
    # A weak one (W/"...") allows for other bytes of the same meaning.
    strong = etag if etag.startswith('"') else ""
    return strong or response.headers.get("Last-Modified")


def _whole_size(response):
    """Bytes of the whole file, or `None` if the server does not say."""
    if response.status == PARTIAL:
        total = (response.headers.get("Content-Range") or "").split("/")[-1]
        return int(total) if total.isdecimal() else None
    length = response.headers.get("Content-Length") or ""
    return int(length) if length.isdecimal() else None


def _continues(response, notes, offset):
    """Whether a partial answer follows on the bytes that there are."""
    start = re.match(
        r"bytes (\d+)-", response.headers.get("Content-Range") or ""
    )
    return (
        start is not None
        and int(start[1]) == offset
        and _validator(response) in (None, notes.get("validator"))
        and _whole_size(response) in (None, notes.get("size"))
    )


def _check_room(part, size):
    try:
        free = shutil.disk_usage(part.path.parent).free
    except OSError:  # not every file system says
        return
    if size is not None and size - part.size > free:
        missing = size - part.size
        raise full_disk(part.target, missing, f"{free:,} bytes")


def _write(file, part, response: http.client.HTTPResponse, size):
    from tqdm.auto import tqdm

    bar = tqdm(
        desc=file.target.name,
        total=size,
        initial=part.size,
        unit="B",
        unit_scale=True,
        delay=1,
        disable=None,  # where standard error is no terminal
    )
    with bar, disk_errors(part.path), part.open() as out:
        for chunk in chunks(response):
            out.write(chunk)
            bar.update(len(chunk))
    if size is not None and part.size != size:
        came = f"{part.size:,} of {size:,} bytes"
        if part.size > size:
            part.discard()
        raise AgainError(came)


def _refuse_pages(file, part):
    """Raises on what is sent, as 200 OK, in the place of weights."""
    with open(part.path, "rb") as opened:
        head = opened.read(512).lstrip().lower()
    if not head.startswith((*PAGES, POINTER)):
        return
    what = "a pointer of git LFS" if head.startswith(POINTER) else "a web page"
    part.discard()
    raise problem(
        f"This is not the address of a file of weights: {file.address}.",
        "the bytes of a file",
        what,
        "Take the address of the download itself. Behind a network that "
        "asks to log in, do so first.",
    )


@contextlib.contextmanager
def _locked(target):
    """Holds the lock of one file; a killed process leaves none behind."""
    import filelock

    lock = filelock.FileLock(f"{target}.lock")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=1)
        except filelock.Timeout:
            logger.info("Another process fetches %s: waiting.", target)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
