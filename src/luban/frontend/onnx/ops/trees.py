"""Tree ensembles: all trees walk down one level at a time, for all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luban.core.dtypes import DTYPES
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.ops.ml import DOMAIN
from luban.frontend.onnx.places import take_each
from luban.frontend.onnx.registry import op
from luban.frontend.onnx.scores import TRANSFORMS, label_of, transformed, widened
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

Array = np.ndarray[Any, Any]
_F32 = DTYPES["f32"]

# The comparisons as what they accept: (less, equal, greater).
_ACCEPTS = {
    "BRANCH_LEQ": (True, True, False),
    "BRANCH_LT": (True, False, False),
    "BRANCH_GTE": (False, True, True),
    "BRANCH_GT": (False, False, True),
    "BRANCH_EQ": (False, True, False),
    "BRANCH_NEQ": (True, False, True),
}
_NUMBERED = tuple(_ACCEPTS)
_MEMBER = 6


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees as parallel arrays, one entry a node; a leaf is its own child.

    votes  [nodes, targets]: what a leaf adds to each target; counts: which of them it states
    """

    roots: Array
    feature: Array
    split: Array
    accepts: Array
    missing: Array
    yes: Array
    no: Array
    votes: Array
    counts: Array

    @property
    def depth(self) -> int:
        """The longest way from a root to a leaf."""
        level, steps = set(self.roots.tolist()), 0
        while True:
            inner = [n for n in level if self.yes[n] != n or self.no[n] != n]
            if not inner:
                return steps
            steps += 1
            if steps > len(self.yes):
                raise RecursionError("the trees have a cycle")
            level = {int(c) for n in inner for c in (self.yes[n], self.no[n])}


def _walked(x: Node, forest: Forest) -> Node:
    """The leaf that each row of x [N, F] reaches in each tree: i64[N, trees]."""
    shape = (x.tensor.shape[0], len(forest.roots))
    place = build.broadcast_to(build.constant(forest.roots, "i64"), shape)
    tables = {name: build.constant(getattr(forest, name)) for name in ("feature", "yes", "no")}
    splits = build.constant(forest.split, x.tensor.dtype)
    accepts = [build.constant(forest.accepts[:, i]) for i in range(3)]
    missing = build.constant(forest.missing)
    for _ in range(forest.depth):
        value = take_each(x, build.take(tables["feature"], place, 0), 1)
        split = build.take(splits, place, 0)
        true = build.bitwise_and(build.is_nan(value), build.take(missing, place, 0))
        compared = (build.less, build.equal, build.greater)
        for kind, (accept, compare) in enumerate(zip(accepts, compared, strict=True)):
            if forest.accepts[:, kind].any():
                here = build.take(accept, place, 0)
                true = build.bitwise_or(true, build.bitwise_and(here, compare(value, split)))
        yes, no = build.take(tables["yes"], place, 0), build.take(tables["no"], place, 0)
        place = build.select(true, yes, no)
    return place


def _aggregated(x: Node, forest: Forest, how: str) -> Node:
    """The votes of all trees for each target: [N, targets] in the dtype of x."""
    leaves = _walked(x, forest)
    votes = build.take(build.constant(forest.votes, x.tensor.dtype), leaves, 0)
    if how in ("SUM", "AVERAGE"):
        total = build.reduce("sum", votes, [1])
        return total if how == "SUM" else build.divide(total, len(forest.roots))
    kind = "minimum" if how == "MIN" else "maximum"
    element = x.tensor.dtype
    nothing = element.highest if how == "MIN" else element.lowest
    stated = build.take(build.constant(forest.counts), leaves, 0)
    best = build.reduce(kind, build.select(stated, votes, nothing), [1])
    return build.select(build.reduce("or", stated, [1]), best, 0)


@op("TreeEnsemble", since=5, domain=DOMAIN)
def tree_ensemble(ctx: NodeContext, x: Node) -> Node:
    """The aggregated leaf weights of all trees: [N, targets]."""
    how = ("AVERAGE", "SUM", "MIN", "MAX")[ctx.int("aggregate_function", 1)]
    scores = _aggregated(x, _numbered_forest(ctx), how)
    return transformed(ctx, scores, TRANSFORMS[ctx.int("post_transform", 0)])


def _numbered_forest(ctx: NodeContext) -> Forest:
    """The trees of operator set 5: inner nodes, then leaves, then the tests of memberships."""
    modes = _required(ctx, "nodes_modes").astype(int).ravel()
    splits = _required(ctx, "nodes_splits").ravel()
    weights = _required(ctx, "leaf_weights").ravel()
    count, leaves = len(modes), len(weights)
    features = np.array(ctx.ints("nodes_featureids"))
    yes = np.array(ctx.ints("nodes_truenodeids")) + count * np.array(ctx.ints("nodes_trueleafs"))
    no = np.array(ctx.ints("nodes_falsenodeids")) + count * np.array(ctx.ints("nodes_falseleafs"))
    missing = np.array(ctx.ints("nodes_missing_value_tracks_true", (0,) * count), bool)
    rows = [
        [features[i], splits[i], _NUMBERED[min(modes[i], _MEMBER - 1)], missing[i], yes[i], no[i]]
        for i in range(count)
    ]
    rows += [[0, 0, "BRANCH_EQ", False, count + i, count + i] for i in range(leaves)]
    members = iter(_member_sets(ctx))
    for i in range(count):
        if modes[i] == _MEMBER:
            # x in {a, b}: is it a? else is it b? else no.
            first, *rest = next(members)
            rows[i][1:3] = [first, "BRANCH_EQ"]
            current = i
            for value in rest:
                rows[current][5] = len(rows)
                current = len(rows)
                rows.append([features[i], value, "BRANCH_EQ", missing[i], yes[i], no[i]])
    targets = ctx.int("n_targets", max(ctx.ints("leaf_targetids")) + 1)
    votes = np.zeros((len(rows), targets))
    counts = np.zeros((len(rows), targets), bool)
    for i, target in enumerate(ctx.ints("leaf_targetids")):
        votes[count + i, target], counts[count + i, target] = weights[i], True
    return _forest(ctx.ints("tree_roots"), rows, votes, counts)


