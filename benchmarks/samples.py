"""Seeded inputs that look like what the models are meant for: pictures, sound, text, a protein.

Realistic on purpose: white noise drives a net to saturated outputs, and a comparison of zeros with
zeros proves nothing. A sample is a function (generator, sizes) -> inputs by name.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.cases import Array, Feeds, Sizes

Sample = Callable[[np.random.Generator, Sizes], Feeds]


def picture(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A smooth picture with some grain, in [0, 1], float32, of `shape` [N, C, H, W].

    Neighbouring pixels agree, as in a photograph: white noise drives a net to places where no
    photograph does.
    """
    batch, channels, height, width = shape
    coarse = generator.random((batch, channels, max(2, height // 16 + 2), max(2, width // 16 + 2)))
    rows = np.linspace(0, coarse.shape[2] - 1, height)
    columns = np.linspace(0, coarse.shape[3] - 1, width)
    smooth = _interpolate(_interpolate(coarse, rows, 2), columns, 3)
    grain = generator.normal(0.0, 0.02, shape)
    return np.clip(smooth + grain, 0.0, 1.0).astype(np.float32)


def _interpolate(values: Array, positions: Array, axis: int) -> Array:
    """`values` read at fractional `positions` along `axis`, linearly."""
    low = np.clip(np.floor(positions).astype(int), 0, values.shape[axis] - 2)
    shape = [1] * values.ndim
    shape[axis] = len(positions)
    part = (positions - low).reshape(shape)
    result: Array = np.take(values, low, axis) * (1 - part) + np.take(values, low + 1, axis) * part
    return result


def sound(generator: np.random.Generator, batch: int, samples: int) -> Array:
    """A few drifting tones and some hiss, in [-1, 1], float32 [batch, samples] at 16 kHz."""
    time_s = np.arange(samples) / 16_000
    frequencies = generator.uniform(80, 3_000, (batch, 6, 1))
    tones = np.sin(2 * np.pi * frequencies * time_s * (1 + 0.05 * np.sin(2 * np.pi * 3 * time_s)))
    hiss = generator.normal(0, 0.02, (batch, samples))
    wave: Array = np.clip(tones.mean(axis=1) * 0.8 + hiss, -1, 1).astype(np.float32)
    return wave


def page(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A light page with lines of dark letter-like strokes, in [0, 1], float32 [N, C, H, W]."""
    batch, _, height, width = shape
    ink = np.zeros((batch, 1, height, width))
    letter = max(6, min(32, height // 2))
    for row in range(batch):
        for top in range(letter // 4, height - letter, letter * 2):
            for left in range(letter // 2, width - letter, letter * 3 // 4):
                if generator.random() < 0.15:
                    continue  # the gap between two words
                for _ in range(3):
                    y, x = np.array([top, left]) + generator.integers(0, letter // 2, 2)
                    tall, stroke = generator.random() < 0.5, max(1, letter // 10)
                    rows, columns = (letter // 2, stroke) if tall else (stroke, letter // 2)
                    ink[row, 0, y : y + rows, x : x + columns] = 0.8
    return np.clip(0.95 - ink + generator.normal(0.0, 0.02, shape), 0.0, 1.0).astype(np.float32)


def image(
    name: str,
    channels: int,
    *,
    low: float,
    high: float,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array] = picture,
) -> Sample:
    """What `draw` makes, scaled to [low, high], of the case's batch, height and width."""

    def sample(generator: np.random.Generator, sizes: Sizes) -> Feeds:
        shape = (sizes["batch"], channels, sizes["height"], sizes["width"])
        values = draw(generator, shape) * np.float32(high - low) + np.float32(low)
        return {name: values.astype(np.float32)}

    return sample


def file_bytes(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """Bytes of a text file: head, then 256 as the padding that magika's own feature code uses."""
    values = generator.integers(32, 127, (sizes["batch"], 2048))
    values[:, 900:1024] = 256
    return {"bytes": values.astype(np.int32)}


def sentence(vocabulary: int, first: int = 1000) -> Sample:
    """BERT-like inputs; the last quarter of every second row is padding."""

    def sample(generator: np.random.Generator, sizes: Sizes) -> Feeds:
        shape = (sizes["batch"], sizes["length"])
        mask = np.ones(shape, np.int64)
        mask[1::2, shape[1] - shape[1] // 4 :] = 0
        tokens = generator.integers(first, vocabulary, shape) * mask
        return {
            "input_ids": tokens,
            "attention_mask": mask,
            "token_type_ids": np.zeros(shape, np.int64),
        }

    return sample


def speech_tokens(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """Phonemes between the two zeros that mark the ends, a voice for all seeds, normal speed."""
    tokens = generator.integers(16, 178, (1, sizes["length"]))
    tokens[:, [0, -1]] = 0
    style = np.random.default_rng(0).normal(0.0, 0.05, (1, 256)).astype(np.float32)
    return {"tokens": tokens, "style": style, "speed": np.ones(1, np.float32)}


def music(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """One window of audio as basic-pitch cuts it."""
    return {"serving_default_input_2:0": sound(generator, sizes["batch"], 43_844)[:, :, None]}


def speech(generator: np.random.Generator, sizes: Sizes, *, samples: int, with_rate: bool) -> Feeds:
    """One frame a row with its left context, and the state of a stream that has begun."""
    feeds: Feeds = {
        "input": sound(generator, sizes["batch"], samples),
        "state": generator.normal(0, 0.1, (2, sizes["batch"], 128)).astype(np.float32),
    }
    if with_rate:
        feeds["sr"] = np.array(16_000, np.int64)
    return feeds


def speech_frames(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """`length` frames that follow one another, from a fresh state."""
    frames = sound(generator, 1, 576 * sizes["length"]).reshape(sizes["length"], 576)
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": frames, "h": state, "c": state.copy()}


def wake_word_sound(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """Samples in the range of 16-bit integers, as openwakeword feeds them."""
    wave: Array = np.round(sound(generator, sizes["batch"], sizes["samples"]) * 32767)
    return {"input": wave}


def wake_word_mel(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """Frames of a log-mel spectrogram, scaled as openwakeword does (x / 10 + 2)."""
    frames = generator.normal(1.0, 0.6, (sizes["batch"], 76, 32, 1))
    return {"input_1": frames.astype(np.float32)}


def hebrew(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """Letters without vowel points; the model takes their indices as float32."""
    letters = generator.integers(1, 43, (sizes["batch"], sizes["length"]))
    return {"input_1": letters.astype(np.float32)}


def arabic(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """Letters and the marks already on them."""
    shape = (sizes["batch"], sizes["length"])
    return {
        "char_inputs": generator.integers(1, 54, shape),
        "diac_inputs": generator.integers(0, 16, shape),
        "input_lengths": np.full(shape[0], shape[1], np.int64),
    }


def noisy_speech(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """Log-mel frames and the unit vector of the speaker to keep."""
    batch, length = sizes["batch"], sizes["length"]
    speaker = generator.normal(size=(batch, 256))
    speaker /= np.linalg.norm(speaker, axis=1, keepdims=True)
    return {
        "stacked_logmel": generator.normal(-2.0, 1.5, (batch, length, 512)).astype(np.float32),
        "dvec": speaker.astype(np.float32),
        "h0": np.zeros((3, batch, 512), np.float32),
        "c0": np.zeros((3, batch, 512), np.float32),
    }


def speaker(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """One window of log-mel frames a row."""
    window = generator.normal(-2.0, 1.5, (sizes["batch"], 80, 40))
    return {"mel_window": window.astype(np.float32)}


def protein(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """A folded chain: atoms in a ball, each joined to its nearest neighbours, as caustic does."""
    atoms, neighbours = sizes["atoms"], sizes["neighbours"]
    residues = atoms // 8
    position = generator.normal(0, 9.0, (atoms, 3))
    distance = np.linalg.norm(position[:, None] - position[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.sort(np.argsort(distance, axis=1)[:, :neighbours], axis=1)
    source, target = nearest.reshape(-1), np.repeat(np.arange(atoms), neighbours)
    owner = np.arange(atoms) * residues // atoms
    separation = np.abs(owner[source] - owner[target])
    normal = generator.normal(size=(atoms, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    edges = len(source)

    def uniform(low: float, high: float, *shape: int) -> Array:
        return generator.uniform(low, high, shape).astype(np.float32)

    return {
        "element": generator.integers(0, 7, atoms),
        "amino_acid": generator.integers(0, 21, residues)[owner],
        "atom_role": generator.integers(0, 14, atoms),
        "bfactor": uniform(-1, 1, atoms),
        "edge_index": np.stack([source, target]),
        "edge_dist": np.clip(distance[target, source], 1.0, 8.0).astype(np.float32),
        "seq_sep": np.clip(separation, 0, 32),
        "same_residue": (separation == 0).astype(np.float32),
        "target_indices": generator.integers(0, atoms, (residues, 6)),
        "target_mask": generator.random((residues, 6)) < 0.9,
        "residue_types": generator.integers(0, 20, residues),
        "residue_geometry": uniform(-1, 1, residues, 52),
        "target_environment": uniform(0, 1, residues, 6, 15),
        "temperature_feature": uniform(-0.5, 0.5, residues, 1),
        "target_atom_rsasa": uniform(0, 1, residues, 6),
        "pos": position.astype(np.float32),
        "node_normal": normal.astype(np.float32),
        "is_hbond": (generator.random(edges) < 0.1).astype(np.float32),
        "hb_cos": uniform(-1, 1, edges),
    }
