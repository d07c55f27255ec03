"""prediction: how long a Reader's job will take here, by the rates that ``lmdbio tune`` measured.

    reader   a data set and a Reader's words -> seconds, waiting and sources of each epoch

    >>> from lmdbio.prediction import predict
    >>> found = predict("train_lmdb", 256, nodes=4, shuffle="global", cache="memory=8G")
    >>> for epoch in found.epochs:
    ...     print(epoch.seconds, epoch.records)

Uses ``simulate``, ``reader``, ``reading``, ``locate``, ``machine``, ``placement``, ``planning``
and ``_core``.
"""

from lmdbio.prediction.reader import Epoch, Prediction, predict

__all__ = ["Epoch", "Prediction", "predict"]
