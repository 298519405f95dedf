"""This package against whichever peers are installed, in one interleaved run.

    pip install timm keras-hub
    KERAS_BACKEND=torch python recipes/benchmark.py --variant b/16 \
        --batch 1 8 --mode infer train

The same as `keras-vit benchmark`: each library in a process of its own, woken
in turn, medians. Some minutes for B/16 on a CPU. Results are in the README.
"""

import sys

from keras_vit.cli import main

if __name__ == "__main__":
    sys.exit(main(["benchmark", *sys.argv[1:]]))
