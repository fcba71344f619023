"""Section "Reproduce" of a report: versions, parameters and code."""

from __future__ import annotations

import json
import platform
import re
from importlib import metadata

from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Reproduce
from neonxc.report.tree import FittedTree

PACKAGES = ("neonxc", "torch", "scikit-learn", "numpy", "pandas")

READABLE = 30  # maximum number of rules printed as one text; the cards show all rules


def reproduce(clustering: ClusteredData, tree: FittedTree) -> Reproduce:
    """Collect versions, parameters of the clusterer, and code for the report and the rules."""
    versions = [("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:  # run from a source tree without installation
            versions.append((name, "unknown"))
    parameters = [
        ("clusterer", one_line(clustering.model)),
        ("beta", f"{clustering.whole.beta:.6g}"),
        ("tree", f"{type(tree.explainer).__name__} with {tree.tree.n_leaves} leaves"),
    ]
    rules = tree.tree.rules(feature_names=clustering.rule_names, terms=clustering.has_terms)
    code = [
        ("Create this report", "python", _again(clustering)),
        ("Rules as SQL", "sql", rules.to_sql("my_table").case),
        ("Rules in Python", "python", rules.to_python()),
    ]
    if len(rules) <= READABLE:
        code.append(("Rules as text", "text", str(rules)))
    return Reproduce(versions, parameters, code)


def one_line(model: object) -> str:
    """Return the ``repr`` of an estimator in one line, without addresses of functions."""
    if model is None:
        return "labels"
    written = " ".join(repr(model).split())
    return re.sub(" at 0x[0-9a-f]+", "", written)  # addresses in memory


def _again(clustering: ClusteredData) -> str:
    """Write the call that makes the report again, for names that the user has."""
    inputs = "X, labels=labels" if clustering.model is None else "model, X"
    features = "" if clustering.net is clustering.whole else ", features"
    names = clustering.cluster_names
    extra = f", cluster_names={json.dumps(names, ensure_ascii=False)}" if names else ""
    return f'import neonxc\n\nreport = neonxc.explain({inputs}{features}{extra})\nreport.save("report.html")\n'
