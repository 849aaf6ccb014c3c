"""Operators on strings: host steps."""

from __future__ import annotations

from luban.core.types import TensorType, tensor
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph.host import strings as host_strings
from luban.graph.infer import broadcast_shapes
from luban.ir.node import Node

__all__: list[str] = []

_ = host_strings  # registers the host functions


@op("StringConcat", since=20)
def string_concat(ctx: NodeContext, x: Node, y: Node) -> tuple[Node, ...]:
    """Texts put together elementwise."""
    shape = broadcast_shapes(x.tensor.shape, y.tensor.shape)
    return ctx.host_call("string_concat", [x, y], [x.tensor.with_shape(shape)])


@op("StringSplit", since=20)
def string_split(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """The pieces of each text, padded with "" to the longest, and how many there are."""
    pieces = x.tensor.with_shape((*x.tensor.shape, ctx.fresh("pieces")))
    return ctx.host_call(
        "string_split",
        [x],
        [pieces, x.tensor.with_dtype("i64")],
        delimiter=ctx.text("delimiter", ""),
        maximum=ctx.int("maxsplit", -1),
    )


@op("StringNormalizer", since=10)
def string_normalizer(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """Texts of a row without stop words, in one case."""
    case = ctx.text("case_change_action", "NONE")
    if case not in ("LOWER", "UPPER", "NONE"):
        raise ctx.wrong(f"case_change_action is {case!r}, expected LOWER, UPPER or NONE")
    rank = x.tensor.rank
    if rank not in (1, 2) or (rank == 2 and x.tensor.shape[0] not in (1,)):
        raise ctx.wrong(f"input is {x.tensor}, expected str[n] or str[1,n]")
    left = ctx.fresh("words")
    return ctx.host_call(
        "string_normalize",
        [x],
        [x.tensor.with_shape((left,) if rank == 1 else (1, left))],
        case=case,
        is_case_sensitive=bool(ctx.int("is_case_sensitive", 0)),
        stopwords=ctx.texts("stopwords", ()),
    )


@op("RegexFullMatch", since=20)
def regex_full_match(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """Whether the whole text matches a pattern."""
    pattern = ctx.text("pattern")
    return ctx.host_call("regex_full_match", [x], [x.tensor.with_dtype("bool")], pattern=pattern)


@op("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """Counts or weights of n-grams in each row."""
    mode = ctx.text("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ctx.wrong(f"mode is {mode!r}, expected TF, IDF or TFIDF")
    indexes = ctx.ints("ngram_indexes")
    shape = (*x.tensor.shape[:-1], max(indexes, default=-1) + 1)
    result: TensorType = tensor("f32", *shape)
    return ctx.host_call(
        "count_ngrams",
        [x],
        [result],
        mode=mode,
        lengths=(ctx.int("min_gram_length"), ctx.int("max_gram_length")),
        max_skip=ctx.int("max_skip_count"),
        starts=ctx.ints("ngram_counts"),
        indexes=indexes,
        pool=ctx.texts("pool_strings", ()) or ctx.ints("pool_int64s", ()),
        weights=ctx.floats("weights", ()),
    )
