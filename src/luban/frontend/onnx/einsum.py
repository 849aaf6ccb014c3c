"""Einstein sums as transposes, sums and matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.graph import build
from luban.graph.infer import broadcast_shapes
from luban.ir.node import Node

__all__ = ["einsum", "parse_equation"]

Labels = tuple[str, ...]
"""One label an axis: a letter, or "0", "1", .. for the axes that an ellipsis stands for."""


def einsum(equation: str, operands: Sequence[Node]) -> Node:
    """The sum of products over every label that the result leaves out.

    A label that repeats within an operand takes its diagonal. Operands are multiplied from left to
    right; a label is summed as soon as no later operand needs it. Raises ShapeError for an equation
    that cannot be read or does not fit.
    """
    terms, result = parse_equation(equation, [x.tensor.rank for x in operands])
    parts = [_diagonal(x, labels) for x, labels in zip(operands, terms, strict=True)]
    sizes = _sizes(equation, parts)
    first, labels = parts[0]
    for position, (second, others) in enumerate(parts[1:], start=1):
        needed = {*result, *(label for _, later in parts[position + 1 :] for label in later)}
        first, labels = _product(first, labels, second, others, needed)
    first, labels = _summed(first, labels, set(result))
    missing = [label for label in result if label not in labels]
    if missing:
        raise ShapeError(f"einsum {equation!r}: {missing} stands in no operand")
    ordered = build.transpose(first, [labels.index(label) for label in result])
    return build.broadcast_to(ordered, [sizes[label] for label in result])


def parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result.

    >>> parse_equation("...ij,jk", [3, 2])
    ([('0', 'i', 'j'), ('j', 'k')], ('0', 'i', 'k'))
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ShapeError(f"einsum {equation!r} has {len(texts)} terms, given {len(ranks)} operands")
    hidden = [_ellipsis_rank(equation, text, rank) for text, rank in zip(texts, ranks, strict=True)]
    most = max(hidden)
    terms = [_labels(text, count, most) for text, count in zip(texts, hidden, strict=True)]
    if arrow:
        return terms, _labels(right, most, most)
    letters = [label for term in terms for label in term if label.isalpha()]
    once = sorted(label for label in set(letters) if letters.count(label) == 1)
    return terms, (*(str(i) for i in range(most)), *once)


def _ellipsis_rank(equation: str, text: str, rank: int) -> int:
    """How many axes of the operand the ellipsis stands for."""
    letters = text.replace("...", "", 1)
    count = rank - len(letters)
    if not all(c.isalpha() and c.isascii() for c in letters):
        raise ShapeError(f"einsum {equation!r}: the term {text!r} cannot be read")
    if count < 0 or (count and "..." not in text):
        raise ShapeError(f"einsum {equation!r}: the term {text!r} does not fit {rank} axes")
    return count if "..." in text else 0


def _labels(text: str, count: int, most: int) -> Labels:
    """The labels of a term whose ellipsis stands for the last `count` of `most` hidden axes."""
    before, dots, after = text.partition("...")
    hidden = tuple(str(i) for i in range(most - count, most)) if dots else ()
    return (*before, *hidden, *after)


def _sizes(equation: str, parts: Sequence[tuple[Node, Labels]]) -> dict[str, DimLike]:
    sizes: dict[str, DimLike] = {}
    for x, labels in parts:
        for label, size in zip(labels, x.tensor.shape, strict=True):
            try:
                (sizes[label],) = broadcast_shapes((sizes.get(label, 1),), (size,))
            except ShapeError as error:
                raise ShapeError(f"einsum {equation!r}: label {label}: {error.message}") from None
    return sizes


def _diagonal(x: Node, labels: Labels) -> tuple[Node, Labels]:
    """The operand with each label once: repeated ones keep only the elements of equal index."""
    while len(set(labels)) < len(labels):
        label = next(name for name in labels if labels.count(name) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        shape = x.tensor.shape
        on = build.equal(build.iota(shape, first), build.iota(shape, second))
        # Every other element becomes 0, so the sum along the second axis is the diagonal.
        x = build.reduce("sum", build.select(on, x, 0), [second])
        labels = (*labels[:second], *labels[second + 1 :])
    return x, labels


def _summed(x: Node, labels: Labels, needed: set[str]) -> tuple[Node, Labels]:
    gone = [axis for axis, label in enumerate(labels) if label not in needed]
    return build.reduce("sum", x, gone), tuple(label for label in labels if label in needed)


def _product(
    x: Node, x_labels: Labels, y: Node, y_labels: Labels, needed: set[str]
) -> tuple[Node, Labels]:
    """The product of two operands, summed over labels that nobody needs any more."""
    x, x_labels = _summed(x, x_labels, needed | set(y_labels))
    y, y_labels = _summed(y, y_labels, needed | set(x_labels))
    shared = [label for label in x_labels if label in y_labels]
    for label in shared:
        x, y = _same_size(x, x_labels.index(label), y, y_labels.index(label))
    batch = [label for label in shared if label in needed]
    gone = [label for label in shared if label not in needed]
    result = build.dot_general(
        x,
        y,
        ([x_labels.index(n) for n in gone], [y_labels.index(n) for n in gone]),
        ([x_labels.index(n) for n in batch], [y_labels.index(n) for n in batch]),
    )
    rest = (label for label in (*x_labels, *y_labels) if label not in shared)
    return result, (*batch, *rest)


def _same_size(x: Node, x_axis: int, y: Node, y_axis: int) -> tuple[Node, Node]:
    """Both operands with their common broadcast size along one axis each."""
    (size,) = broadcast_shapes((x.tensor.shape[x_axis],), (y.tensor.shape[y_axis],))

    def stretched(z: Node, axis: int) -> Node:
        shape = z.tensor.shape
        return build.broadcast_to(z, (*shape[:axis], size, *shape[axis + 1 :]))

    return stretched(x, x_axis), stretched(y, y_axis)
