"""Published files by address: into a cache, once, checked."""

from keras_vit.fetching.fetch import fetch as fetch
from keras_vit.fetching.problems import FetchError as FetchError
