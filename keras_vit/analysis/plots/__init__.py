"""Pictures of arrays: only this package knows matplotlib.

Each function takes what an analysis returns and gives a
`matplotlib.figure.Figure`, which `savefig` writes and a notebook shows. They
are sized for a slide, and their colours are told apart by colour-blind eyes.
"""

from keras_vit.analysis.plots.charts import cka_figure
from keras_vit.analysis.plots.charts import curves_figure
from keras_vit.analysis.plots.charts import heads_figure
from keras_vit.analysis.plots.images import attention_figure
from keras_vit.analysis.plots.images import filters_figure
from keras_vit.analysis.plots.images import prediction_figure
from keras_vit.analysis.plots.images import reconstruction_figure
from keras_vit.analysis.plots.images import similarity_figure

__all__ = [
    "attention_figure",
    "cka_figure",
    "curves_figure",
    "filters_figure",
    "heads_figure",
    "prediction_figure",
    "reconstruction_figure",
    "similarity_figure",
]
