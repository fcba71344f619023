"""Rules as text, markdown and HTML."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from neonxc.trees.rules import Rule
from neonxc.trees.tree import tree_of
from neonxc.trees.wording import Numbers, counts, readable, readable_number

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer
    from neonxc.trees.tree import ThresholdTree

WIDTH = 88  # characters of a printed rule before it goes on in the next line
HTML = """\
<style>
.neonxc-rules { border-collapse: collapse; font: 14px/1.45 system-ui, sans-serif; text-align: left; }
.neonxc-rules th, .neonxc-rules td { padding: 5px 14px; vertical-align: top; text-align: left; }
.neonxc-rules thead th { border-bottom: 2px solid #8888; }
.neonxc-rules tbody { border-bottom: 1px solid #8885; }
.neonxc-rules td.count, .neonxc-rules th.count { text-align: right; font-variant-numeric: tabular-nums; }
.neonxc-rules tbody th { min-width: 6em; }
.neonxc-rules .test { display: inline-block; }
.neonxc-rules .word { font-weight: normal; opacity: 0.6; }
</style>
<table class="neonxc-rules">
<thead><tr><th>cluster</th><th>rule</th><th class="count">samples</th><th class="count">mistakes</th></tr></thead>
{% for rules in clusters %}
<tbody>
{% for rule in rules %}
<tr>
{% if loop.first %}
<th rowspan="{{ rules|length }}" scope="rowgroup">{{ rule.name }}
{% for part in total(rules).split(", ") if rules|length > 1 %}
<div class="word">{{ part }}</div>
{% endfor %}
</th>
{% endif %}
<td>{% if not loop.first %}<span class="word">or</span> {% endif %}
{% for test in said(rule) %}
<span class="test">{% if not loop.first %}<span class="word">and</span> {% endif %}{{ test }}</span>
{% else %}
always
{% endfor %}
</td>
<td class="count">{{ number(rule.samples) }}</td>
<td class="count">{{ number(rule.mistakes) }}</td>
</tr>
{% endfor %}
</tbody>
{% endfor %}
</table>
"""


def render_rules(
    rules: Iterable[Rule] | ThresholdTree | TreeExplainer,
    format: Literal["text", "markdown", "html"] = "text",
    precision: int = 4,
) -> str:
    """Write rules for people, cluster by cluster.

    Parameters
    ----------
    rules : iterable of Rule, ThresholdTree or fitted tree explainer
        A tree's rules are ``tree.rules()``.
    format : {"text", "markdown", "html"}
        HTML is a fragment with a style of its own, to be put anywhere in a page.
    precision : int
        Significant digits of thresholds; more where two thresholds of one column would look the same.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import IMM, render_rules
    >>> X = np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]])
    >>> tree = IMM(n_clusters=2, random_state=0).fit(X, labels=[0, 0, 1, 1]).tree_
    >>> print(render_rules(tree.rules(feature_names=["width", "height"])))
    cluster 0: 2 samples, 0 mistakes
        width <= 2
    <BLANKLINE>
    cluster 1: 2 samples, 0 mistakes
        width > 2
    """
    rules = _rules_of(rules)
    writers = {"text": _as_text, "markdown": _as_markdown, "html": _as_html}
    if format not in writers:
        raise ValueError(f"format must be one of {list(writers)}, got {format!r}")
    bounds: dict[int, set[float]] = defaultdict(set)
    for condition in (condition for rule in rules for condition in rule.conditions):
        bounds[condition.feature].update(chain(*condition.intervals))
    numbers = {feature: readable(values, precision) for feature, values in bounds.items()}
    clusters: dict[Any, list[Rule]] = defaultdict(list)
    for rule in sorted(rules, key=lambda rule: rule.label):  # stable: leaves stay in their order
        clusters[rule.label].append(rule)
    return writers[format](list(clusters.values()), numbers)


def _rules_of(given: Any) -> list[Rule]:
    """Rules as they are, or those of a tree."""
    tree = tree_of(given)
    rules = given if tree is None else tree.rules()
    if isinstance(rules, Iterable):
        rules = list(rules)
        if all(isinstance(rule, Rule) for rule in rules):
            return rules
    raise TypeError(f"rules needs rules, a ThresholdTree or a fitted tree explainer, got {type(given).__name__}")


def _as_text(clusters: list[list[Rule]], numbers: Mapping[int, Numbers]) -> str:
    blocks = []
    for rules in clusters:
        lines = [f"{rules[0].name}: {_total(rules)}"]
        bodies = [_wrapped(_said(rule, numbers) or ["always"]) for rule in rules]
        width = max(len(line) for body in bodies for line in body)
        amounts = [readable_number(rule.samples) for rule in rules]
        for rule, body, amount in zip(rules, bodies, amounts, strict=True):
            lines += [("    " if rule is rules[0] else "or  ") + body[0], *("    " + line for line in body[1:])]
            if len(rules) > 1:  # a single rule's counts are the cluster's
                indent = " " * (max(map(len, amounts)) - len(amount))
                lines[-len(body)] = f"{lines[-len(body)]:{width + 7}}{indent}{counts(rule.samples, rule.mistakes)}"
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _wrapped(conditions: list[str]) -> list[str]:
    """Lines of a rule, which goes on in the next one before an "and", or before every "or" of a long condition."""
    lines: list[str] = []
    for condition in conditions:
        text = f"and {condition}" if lines else condition
        if lines and len(lines[-1]) + 1 + len(text) <= WIDTH:
            lines[-1] += f" {text}"
        else:
            lines += [text] if len(text) <= WIDTH else re.sub(r" (?=or )", "\n    ", text).split("\n")
    return lines


def _as_markdown(clusters: list[list[Rule]], numbers: Mapping[int, Numbers]) -> str:
    blocks = []
    for rules in clusters:
        lines = [f"### {_no_markdown(rules[0].name)}", "", _total(rules), ""]
        for rule in rules:
            text = " **and** ".join(_said(rule, numbers, _no_markdown)) or "always"
            own = f" ({counts(rule.samples, rule.mistakes)})" if len(rules) > 1 else ""
            lines.append(f"- {'' if rule is rules[0] else '**or** '}{text}{own}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _no_markdown(name: str) -> str:
    name = re.sub(r"([\\`*_\[\]<>|~$&#])", r"\\\1", name)
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", name)  # "- x" and "1. x" would begin a list


def _as_html(clusters: list[list[Rule]], numbers: Mapping[int, Numbers]) -> str:
    # PyTorch needs jinja2, so it is there; only a page that is really written has to wait for its import.
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(HTML)
    said = partial(_said, numbers=numbers)
    return template.render(clusters=clusters, said=said, number=readable_number, total=_total)


def _said(rule: Rule, numbers: Mapping[int, Numbers], escape: Callable[[str], str] = str) -> list[str]:
    return rule._said(lambda one: one._say(numbers[one.feature], escape(one.name)))


def _total(rules: list[Rule]) -> str:
    return counts(sum(rule.samples for rule in rules), sum(rule.mistakes for rule in rules))