def _member_sets(ctx: NodeContext) -> list[list[float]]:
    values = ctx.array("membership_values")
    sets: list[list[float]] = [[]]
    for value in () if values is None else values.ravel().astype(float).tolist():
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    return [s for s in sets if s]


def _required(ctx: NodeContext, name: str) -> Array:
    array = ctx.array(name)
    if array is None:
        raise ctx.wrong(f"the attribute {name!r} is missing")
    return array


def _forest(roots: Sequence[int], rows: list[list[Any]], votes: Array, counts: Array) -> Forest:
    feature, split, mode, missing, yes, no = zip(*rows, strict=True)
    return Forest(
        np.array(roots, np.int64),
        np.array(feature, np.int64),
        np.array(split, np.float64),
        np.array([_ACCEPTS[m] for m in mode]),
        np.array(missing, bool),
        np.array(yes, np.int64),
        np.array(no, np.int64),
        votes,
        counts,
    )


@op("TreeEnsembleRegressor", since=1, domain=DOMAIN)
def tree_ensemble_regressor(ctx: NodeContext, x: Node) -> Node:
    """The aggregated leaf weights of all trees plus base values, as f32: [N, targets]."""
    wide = widened(x)
    targets = ctx.int("n_targets", 1)
    forest = _named_forest(ctx, "target", targets)
    scores = _aggregated(wide, forest, ctx.text("aggregate_function", "SUM"))
    scores = _with_base(ctx, scores)
    return build.cast(transformed(ctx, scores, ctx.text("post_transform", "NONE")), _F32)


@op("TreeEnsembleClassifier", since=1, domain=DOMAIN)
def tree_ensemble_classifier(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """The class with most votes, and all votes as f32: [N, classes]."""
    wide = widened(x)
    names = ctx.texts("classlabels_strings", None) or ctx.ints("classlabels_int64s")
    count = len(names)
    scores = _with_base(ctx, _aggregated(wide, _named_forest(ctx, "class", count), "SUM"))
    kind = ctx.text("post_transform", "NONE")
    if len(set(ctx.ints("class_ids"))) == 1 and count == 2:
        # Two classes, but votes for one only: the other has the rest.
        place = ctx.ints("class_ids")[0]
        vote = build.slice_axis(scores, 1, place, 1)
        rest = build.subtract(1, vote) if kind in ("NONE", "PROBIT") else build.negative(vote)
        scores = build.concatenate([rest, vote], 1)
    scores = build.cast(transformed(ctx, scores, kind), _F32)
    return label_of(scores, names), scores


def _with_base(ctx: NodeContext, scores: Node) -> Node:
    base = ctx.array("base_values_as_tensor")
    values = base if base is not None else np.array(ctx.floats("base_values", ()))
    return build.add(scores, build.constant(values, scores.tensor.dtype)) if values.size else scores


def _named_forest(ctx: NodeContext, votes_of: str, targets: int) -> Forest:
    """The trees of operator sets 1 to 3: nodes are named by (tree, node) pairs."""
    names = list(zip(ctx.ints("nodes_treeids"), ctx.ints("nodes_nodeids"), strict=True))
    place = {name: i for i, name in enumerate(names)}
    modes = ctx.texts("nodes_modes")
    splits = ctx.array("nodes_values_as_tensor")
    values = ctx.floats("nodes_values") if splits is None else splits.ravel().tolist()
    features = ctx.ints("nodes_featureids")
    missing = ctx.ints("nodes_missing_value_tracks_true", (0,) * len(names))
    yes, no = ctx.ints("nodes_truenodeids"), ctx.ints("nodes_falsenodeids")
    rows: list[list[Any]] = []
    for i, (tree, _) in enumerate(names):
        if modes[i] == "LEAF":
            rows.append([0, 0.0, "BRANCH_EQ", False, i, i])
        else:
            children = [place[tree, yes[i]], place[tree, no[i]]]
            rows.append([features[i], values[i], modes[i], bool(missing[i]), *children])
    inner = {c for row, mode in zip(rows, modes, strict=True) if mode != "LEAF" for c in row[4:]}
    roots = [i for i in range(len(names)) if i not in inner]
    table = np.zeros((len(names), targets))
    counts = np.zeros((len(names), targets), bool)
    given = ctx.array(f"{votes_of}_weights_as_tensor")
    weights = ctx.floats(f"{votes_of}_weights") if given is None else given.ravel().tolist()
    keys = zip(ctx.ints(f"{votes_of}_treeids"), ctx.ints(f"{votes_of}_nodeids"), strict=True)
    for name, target, weight in zip(keys, ctx.ints(f"{votes_of}_ids"), weights, strict=True):
        table[place[name], target] += weight
        counts[place[name], target] = True
    return _forest(roots, rows, table, counts)
