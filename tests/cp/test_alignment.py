"""Alignment of draws: nothing that leaves the latent values alone changes what is made of the draws."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.cp.fitted.alignment import (
    align,
    aligned_rows,
    covariances,
    layout_of,
    reference_from,
    shared_scales,
    standard_form,
)
from tensorcep.cp.model.columns import free_columns, modes_of_columns

SHAPE = (14, 11, 9)
FIRST = (0, 14, 25, 34)
CP = {"main": 0, "pair": 0, "cp": 3}
PARTS = [CP, {"main": 0, "pair": 2, "cp": 0}, {"main": 1, "pair": 2, "cp": 3}, {"main": 2, "pair": 2, "cp": 2}]
EVERY = each("parts", PARTS)


def layout(parts, shape=SHAPE, seen=None):
    modes = modes_of_columns(free_columns(parts, len(shape)))
    return layout_of(shape, modes, np.ones(sum(shape), dtype=bool) if seen is None else seen)


def some_draws(rng, parts, n=20, noise=0.05, shape=SHAPE):
    """Draws near one truth; columns that are held are 1."""
    free = np.repeat(free_columns(parts, len(shape)), shape, axis=0)
    truth = rng.standard_normal((sum(shape), free.shape[1])) * np.linspace(2.0, 1.0, free.shape[1])
    draws = truth + noise * rng.standard_normal((n, *truth.shape))
    return np.where(free, draws, 1.0), np.where(free, truth, 1.0)


def latent(draws, shape=SHAPE):
    """Latent values of all cells."""
    one, two, three = np.split(draws, np.cumsum(shape)[:-1], axis=1)
    return np.einsum("dir,djr,dkr->dijk", one, two, three)


def disguised(rng, draws, found):
    """The same latent values by other factors: exchanged columns, signs, scales, other bases, moved constants."""
    result = draws.copy()
    for block in found.blocks:
        width = block.columns.stop - block.columns.start
        for d in range(len(draws)):
            parts = [result[d, found.rows[k], block.columns] for k in block.modes]
            if len(parts) == 1:
                shift = rng.standard_normal()
                parts[0][:, 0] += shift
                other = found.rows[(block.modes[0] + 1) % 3]
                column = next(b.columns.start for b in found.blocks if b.modes == ((block.modes[0] + 1) % 3,))
                result[d, other, column] -= shift
            elif len(parts) == 2:
                turn = rng.standard_normal((width, width)) + 2.0 * np.eye(width)
                parts[0][:] = parts[0] @ turn
                parts[1][:] = parts[1] @ np.linalg.inv(turn).T
            else:
                scale = rng.choice([-1.0, 1.0], (len(parts), width)) * np.exp(rng.standard_normal((len(parts), width)))
                scale[0] = 1.0 / scale[1:].prod(axis=0)
                order = rng.permutation(width)
                for part, size in zip(parts, scale, strict=True):
                    part[:] = (part * size)[:, order]
    return result


@EVERY
def test_alignment_leaves_the_latent_values_of_every_draw_alone(rng, parts):
    draws, _ = some_draws(rng, parts)
    found = layout(parts)
    for changed in (standard_form(draws, found), aligned_rows(draws, align(draws, found).reference, found)):
        np.testing.assert_allclose(latent(changed), latent(draws), rtol=0, atol=1e-10)


@EVERY
def test_alignment_does_not_see_what_the_latent_values_do_not_show(rng, parts):
    draws, _ = some_draws(rng, parts)
    found = layout(parts)
    other = disguised(rng, draws, found)
    np.testing.assert_allclose(latent(other), latent(draws), atol=1e-9)
    one, two = align(draws, found), align(other, found)
    for name in one._fields:
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=0, atol=1e-8, err_msg=name)
    for ours, theirs in zip(covariances(draws, one, found), covariances(other, two, found), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-8)


@EVERY
def test_aligned_means_are_the_truth_in_its_standard_form(rng, parts):
    draws, truth = some_draws(rng, parts, n=200)
    found = layout(parts)
    aligned = align(disguised(rng, draws, found), found)
    right = reference_from(truth, found)
    np.testing.assert_allclose(latent(aligned.mean[None]), latent(truth[None]), rtol=0.02, atol=0.3)
    assert aligned.congruence[(right != 0.0).all(axis=0)].min() > 0.95
    np.testing.assert_allclose(np.abs(aligned.mean), np.abs(right), rtol=0, atol=0.3)


def test_the_part_of_a_matrix_is_rotated_and_not_matched(rng):
    shape, parts = (14, 11), {"main": 0, "pair": 1, "cp": 2}
    draws, _ = some_draws(rng, parts, noise=0.0, shape=shape)
    found = layout(parts, shape)
    assert [block.modes for block in found.blocks] == [(0, 1)]
    turned = draws.copy()
    for draw in turned:
        turn = rng.standard_normal((3, 3))
        draw[:14], draw[14:] = draw[:14] @ turn, draw[14:] @ np.linalg.inv(turn).T
    aligned = align(turned, found)
    assert aligned.variance.max() < 1e-12
    sides = aligned.mean[:14] / np.sqrt(14), aligned.mean[14:] / np.sqrt(11)
    for side in sides:  # singular vectors: orthogonal, as long on both sides, the largest first
        gram = side.T @ side
        np.testing.assert_allclose(gram, np.diag(np.diag(sides[0].T @ sides[0])), atol=1e-10)
        assert (np.diff(np.diag(gram)) < 0.0).all()


def test_more_columns_than_rows_stay_exact(rng):
    shape, parts = (9, 2, 5), {"main": 1, "pair": 4, "cp": 3}
    draws, _ = some_draws(rng, parts, shape=shape)
    aligned = aligned_rows(draws, align(draws, layout(parts, shape)).reference, layout(parts, shape))
    np.testing.assert_allclose(latent(aligned, shape), latent(draws, shape), rtol=0, atol=1e-10)


def test_rows_without_entries_have_no_say(rng):
    seen = np.ones(sum(SHAPE), dtype=bool)
    seen[[3, 17, 30]] = False
    parts = PARTS[2]
    draws, _ = some_draws(rng, parts)
    wild = draws.copy()
    wild[:, ~seen] *= np.where(wild[:, ~seen] == 1.0, 1.0, 50.0 * rng.standard_normal((20, 3, 1)))
    one, two = (align(each, layout(parts, seen=seen)) for each in (draws, wild))
    np.testing.assert_allclose(two.mean[seen], one.mean[seen], rtol=0, atol=1e-10)
    assert np.abs(two.mean[~seen] - one.mean[~seen]).max() > 0.1


def test_a_mode_without_entries_does_no_harm(rng):
    seen = np.ones(sum(SHAPE), dtype=bool)
    seen[:14] = False
    draws, _ = some_draws(rng, CP)
    aligned = align(draws, layout(CP, seen=seen))
    assert np.isfinite(aligned.mean).all()
    assert np.isfinite(aligned.apart)


def test_columns_that_are_off_do_no_harm(rng):
    parts = PARTS[2]
    draws, _ = some_draws(rng, parts)
    for block in layout(parts).blocks[3:]:
        for k in block.modes:
            draws[:, FIRST[k] : FIRST[k + 1], block.columns.stop - 1] = 0.0
    aligned = align(draws, layout(parts))
    assert all(np.isfinite(array).all() for array in aligned)
    assert np.isfinite(shared_scales(aligned.mean, layout(parts))).all()


def test_draws_of_nothing_in_common_are_said_to_be_unlike(rng):
    found = layout(CP)
    alike, _ = some_draws(rng, CP)
    apart = rng.standard_normal(alike.shape)
    assert align(alike, found).unlike(found).size == 0
    assert sorted(align(apart, found).unlike(found)) == [0, 1, 2]


def test_components_are_those_of_the_largest_group_of_like_draws(rng):
    found = layout(CP)
    many, _ = some_draws(rng, CP)
    few, _ = some_draws(np.random.default_rng(7), CP)
    mixed = np.concatenate([few[:4], many, few[4:8]])
    aligned = align(mixed, found)
    assert np.array_equal(aligned.like, np.repeat([False, True, False], [4, len(many), 4]))
    assert aligned.unlike(found).size == 0
    np.testing.assert_allclose(np.abs(aligned.mean), np.abs(align(many, found).mean), atol=1e-6)


def test_draws_of_two_solutions_that_resemble_each_other_are_not_averaged(rng):
    """Two components with one column in common, whose others can be rotated: the same values by other components."""
    parts, angle = {"main": 0, "pair": 0, "cp": 2}, np.deg2rad(36.0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    one = np.ones((sum(SHAPE), 2)) * rng.standard_normal((sum(SHAPE), 1))
    for own in (slice(14, 25), slice(25, 34)):
        one[own] = np.sqrt(own.stop - own.start) * np.linalg.qr(rng.standard_normal((own.stop - own.start, 2)))[0]
    other = np.concatenate([one[:14], one[14:] @ turn])
    right = latent(one[None])
    np.testing.assert_allclose(latent(other[None]), right, atol=1e-12)
    draws = np.repeat([one, other], (12, 8), axis=0) + 0.02 * rng.standard_normal((20, *one.shape))
    aligned = align(draws[rng.permutation(20)], layout(parts))
    assert aligned.like.sum() == 12
    assert np.sqrt(np.mean((latent(aligned.mean[None]) - right) ** 2) / np.mean(right**2)) < 0.02
    assert aligned.apart < 0.25
    alike = align(draws[:12], layout(parts))
    assert alike.like.all()
    assert alike.apart < 0.25


def test_how_far_the_latent_values_of_the_components_are_from_those_of_the_draws(rng):
    one, _ = some_draws(rng, CP, n=12)
    two, _ = some_draws(rng, CP, n=8)
    aligned = align(np.concatenate([one, two]), layout(CP))
    assert aligned.like.sum() == 12
    # components of the 12 are 0.4 of the way between both from the mean of all, whose variance is 0.6 * 0.4 of that way
    np.testing.assert_allclose(aligned.apart, 0.4**2 / 0.24, rtol=0.05)
