"""Inputs look like what they stand for."""

from __future__ import annotations

import numpy as np

from benchmarks.samples import page, picture, protein, sentence, sound, speech_tokens


def test_a_picture_is_smooth_and_stays_in_range() -> None:
    image = picture(np.random.default_rng(0), (2, 3, 40, 56))
    assert image.shape == (2, 3, 40, 56)
    assert image.dtype == np.float32
    assert image.min() >= 0.0
    assert image.max() <= 1.0
    steps = np.abs(np.diff(image, axis=3)).mean()
    assert steps < 0.1 < image.std() * 2  # neighbours agree, far pixels do not


def test_a_page_is_light_with_dark_ink() -> None:
    image = page(np.random.default_rng(0), (1, 3, 96, 224))
    assert 0.02 < (image < 0.5).mean() < 0.5
    assert np.median(image) > 0.8


def test_sound_swings_within_one() -> None:
    wave = sound(np.random.default_rng(0), 2, 1600)
    assert wave.shape == (2, 1600)
    assert np.abs(wave).max() <= 1.0
    assert abs(float(wave.mean())) < 0.05


def test_every_second_sentence_is_padded() -> None:
    feeds = sentence(100, 1)(np.random.default_rng(0), {"batch": 2, "length": 8})
    assert feeds["attention_mask"].tolist() == [[1] * 8, [1] * 6 + [0] * 2]
    assert (feeds["input_ids"][1, 6:] == 0).all()
    assert feeds["input_ids"].max() < 100


def test_speech_begins_and_ends_with_the_mark() -> None:
    tokens = speech_tokens(np.random.default_rng(0), {"length": 5})["tokens"]
    assert tokens[0, 0] == tokens[0, -1] == 0
    assert (tokens[0, 1:-1] > 0).all()


def test_atoms_are_joined_to_others_only() -> None:
    feeds = protein(np.random.default_rng(0), {"atoms": 24, "neighbours": 3})
    source, target = feeds["edge_index"]
    assert len(source) == 24 * 3
    assert (source != target).all()
    assert feeds["target_indices"].shape == (3, 6)
