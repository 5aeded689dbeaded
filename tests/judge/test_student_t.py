"""Student's t distribution agrees with scipy's."""

from __future__ import annotations

import numpy as np
import scipy.special

from tile_oracle.judge.student_t import beyond, quantile

DOF = np.array([0.7, 1, 1.5, 2, 3, 4.2, 7, 12.5, 30, 99, 1234.5, 1e5, 1e7])


def test_quantiles_are_those_of_scipy() -> None:
    probability = np.r_[1e-12, 1e-9, 1e-6, 1e-4, 0.01, 0.05, 0.2, 0.249, 0.251, 0.4, 0.4999]
    probability = np.r_[probability, 0.5, 1 - probability]
    p, dof = np.meshgrid(probability, DOF)
    expected = scipy.special.stdtrit(dof, p)
    found = quantile(p, dof)
    assert found.shape == expected.shape
    np.testing.assert_allclose(beyond(found, dof), 1 - p, rtol=1e-9, atol=1e-16)
    away = np.abs(p - 0.5) > 0.01
    np.testing.assert_allclose(found[away], expected[away], rtol=1e-7)


def test_tails_are_those_of_scipy() -> None:
    value, dof = np.meshgrid(np.r_[-40.0, -3, -0.1, 0, 1e-9, 0.01, 0.5, 1, 2, 5, 20, 300], DOF)
    expected = scipy.special.stdtr(dof, -value)
    np.testing.assert_allclose(beyond(value, dof), expected, rtol=1e-8, atol=1e-300)


def test_one_probability_serves_many_degrees_of_freedom() -> None:
    np.testing.assert_allclose(quantile(0.975, np.array([5.0, 10.0])), [2.5705818366, 2.2281388520])
    assert quantile(0.9, np.zeros(0)).shape == (0,)
