"""An address becomes a path on this machine."""

import pathlib
import typing

from keras_vit.fetching.address import HubFiles
from keras_vit.fetching.address import is_offline
from keras_vit.fetching.address import parse_address
from keras_vit.fetching.checksums import given_checks
from keras_vit.fetching.checksums import mismatch
from keras_vit.fetching.download import download
from keras_vit.fetching.hub import fetch_hub
from keras_vit.fetching.problems import problem


def fetch(
    address: str,
    *,
    filenames: typing.Sequence[str] | None = None,
    sha256: str | None = None,
) -> pathlib.Path:
    """Returns the path of a published file, downloading it if need be.

    | address | what is fetched |
    |---|---|
    | `gs://BUCKET/FILE` | the file of a public Google bucket |
    | `hf://USER/REPO`, `timm/NAME` | a folder: config, pixels, weights |
    | `hf://USER/REPO@REVISION` | the same of a branch, tag or commit |
    | `hf://USER/REPO/FILE` | one file, and the configs beside it |
    | `https://HOST/FILE` | the file |

    A file that is in the cache is used without a request; of a repository
    the hub is asked for the newest commit. What the server says of length
    and checksum is checked, and so are torch.hub's names (`-1234abcd.pth`).

    The environment decides on: `KERAS_VIT_HOME`, the cache
    (`~/.cache/keras_vit`); `KERAS_VIT_BUCKETS`, a mirror of
    `https://storage.googleapis.com`; `KERAS_VIT_OFFLINE=1`, no requests;
    `https_proxy` and `no_proxy`; for the hub, its own `HF_HOME`,
    `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE`.

    Args:
        address: See above.
        filenames: Files of a repository to fetch in the place of the config
            and the weights.
        sha256: Checksum of the file, or its first 8 digits or more.

    Returns:
        A file; for a repository, a folder.

    Raises:
        ValueError: No address, or one that does not go with the arguments.
        FetchError: An `OSError` that says what failed and what to do.
    """
    source = parse_address(address)
    if isinstance(source, HubFiles):
        return fetch_hub(source, filenames, sha256)
    if filenames is not None:
        raise ValueError(
            f"`filenames` chooses from a repository of the hub. Expected: "
            f"hf://USER/REPO or timm/NAME. Received: {address!r} with "
            f"filenames={filenames!r}. Fetch the files one by one."
        )
    checks = given_checks(source.target.name, sha256)
    if source.target.is_file():
        # Those of the server and of the name were checked when it came.
        wrong = mismatch(source.target, checks) if sha256 else None
        if wrong is None:
            return source.target
        raise problem(
            f"The file in the cache, {source.target}, is another one.",
            wrong[0],
            wrong[1],
            "Delete it to fetch it again, or look for a slip in `sha256`.",
        )
    if is_offline():
        raise problem(
            f"{source.address} is not in the cache, and offline mode is on.",
            f"the file {source.target}",
            "none",
            "Put it there, or unset KERAS_VIT_OFFLINE and HF_HUB_OFFLINE.",
        )
    download(source, checks)
    return source.target
