"""`python -m keras_vit.cli` is the command `keras-vit`."""

import sys

from keras_vit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
