"""Reports about operators' edge values and attributes (CASES section 2)."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.conformance.case import PATHS, Array, Case, check, model_of

INF = float("inf")


def f32(values: object) -> Array:
    return np.array(values, np.float32)


def i64(values: object) -> Array:
    return np.array(values, np.int64)


def resize_cases() -> Iterator[Case]:
    """O1, O3: where a pixel comes from."""
    image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    rows = {
        ("nearest", "half_pixel"): [0, 0, 0, 1, 1, 2, 2],
        ("linear", "half_pixel"): [0, 0.1, 0.5, 0.9, 1.3, 1.7, 2],
        ("linear", "asymmetric"): [0, 0.4, 0.8, 1.2, 1.6, 2, 2],
        ("nearest", "asymmetric"): [0, 0, 1, 1, 2, 2, 2],
    }
    for (mode, coordinates), row in rows.items():
        columns = 3 * f32(row)[:, None]
        yield Case(
            "O1",
            f"{mode} resize with {coordinates}",
            "g (float[1, 1, 3, 3] x) => (float[1, 1, h, w] y) <float[4] scales = {1, 1, 2.5, 2.5}> "
            f'{{ y = Resize <mode = "{mode}", coordinate_transformation_mode = "{coordinates}", '
            'nearest_mode = "round_prefer_floor"> (x, , scales) }',
            {"x": image},
            ((columns + f32(row))[None, None],),
            tolerance=2e-7 if mode == "linear" else 0,
        )
    for coordinates, value in (("pytorch_half_pixel", 0), ("half_pixel", 4.5)):
        yield Case(
            "O3",
            f"{coordinates} to one pixel",
            "g (float[1, 1, 10] x) => (float[1, 1, w] y) <int64[3] sizes = {1, 1, 1}> "
            f'{{ y = Resize <mode = "linear", coordinate_transformation_mode = "{coordinates}"> '
            "(x, , , sizes) }",
            {"x": np.arange(10, dtype=np.float32)[None, None]},
            (f32([[[value]]]),),
        )


def pool_cases() -> Iterator[Case]:
    """O4, O6: windows that would start in the right padding do not exist."""
    random = np.random.default_rng(0)
    image = random.integers(-99, 0, (1, 2, 3, 6, 5)).astype(np.float32)
    padded = np.full((1, 2, 7, 10, 9), -INF, np.float32)
    padded[:, :, 1:4, 1:7, 1:6] = image
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3), (2, 3, 4))
    yield Case(
        "O4",
        "ceil mode without rows of padding",
        "g (float[1, 2, 3, 6, 5] x) => (float[1, 2, d, h, w] y) { y = MaxPool "
        "<kernel_shape = [3, 3, 3], strides = [3, 3, 3], pads = [1, 1, 1, 1, 1, 1], "
        "ceil_mode = 1> (x) }",
        {"x": image},
        (windows[:, :, ::3, ::3, ::3].max((5, 6, 7))[:, :, :2, :3, :2],),
    )
    for size, kernel, pad, result in ((17, 2, 1, 9), (9, 4, 2, 3)):
        image = random.integers(-99, 99, (1, 1, size, size)).astype(np.float32)
        starts = [kernel * i - pad for i in range(result)]
        yield Case(
            "O6",
            f"average pool of {size} in ceil mode",
            f"g (float[1, 1, {size}, {size}] x) => (float[1, 1, h, w] y) {{ y = AveragePool "
            f"<kernel_shape = [{kernel}, {kernel}], strides = [{kernel}, {kernel}], "
            f"pads = [{pad}, {pad}, {pad}, {pad}], ceil_mode = 1> (x) }}",
            {"x": image},
            (
                f32(
                    [
                        [
                            image[0, 0, max(r, 0) : r + kernel, max(c, 0) : c + kernel].mean()
                            for c in starts
                        ]
                        for r in starts
                    ]
                )[None, None],
            ),
            tolerance=2e-7,
        )


def transposed_convolution_cases() -> Iterator[Case]:
    """O9: the extra padding of SAME_UPPER goes to the end, that of SAME_LOWER to the start."""
    for mode, first in (("SAME_UPPER", 0), ("SAME_LOWER", 1)):
        for size in ("5", "h"):
            yield Case(
                "O9",
                f"transposed convolution {mode} of {size}",
                f"g (float[1, 1, {size}, {size}] x, float[1, 1, 3, 3] w) => (float[1, 1, p, q] y) "
                f'{{ y = ConvTranspose <strides = [2, 2], auto_pad = "{mode}"> (x, w) }}',
                {
                    "x": (image := np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)),
                    "w": (weights := np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)),
                },
                (_spread(image, weights)[:, :, first : first + 10, first : first + 10],),
            )
    image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    for mode in ("SAME_UPPER", "SAME_LOWER"):  # one row of padding on each side
        yield Case(
            "O9",
            f"transposed convolution {mode} with output padding",
            "g (float[1, 1, 3, 3] x, float[1, 1, 3, 3] w) => (float[1, 1, p, q] y) "
            f'{{ y = ConvTranspose <strides = [2, 2], auto_pad = "{mode}", '
            "output_padding = [1, 1]> (x, w) }",
            {"x": image, "w": weights},
            (_spread(image, weights)[:, :, 1:, 1:],),
        )


def _spread(image: Array, weights: Array) -> Array:
    """The whole of a transposed convolution with stride 2: every pixel stamps the weights."""
    size = 2 * (image.shape[-1] - 1) + 3
    full = np.zeros((1, 1, size, size), np.float32)
    for row, column in np.ndindex(image.shape[-2:]):
        full[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3] += (
            image[:, :, row : row + 1, column : column + 1] * weights
        )
    return full


def grouped_convolution_case() -> Case:
    """O10: 16 groups of two channels and an even kernel wider than the signal."""
    random = np.random.default_rng(0)
    x = random.integers(-9, 10, (1, 32, 39)).astype(np.float32)
    w = random.integers(-9, 10, (32, 2, 128)).astype(np.float32)
    padded = np.pad(x[0], [(0, 0), (64, 64)]).reshape(16, 2, 167)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 128, axis=2)
    y = np.einsum("gcnk,gock->gon", windows, w.reshape(16, 2, 2, 128))
    return Case(
        "O10",
        "grouped one-dimensional convolution with an even kernel",
        "g (float[1, 32, 39] x, float[32, 2, 128] w) => (float[1, 32, k] y) "
        "{ y = Conv <group = 16, pads = [64, 64]> (x, w) }",
        {"x": x, "w": w},
        (y.reshape(1, 32, 40),),
    )


def einsum_cases() -> Iterator[Case]:
    """O12, O13: repeated labels and the ellipsis."""
    cube = np.arange(16, dtype=np.float32).reshape(2, 2, 4)
    diagonal = cube[[0, 1], [0, 1]]
    vector = np.arange(4, dtype=np.float32)
    for equation, sizes, expected in (
        ("iij->i", "k", f32([6, 54])),
        ("iij->ij", "k, l", diagonal),
    ):
        yield Case(
            "O12",
            equation,
            f"g (float[2, 2, 4] x) => (float[{sizes}] y) "
            f'{{ y = Einsum <equation = "{equation}"> (x) }}',
            {"x": cube},
            (expected,),
        )
    yield Case(
        "O12",
        "iij,j->ij",
        "g (float[2, 2, 4] x, float[4] v) => (float[k, l] y) "
        '{ y = Einsum <equation = "iij,j->ij"> (x, v) }',
        {"x": cube, "v": vector},
        (diagonal * vector,),
    )
    yield Case(
        "O13",
        "ellipsis of ranks 0 and 2",
        "g (float x, float[2, 3] v) => (float[k, l] y) "
        '{ y = Einsum <equation = "...,...->..."> (x, v) }',
        {"x": np.array(2, np.float32), "v": np.arange(6, dtype=np.float32).reshape(2, 3)},
        (2 * np.arange(6, dtype=np.float32).reshape(2, 3),),
    )


def scatter_cases() -> Iterator[Case]:
    """O15, O16: only the named cells change."""
    changed = np.zeros((2, 3, 4), np.float32)
    changed[1, 0, 0], changed[0, 1, 0], changed[1, 2, 0] = 1, 2, 3
    yield Case(
        "O15",
        "scatter with fewer indices than data",
        "g (float[2, 3, 4] x, int64[1, 3, 1] i, float[1, 3, 1] u) => (float[2, 3, 4] y) "
        "{ y = ScatterElements <axis = 0> (x, i, u) }",
        {
            "x": np.zeros((2, 3, 4), np.float32),
            "i": i64([1, 0, 1]).reshape(1, 3, 1),
            "u": f32([1, 2, 3]).reshape(1, 3, 1),
        },
        (changed,),
    )
    cells = np.zeros((4, 4), np.float32)
    cells[0, 1], cells[3, 2] = 9, 8
    yield Case(
        "O16",
        "negative indices wrap",
        "g (float[4, 4] x, int64[2, 2] i, float[2] u) => (float[4, 4] y) "
        "{ y = ScatterND(x, i, u) }",
        {"x": np.zeros((4, 4), np.float32), "i": i64([[0, 1], [-1, -2]]), "u": f32([9, 8])},
        (cells,),
    )


def suppression_cases() -> Iterator[Case]:
    """O18: the second batch picks as the first; an overlap equal to the threshold keeps both."""
    boxes = f32(
        [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]
    )
    scores = f32([0.9, 0.75, 0.6, 0.95, 0.5])
    text = (
        "g (float[b, n, 4] boxes, float[b, 1, n] scores, int64[1] most, float[1] threshold) "
        "=> (int64[k, 3] picks) { picks = NonMaxSuppression(boxes, scores, most, threshold) }"
    )
    yield Case(
        "O18",
        "both batches pick the same",
        text,
        {
            "boxes": np.stack([boxes] * 2),
            "scores": np.stack([scores[None]] * 2),
            "most": i64([3]),
            "threshold": f32([0.5]),
        },
        (i64([[0, 0, 3], [0, 0, 0], [1, 0, 3], [1, 0, 0]]),),
    )
    yield Case(
        "O18",
        "an overlap equal to the threshold keeps both",
        text,
        {
            "boxes": f32([[[0, 0, 1, 1], [0, 0, 1, 2]]]),
            "scores": f32([[[0.9, 0.8]]]),
            "most": i64([3]),
            "threshold": f32([0.5]),
        },
        (i64([[0, 0, 0], [0, 0, 1]]),),
    )


def empty_cases() -> Iterator[Case]:
    """O24: a reduction of nothing."""
    for operator, value in (
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -INF),
        ("ReduceMin", INF),
    ):
        for keep, shape, sizes in ((0, (3, 4), "k, l"), (1, (3, 1, 4), "k, m, l")):
            yield Case(
                "O24",
                f"{operator} of an empty axis with keepdims {keep}",
                f"g (float[3, 0, 4] x) => (float[{sizes}] y) <int64[1] axes = {{1}}> "
                f"{{ y = {operator} <keepdims = {keep}> (x, axes) }}",
                {"x": np.zeros((3, 0, 4), np.float32)},
                (np.full(shape, value, np.float32),),
            )
    yield Case(
        "O24",
        "ReduceMax of integers gives the lowest",
        "g (int32[1, 0] x) => (int32[k] y) <int64[1] axes = {1}> "
        "{ y = ReduceMax <keepdims = 0> (x, axes) }",
        {"x": np.zeros((1, 0), np.int32)},
        (np.array([-(2**31)], np.int32),),
    )


def attention_cases() -> Iterator[Case]:
    """O25: query i sees key j when j <= i + offset; a row that sees nothing is 0."""
    keys = np.eye(4, dtype=np.float32)[None, None]
    query = np.zeros((1, 1, 1, 4), np.float32)
    for opset in (23, 24):
        yield Case(
            "O25",
            f"causal with fewer queries than keys in opset {opset}",
            "g (float[1, 1, 1, 4] q, float[1, 1, 4, 4] k, float[1, 1, 4, 4] v) "
            "=> (float[1, 1, 1, 4] y) { y = Attention <is_causal = 1> (q, k, v) }",
            {"q": query, "k": keys, "v": keys},
            (f32([[[[1, 0, 0, 0]]]]),),
            opset=opset,
        )
    for valid, row in ((3, [1 / 3, 1 / 3, 1 / 3, 0]), (0, [0, 0, 0, 0])):
        yield Case(
            "O25",
            f"causal with {valid} valid keys",
            "g (float[1, 1, 1, 4] q, float[1, 1, 4, 4] k, float[1, 1, 4, 4] v, int64[1] n) "
            "=> (float[1, 1, 1, 4] y) { y = Attention <is_causal = 1> (q, k, v, , , , n) }",
            {"q": query, "k": keys, "v": keys, "n": i64([valid])},
            (f32([[[row]]]),),
            opset=24,
            tolerance=2e-7 if valid else 0,
        )


CASES = [
    *resize_cases(),
    *pool_cases(),
    Case(
        "O7",
        "reflecting pad wider than the axis goes back and forth",
        "g (float[8, 20, 17, 13] x, int64[8] pads) => (float[a, b, c, d] y) "
        '{ y = Pad <mode = "reflect"> (x, pads) }',
        {
            "x": (block := np.random.default_rng(0).standard_normal((8, 20, 17, 13), np.float32)),
            "pads": i64([3, 0, 4, 1, 11, 1, 8, 0]),
        },
        (np.pad(block, [(3, 11), (0, 1), (4, 8), (1, 0)], mode="reflect"),),
    ),
    *transposed_convolution_cases(),
    grouped_convolution_case(),
    *einsum_cases(),
    *scatter_cases(),
    *suppression_cases(),
    Case(
        "O21",
        "axes attribute and computed sizes",
        "g (float[2, 3, 1, n] x) => (float[k, l] top, int64[k, l] where) "
        "<int64 second = {1}, int64[1] one = {1}> {"
        " s = Squeeze <axes = [2]> (x) t = Transpose <perm = [2, 0, 1]> (s) h = Shape(t)"
        " m = Gather(h, second) u = Unsqueeze <axes = [0]> (m)"
        " left = Constant <value = int64[1] {-1}> ()"
        " shape = Concat <axis = 0> (left, u) r = Reshape(t, shape) top, where = TopK(r, one) }",
        {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 1, 4)},
        (
            (
                flat := np.arange(24, dtype=np.float32)
                .reshape(2, 3, 4)
                .transpose(2, 0, 1)
                .reshape(-1, 2)
            ).max(1, keepdims=True),
            flat.argmax(1)[:, None],
        ),
        opset=11,
    ),
    Case(
        "O22",
        "gather of halves at computed places",
        "g (float16[100, 8] x, int64[a, b] i) => (float16[a, b, 8] y) { y = Gather(x, i) }",
        {
            "x": (table := np.arange(800).reshape(100, 8).astype(np.float16)),
            "i": i64([[3, -1, 0], [99, 5, -100]]),
        },
        (table[[[3, 99, 0], [99, 5, 0]]],),
    ),
    Case(
        "O22",
        "a one sided short time transform",
        "g (float[1, n, 1] x, float[8] w) => (float[1, frames, 5, 2] y) "
        "<int64 step = {4}, int64 length = {8}> { y = STFT(x, step, w, length) }",
        {
            "x": (wave := np.sin(np.arange(32, dtype=np.float32)))[None, :, None],
            "w": np.ones(8, np.float32),
        },
        (
            np.stack(
                [
                    (turns := np.fft.rfft([wave[i : i + 8] for i in range(0, 25, 4)])).real,
                    turns.imag,
                ],
                -1,
            ).astype(np.float32)[None],
        ),
        tolerance=1e-6,
    ),
    *empty_cases(),
    *attention_cases(),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, path: str) -> None:
    check(case, PATHS[path])


@pytest.mark.parametrize("path", PATHS)
def test_o22_multinomial_draws_what_is_likely(path: str) -> None:
    """Rows of log-probabilities: what has none is never drawn, a half is drawn half of the time."""
    text = """g (float[2, 3] x) => (int32[2, 4000] y)
    { y = Multinomial <sample_size = 4000, seed = 7.0> (x) }"""
    x = np.log(np.array([[1, 0, 0], [0.5, 0, 0.5]], np.float32) + np.float32(1e-30))
    (got,) = PATHS[path](model_of(text), {"x": x})
    assert got.dtype == np.int32
    assert got.shape == (2, 4000)
    assert not got[0].any()
    assert set(np.unique(got[1])) == {0, 2}
    assert 0.45 < (got[1] == 0).mean() < 0.55
