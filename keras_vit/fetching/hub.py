"""What of a repository of the hub is fetched: what a model needs."""

import json
import logging
import pathlib
import typing

from keras_vit.fetching.address import HubFiles
from keras_vit.fetching.checksums import given_checks
from keras_vit.fetching.checksums import mismatch
from keras_vit.fetching.problems import problem
from keras_vit.fetching.repository import Repository

CONFIGS = ("config.json", "preprocessor_config.json")
# The first that a repository has is fetched, and a folder is opened by.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
    "model.weights.h5",
)

logger = logging.getLogger("keras_vit")


def fetch_hub(
    source: HubFiles,
    filenames: typing.Sequence[str] | None,
    sha256: str | None,
) -> pathlib.Path:
    """Returns the folder of a repository, or one file of it.

    All files are of the same commit, and none but those that a model needs
    is fetched.

    Args:
        source: What to fetch.
        filenames: Names in the place of the config and the weights.
        sha256: Checksum of the one file.

    Raises:
        ValueError: Arguments that do not go together.
        FetchError: Something is not there, not allowed, or not reachable.
    """
    twice = source.file and filenames is not None
    nothing = filenames is not None and not filenames
    if twice or nothing or (sha256 and not source.file):
        raise ValueError(
            f"These arguments do not go together. Expected: `filenames` for "
            f"a repository, `sha256` for one file. Received: "
            f"{source.address} with filenames={filenames!r}, "
            f"sha256={sha256!r}. Leave it out."
        )
    repo = Repository(source)
    logger.info("Fetching %s.", source.address)
    if source.file:
        return _one_file(repo, source, sha256)
    if filenames is not None:
        for name in filenames:
            repo.demand(name)
    else:
        for name in CONFIGS:
            repo.find(name)
        _fetch_weights(repo)
    logger.info("Fetched %s.", source.address)
    return repo.folder


def _one_file(repo, source, sha256):
    folder = source.file.rpartition("/")[0]
    beside = f"{folder}/" if folder else ""
    path = repo.demand(source.file)
    for name in CONFIGS:
        repo.find(beside + name)
    wrong = mismatch(path, given_checks("", sha256)) if sha256 else None
    if wrong is None:
        return path
    raise problem(
        f"{source.address} is another file.",
        wrong[0],
        wrong[1],
        "Look for a slip in `sha256`, or name the @REVISION that it is of.",
    )


def _fetch_weights(repo):
    for name in WEIGHTS:
        path = repo.find(name)
        if path is None:
            continue
        if name.endswith(".index.json"):
            for shard in _shards(path):
                repo.demand(shard)
        return
    raise problem(
        f"{repo.source.address} has no weights that this package reads"
        f"{' in the cache, and offline mode is on' if repo.offline else ''}.",
        f"one of {', '.join(WEIGHTS)}",
        "none of them",
        "Fetch it once while online, or copy it from another machine and "
        "give the path of the folder."
        if repo.offline
        else "Look at its page, and add the name of the file: "
        "hf://USER/REPO/FILE.",
    )


def _shards(index):
    """Names of the files that an index lists; the reader checks the rest."""
    try:
        files = json.loads(index.read_text("utf-8"))["weight_map"].values()
        return sorted({f for f in files if pathlib.PurePath(f).name == f})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise problem(
            f"{index} is no index of a sharded model.",
            "JSON with a `weight_map` from tensors to files",
            repr(error),
            "Tell the model's author.",
        ) from error
