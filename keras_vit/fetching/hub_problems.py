"""Errors of the hub's library, and what each means for its user."""

import errno

from keras_vit.fetching.address import HubFiles
from keras_vit.fetching.problems import FULL
from keras_vit.fetching.problems import FetchError
from keras_vit.fetching.problems import problem

FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def hub_endpoint() -> str:
    """Where the hub is."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def hub_cache() -> str:
    """Where the hub's library keeps files."""
    from huggingface_hub import constants

    return constants.HF_HUB_CACHE


def hub_problem(source: HubFiles, error: Exception) -> FetchError:
    """Returns what an error of the hub's library means for its user."""
    page = f"{hub_endpoint()}/{source.repo}"
    what, advice = _meaning(error, page)
    return problem(
        f"Cannot fetch {source.address}. {what}",
        f"its files from {hub_endpoint()}",
        _first_line(error),
        advice,
    )


def _meaning(error, page):
    """What happened, and what to do about it."""
    from huggingface_hub import utils

    if isinstance(error, OSError) and error.errno in (*FULL, *FORBIDDEN):
        what = "The disk is full" if error.errno in FULL else "No access"
        return (
            f"{what}, in {hub_cache()}.",
            "Free some, or set HF_HOME to another folder.",
        )
    rows = (
        (
            utils.GatedRepoError,
            "Its author wants to be asked first.",
            f"Ask at {page}, then log in with `hf auth login` or set HF_TOKEN.",
        ),
        (
            utils.RepositoryNotFoundError,
            "There is no such repository, or it is private.",
            f"Look for a slip in the name at {page}; for a private one, log "
            f"in with `hf auth login` or set HF_TOKEN.",
        ),
        (
            utils.RevisionNotFoundError,
            "There is no such revision.",
            f"Take a branch, tag or commit of {page}/commits.",
        ),
        (
            utils.LocalEntryNotFoundError,
            "The hub does not answer, and the cache has not got the file.",
            "Look at the network, the proxy (https_proxy) and HF_ENDPOINT, "
            "or give the path of a folder copied from another machine.",
        ),
        (
            Exception,
            "The hub or the network failed.",
            "Look at the network and at https://status.huggingface.co, and "
            "try again.",
        ),
    )
    return next(row[1:] for row in rows if isinstance(error, row[0]))


def _first_line(error):
    """What the error itself says, and what it was raised from."""
    cause = error.__cause__
    said = str(error).strip().partition("\n")[0]
    why = f" ({type(cause).__name__}: {cause})" if cause else ""
    return f"{type(error).__name__}: {said[:300]}{why[:300]}"
