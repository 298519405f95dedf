"""One request: which answers are final, and which may be better later."""

import http.client
import socket
import ssl
import time
import typing
import urllib.error
import urllib.request

from keras_vit.fetching.problems import AgainError
from keras_vit.fetching.problems import FetchError
from keras_vit.fetching.problems import problem
from keras_vit.fetching.retrying import retry_after
from keras_vit.version import __version__

TIMEOUT = 30.0  # seconds without a single byte
WINDOW = 30.0  # seconds over which the rate is measured
MIN_RATE = 1024  # bytes per second
CHUNK = 2**20  # bytes
RANGE_ERROR = 416
PASSING = (408, 425, 429)  # and all from 500 on
# What to do about an answer that will be the same the next time.
ADVICE = {
    401: "The file needs an account: download it in a browser, then use "
    "keras_vit.load_checkpoint.",
    403: "The file is not public, or not there: some buckets answer 403 for "
    "a name that does not exist. Look for a slip in the address.",
    404: "Look for a slip in the address, or for where the file has moved to.",
    407: "The proxy wants a password: http://USER:PASSWORD@HOST:PORT in the "
    "environment variable https_proxy.",
    410: "The file was taken down: look for another source.",
}


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not out of encryption."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # noqa: PLR0913
        if req.type == "https" and not newurl.startswith("https://"):
            raise problem(
                "This server leads away from an encrypted connection.",
                "a redirect to https://",
                newurl.partition("?")[0],
                "Do not use it, or give that address yourself.",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_url(
    url: str, address: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """Sends a GET; proxies are those of the environment.

    Args:
        url: Where.
        address: How errors call it.
        headers: Those of the request, beside the usual ones.

    Raises:
        AgainError: A failure that may pass.
        FetchError: One that will not.
    """
    usual = {
        "User-Agent": f"keras_vit/{__version__}",
        "Accept-Encoding": "identity",  # sizes and checksums are of the file
    }
    request = urllib.request.Request(url, headers=usual | headers)
    opener = urllib.request.build_opener(_SafeRedirects)
    try:
        return opener.open(request, timeout=TIMEOUT)
    except FetchError:
        raise
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(address, error) from error
    except urllib.error.URLError as error:
        raise _unreachable(address, error.reason) from error
    except (OSError, http.client.HTTPException) as error:
        raise AgainError(_described(error)) from error


def _refused(address, error):
    if error.code in PASSING or error.code >= 500:
        wait = retry_after(error.headers.get("Retry-After"))
        asked = "" if wait is None else f", to come back in {wait:.0f} seconds"
        return AgainError(f"{error.code} {error.reason}{asked}", wait)
    if error.code == RANGE_ERROR:
        return RangeRefusedError("416, that no such bytes are there")
    return problem(
        f"The server does not give out {address}.",
        "200 OK",
        f"{error.code} {error.reason}",
        ADVICE.get(error.code, "Open the address in a browser to see why."),
    )


def _unreachable(address, reason):
    if not isinstance(reason, ssl.SSLCertVerificationError):
        return AgainError(_described(reason))
    return problem(
        f"Cannot trust the server of {address}.",
        "a valid certificate",
        reason.verify_message,
        "Set the clock; behind a proxy that re-encrypts, set SSL_CERT_FILE "
        "to its certificate.",
    )


def _described(error):
    if isinstance(error, TimeoutError):
        return f"nothing within {TIMEOUT:g} seconds"
    if isinstance(error, socket.gaierror):
        return f"no such host, or no network ({error.strerror})"
    return f"{type(error).__name__}: {error}"


class RangeRefusedError(AgainError):
    """The server has not got the bytes that a resumed download asks for."""


def chunks(response: http.client.HTTPResponse) -> typing.Iterator[bytes]:
    """Yields the body as it comes.

    Raises:
        AgainError: It breaks off, or comes slower than `MIN_RATE`.
    """
    start, count = time.monotonic(), 0
    while True:
        try:
            # Not read(): it waits for the whole chunk, however slow.
            chunk = response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise AgainError(_described(error)) from error
        if not chunk:
            return
        yield chunk
        count += len(chunk)
        seconds = time.monotonic() - start
        if seconds >= WINDOW:
            if count < MIN_RATE * seconds:
                raise AgainError(f"only {count / seconds:.0f} bytes a second")
            start, count = time.monotonic(), 0
