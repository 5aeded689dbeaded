"""Student's t distribution. scipy.special has the same, but takes long to import, and 30 MB."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_STEPS, _PRECISION, _TINY = 1000, 1e-15, 1e-300
_NEWTON_STEPS, _LEAST_PROBABILITY = 60, 1e-290
_FLAT = 0.25
"""Above this probability of a greater value the tail is nearly a straight line."""


def quantile(probability: Array | float, dof: Array) -> Array:
    """The value that is not exceeded with a probability. dof: degrees of freedom, > 0."""
    p, v = np.broadcast_arrays(np.asarray(probability, dtype=np.float64), np.asarray(dof, dtype=np.float64))
    pairs, place = np.unique(np.stack([p.ravel(), v.ravel()]), axis=1, return_inverse=True)
    values = _quantiles(pairs[0], pairs[1])
    return np.asarray(values[place.ravel()].reshape(p.shape))


def beyond(value: Array, dof: Array) -> Array:
    """The probability of a greater value."""
    t, v = np.broadcast_arrays(np.asarray(value, dtype=np.float64), np.asarray(dof, dtype=np.float64))
    tail = _tail(np.abs(t).ravel(), v.ravel()).reshape(t.shape)
    return np.asarray(np.where(t >= 0, tail, 1.0 - tail))


def _quantiles(p: Array, dof: Array) -> Array:
    tail = np.maximum(np.minimum(p, 1.0 - p), _LEAST_PROBABILITY)
    normal = NormalDist()
    t = np.array([-normal.inv_cdf(float(one)) for one in np.minimum(tail, 0.5 - 1e-17)])
    inside = tail < 0.5
    t = np.where(inside, np.maximum(t, 1e-12), 0.0)
    flat = tail > _FLAT
    for _ in range(_NEWTON_STEPS):
        found, density = _tail(t, dof), _density(t, dof)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Newton's method: for small probabilities on logarithms, in which a tail is nearly straight.
            steep = t * np.exp(np.clip(np.log(found / tail) * found / (t * density), -2.0, 4.0))
        changed = np.where(flat, t + (found - tail) / density, steep)
        changed = np.where(inside, changed, 0.0)
        done = np.abs(changed - t) <= 4e-15 * np.abs(changed)
        t = changed
        if done.all():
            break
    return np.asarray(np.where(p < 0.5, -t, t))


def _density(t: Array, dof: Array) -> Array:
    power = (dof + 1) / 2
    return np.asarray(np.exp(-power * np.log1p(t * t / dof) - _log_beta_half(dof) - np.log(dof) / 2))


def _log_beta_half(dof: Array) -> Array:
    """ln B(dof / 2, 1 / 2)."""
    return np.array([math.lgamma(v / 2) + math.lgamma(0.5) - math.lgamma((v + 1) / 2) for v in dof.tolist()])


def _tail(t: Array, dof: Array) -> Array:
    """The probability of a value greater than t >= 0: half of the regularized incomplete beta function at
    dof / (dof + t^2) of dof / 2 and 1 / 2."""
    squares = t * t
    x, rest = dof / (dof + squares), squares / (dof + squares)
    half = np.full_like(dof, 0.5)
    turned = x >= (dof / 2 + 1) / (dof / 2 + 2.5)
    a, b = np.where(turned, half, dof / 2), np.where(turned, dof / 2, half)
    z = np.where(turned, rest, x)
    # log1p: x is near 1 where t is small and the degrees of freedom are many.
    with np.errstate(divide="ignore"):
        logs = dof / 2 * -np.log1p(squares / dof) + half * np.log(rest)
    front = np.exp(logs - _log_beta_half(dof)) / a
    value = front * _continued_fraction(a, b, z)
    return np.asarray(np.where(turned, 1.0 - value, value) / 2)


def _continued_fraction(a: Array, b: Array, x: Array) -> Array:
    """The continued fraction of the incomplete beta function, by Lentz (Numerical Recipes, 6.4)."""
    c = np.ones_like(x)
    d = 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        twice = a + 2 * m
        for factor in (
            m * (b - m) * x / ((twice - 1) * twice),
            -(a + m) * (a + b + m) * x / (twice * (twice + 1)),
        ):
            d = 1.0 / _not_zero(1.0 + factor * d)
            c = _not_zero(1.0 + factor / c)
            value = value * (c * d)
        if (np.abs(c * d - 1.0) < _PRECISION).all():
            break
    return value


def _not_zero(value: Array) -> Array:
    return np.where(np.abs(value) < _TINY, _TINY, value)
