"""scikit-learn's estimator checks, in a process of their own so that none is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import neonxc

CHECKS = """
import sys, warnings
from unittest import SkipTest
from sklearn.utils.estimator_checks import estimator_checks_generator
from {module} import {name}
warnings.simplefilter("ignore")
for model in {models}:
    passed = 0
    for estimator, check in estimator_checks_generator(model):
        try:
            check(estimator)
            passed += 1
        except (Exception, SkipTest) as error:
            name = getattr(check, "func", check).__name__
            print(f"FAILED {{model}} {{name}}: {{type(error).__name__}}: {{str(error)[:400]}}")
    print(f"PASSED {{passed}}")
"""


def assert_checks_pass(*models):
    """Assert that all checks of some estimators of a class pass and none is skipped.

    Those on array namespaces are skipped unless SciPy starts with its support, hence the process.
    """
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(neonxc.__file__).parents[1]), *filter(None, sys.path)])
    kind = type(models[0])
    script = CHECKS.format(module=kind.__module__, name=kind.__name__, models=list(models))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.count("PASSED") == len(models), done.stderr
    assert "FAILED" not in done.stdout, done.stdout
    assert all(int(line.split()[1]) > 40 for line in done.stdout.splitlines())
