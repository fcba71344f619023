"""scikit-learn's own checks: of an estimator of every kind by default, of all of them in slow runs."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator
from tree_witnesses import CLASSES

import neonxc
from neonxc.models import BetaInterpretable, KCenter, KernelKMeans, StronglyInterpretable
from neonxc.trees import CART, IMM, RandomThresholds

QUICK = [IMM(), KCenter(), StronglyInterpretable()]
OTHERS = [kind() for kind in {*CLASSES}.difference([IMM, RandomThresholds])]
WITH_OPTIONS = [
    CART(2, max_leaves=4, max_bins=8),
    KernelKMeans(),
    KernelKMeans(3, max_iter=20, objective="feature"),
    KernelKMeans(3, max_iter=20, objective="spherical"),
    KCenter(init="random", metric="manhattan"),
    BetaInterpretable(),
    BetaInterpretable(objective="kmeans"),
    BetaInterpretable(objective="kmedian", init="random"),
]


def failures(model):
    """What scikit-learn finds wrong, and the checks that it skips."""
    failed = []
    skipped = []
    passed = 0
    for estimator, check in estimator_checks_generator(model):
        name = getattr(check, "func", check).__name__
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(estimator)
            passed += 1
        except SkipTest:
            skipped.append(name)
        except Exception as error:
            failed.append(f"{model} {name}: {type(error).__name__}: {str(error)[:400]}")
    assert passed > 40
    return failed, skipped


@pytest.mark.parametrize("model", QUICK, ids=str)
def test_quick_ones(model):
    failed, skipped = failures(model)
    assert failed == []
    assert set(skipped) <= {"check_array_api_input"}  # which needs SciPy to start with its support


def check_all():
    for model in [*QUICK, *OTHERS, *WITH_OPTIONS]:
        failed, skipped = failures(model)
        assert failed == skipped == []


@pytest.mark.slow
def test_all_pass_and_no_check_is_skipped():
    path = [str(Path(neonxc.__file__).parents[1]), str(Path(__file__).parent), *filter(None, sys.path)]
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(path)}
    script = "import test_estimator_checks; test_estimator_checks.check_all()"
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
