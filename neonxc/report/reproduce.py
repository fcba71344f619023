"""How to make a report again: versions, parameters, code."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import Any

from neonxc.report.contents import Reproduce
from neonxc.report.subject import Subject
from neonxc.report.tree import TreePart

PACKAGES = ("neonxc", "torch", "scikit-learn", "numpy", "pandas")

READABLE = 30  # rules that anybody reads one after the other; all of them are on the cards


def reproduce(subject: Subject, tree: TreePart | None) -> Reproduce:
    """Versions, the clusterer's parameters, and the code that explains it."""
    versions = [("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:  # a bare clone
            versions.append((name, "unknown"))
    code = [("Explain it again", "python", _again(subject))]
    if tree is not None:
        rules = tree.tree.rules(feature_names=subject.names)
        code.append(("The rules as SQL", "sql", rules.to_sql("my_table").case))
        code.append(("The rules in Python", "python", rules.to_python()))
        if len(rules) <= READABLE:
            code.append(("The rules as text", "text", str(rules)))
    return Reproduce(versions, _parameters(subject, tree), code)


def _parameters(subject: Subject, tree: TreePart | None) -> list[tuple[str, str]]:
    found = [("clusterer", one_line(subject.model)), ("beta", f"{subject.whole.beta:.6g}")]
    if tree is not None:
        found.append(("tree", f"{type(tree.explainer).__name__} with {tree.tree.n_leaves} leaves"))
    return found


def one_line(model: Any) -> str:
    """An estimator as it prints itself, in one line."""
    return "labels" if model is None else " ".join(repr(model).split())


def _again(subject: Subject) -> str:
    given = "X, labels=labels" if subject.model is None else "model, X"
    features = ", features" if subject.kind in ("images", "locations") else ""
    names = json.dumps({str(label): name for label, name in subject.cluster_names.items()}, ensure_ascii=False)
    extra = f", cluster_names={names}" if subject.cluster_names else ""
    return f'import neonxc\n\nreport = neonxc.explain({given}{features}{extra})\nreport.save("report.html")\n'
