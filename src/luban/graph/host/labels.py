"""Host functions of classical models: tables of keys, probabilities of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.graph.host import host

__all__ = ["COUPLE", "ENCODE", "ZIP"]

ENCODE = "encode_labels"
COUPLE = "couple_probabilities"
ZIP = "zip_labels"


@host(ENCODE)
def encode_labels(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:  # noqa: ARG001
    """(x, keys [K], values [K], default []) -> the value of each key; NaN finds a NaN key."""
    x, keys, targets, default = values
    table = dict(zip(map(_key, keys.tolist()), targets.tolist(), strict=True))
    fallback = default.item()
    found = [table.get(_key(item), fallback) for item in x.ravel().tolist()]
    result = np.empty(len(found), targets.dtype)
    result[:] = found
    return (result.reshape(x.shape),)


def _key(item: Any) -> Any:
    """None in place of NaN, which is not equal to itself."""
    return None if isinstance(item, float) and item != item else item


@host(COUPLE)
def couple_probabilities(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:  # noqa: ARG001
    """(chances [N, pairs] that the first of two classes is right) -> probabilities [N, classes].

    The second method of Wu, Lin and Weng, "Probability estimates for multi-class classification by
    pairwise coupling", JMLR 5 (2004): minimise the sum over pairs of (r_ji p_i - r_ij p_j)**2.
    """
    (chances,) = values
    count = int(np.ceil(np.sqrt(2 * chances.shape[1])))
    rows, columns = np.triu_indices(count, 1)
    result = np.empty((len(chances), count), chances.dtype)
    for n, chance in enumerate(np.clip(chances.astype(np.float64), 1e-7, 1 - 1e-7)):
        pairwise = np.zeros((count, count))
        pairwise[rows, columns], pairwise[columns, rows] = chance, 1 - chance
        result[n] = _coupled(pairwise)
    return (result,)


def _coupled(pairwise: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    count = len(pairwise)
    q = -pairwise.T * pairwise
    np.fill_diagonal(q, (pairwise**2).sum(0))
    p = np.full(count, 1 / count)
    for _ in range(max(100, count)):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < 0.005 / count:
            break
        for t in range(count):
            step = (pqp - qp[t]) / q[t, t]
            p[t] += step
            pqp = (pqp + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
            qp = (qp + step * q[t]) / (1 + step)
            p /= 1 + step
    return p


@host(ZIP)
def zip_labels(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:  # noqa: ARG001
    """(scores [N, C] or [C], keys [C]) -> a list of N dictionaries from key to score."""
    scores, keys = values
    names = keys.tolist()
    rows = scores.reshape(-1, len(names)).tolist()
    return ([dict(zip(names, row, strict=True)) for row in rows],)
