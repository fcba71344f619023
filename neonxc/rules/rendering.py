"""Render rules as text, markdown and HTML.

All formats have the same parts: for each cluster its name, its measures (:func:`_of_cluster`), and its rules;
clusters without a rule; and the measures of all rules together (:func:`_overall`). Markdown and HTML also explain
the measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from math import isnan
from typing import TYPE_CHECKING, Any

from neonxc.common.locales import printed_like
from neonxc.common.numbers import percent, plural, text
from neonxc.common.result import escape_markdown
from neonxc.common.types import Label
from neonxc.rules.condition import printed_bounds
from neonxc.rules.rule import Counts, Rule, RuleSet, overall, summed
from neonxc.rules.wording import counts

if TYPE_CHECKING:
    from jinja2 import Template

Conditions = Callable[[Rule], list[str]]
"""Writes the conditions of a rule."""
PRICE = 0.98  # smallest cost ratio that is shown: below it, the reference is not a k-means clustering
WIDTH = 72  # maximum number of characters in a line of a printed rule
HTML = """\
<style>
.neonxc-rules { border-collapse: collapse; font: 14px/1.45 system-ui, sans-serif; text-align: left; }
.neonxc-rules th, .neonxc-rules td { padding: 5px 14px; vertical-align: top; text-align: left; }
.neonxc-rules thead th { border-bottom: 2px solid #8888; vertical-align: bottom; }
.neonxc-rules tbody { border-bottom: 1px solid #8885; }
.neonxc-rules td.count, .neonxc-rules th.count { text-align: right; font-variant-numeric: tabular-nums; }
.neonxc-rules tbody th { min-width: 6em; }
.neonxc-rules .rule { min-width: 16em; }
.neonxc-rules .test { display: inline-block; }
.neonxc-rules .word { font-weight: normal; opacity: 0.6; }
.neonxc-rules div.word { white-space: nowrap; }
.neonxc-rules .words { opacity: 0.7; font-size: 12px; max-width: 60em; }
</style>
<table class="neonxc-rules">
<thead><tr><th>cluster</th><th>rule</th>
{% for title in titles %}<th class="count">{{ title }}</th>{% endfor %}
</tr></thead>
{% for rules in clusters %}
<tbody>
{% for rule in rules %}
<tr>
{% if loop.first %}
<th rowspan="{{ rules|length }}" scope="rowgroup">{{ rule.name }}
{% for part in total(rule)[0].split(", ") if rules|length > 1 %}
<div class="word">{{ part }}</div>
{% endfor %}
</th>
{% endif %}
<td class="rule">{% if not loop.first %}<span class="word">or</span> {% endif %}
{% for test in conditions(rule) %}
<span class="test">{% if not loop.first %}<span class="word">and</span> {% endif %}{{ test }}</span>
{% else %}
always
{% endfor %}
</td>
{% for figure in figures(rule) %}<td class="count">{{ figure }}</td>{% endfor %}
</tr>
{% endfor %}
</tbody>
{% endfor %}
{% for name, what in without %}
<tbody><tr><th>{{ name }}</th><td colspan="{{ titles|length + 1 }}">{{ what }}</td></tr></tbody>
{% endfor %}
<tfoot>
{% for title, text in overall %}
<tr><th>{{ title }}</th><td colspan="{{ titles|length + 1 }}">{{ text }}</td></tr>
{% endfor %}
<tr><td class="words" colspan="{{ titles|length + 2 }}">
{% for word, what in words %}<span><i>{{ word }}</i>: {{ what }}. </span>{% endfor %}
</td></tr>
</tfoot>
</table>
"""
MARKDOWN = """\
{% for rules in clusters %}
### {{ escape(rules[0].name) }}

{{ total(rules[0])[0] }}

{% for measures in total(rules[0])[1:] %}
Held out: {{ measures }}

{% endfor %}
{% for rule in rules %}
{% set measures = " (" ~ in_short(rule) ~ ")" if rules|length > 1 else "" %}
- {{ "" if loop.first else "**or** " }}{{ conditions(rule)|join(" **and** ") or "always" }}{{ measures }}
{% endfor %}

{% endfor %}
{% for name, what in without %}
### {{ escape(name) }}

{{ what|capitalize }}.

{% endfor %}
{% for title, text in overall %}
**{{ title }}**: {{ text }}

{% endfor %}
{% for word, what in words %}*{{ word|capitalize }}*: {{ what }}. {% endfor %}
"""
WORDS = {
    "mistakes": "matching samples of other clusters",
    "coverage": "share of the cluster's samples that match",
    "precision": "share of the matching samples that belong to the cluster",
    "agreement": "share of all samples that match a rule of their own cluster",
    "cost ratio": "k-means cost of the clusters of the rules divided by that of the explained clustering",
}


def render_rules(
    rules: object,
    format: str = "text",
    precision: int | None = None,
) -> str:
    """Write rules as readable text, cluster by cluster, with their measures.

    *Samples* are the training points that match a rule, and *mistakes* those of them that belong to other
    clusters. *Coverage* is the share of the cluster's points that match, *precision* the share of matching points
    that belong to the cluster. Points of noise are not counted; if some match, the precision *with noise* counts
    them, too. Clusters without a rule are listed. The last line summarises the rules of a tree: the *agreement* is
    the share of all points that meet a rule of their own cluster. The *cost ratio* is the price of explainability,
    the k-means cost of the tree's clusters divided by that of the reference clustering
    (:func:`neonxc.evaluation.cost_ratio`). It is omitted if it is below 0.98, because then the reference is not a
    k-means clustering. After :meth:`Rules.measure` the measures of the held-out points are added.

    Parameters
    ----------
    rules : Rules, iterable of Rule, ThresholdTree or fitted tree explainer
        Rules to write; for a tree these are ``tree.rules()``.
    format : {"text", "markdown", "html"}
        Output format. HTML is a fragment with its own style sheet, which can be placed anywhere in a page.
    precision : int, optional
        Number of significant digits; more are used if two bounds of a column would look the same. Default: as many
        as are needed to separate the training values, or 4 if these are unknown.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If `rules` has another type.
    ValueError
        If the format is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import IMM, render_rules
    >>> X = np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]])
    >>> tree = IMM(n_clusters=2, random_state=0).fit(X, labels=[0, 0, 1, 1]).tree_
    >>> print(render_rules(tree.rules(feature_names=["width", "height"])))
    cluster 0: 2 samples (50%), 0 mistakes, coverage 100%, precision 100%
        width ≤ 2
    <BLANKLINE>
    cluster 1: 2 samples (50%), 0 mistakes, coverage 100%, precision 100%
        width > 2
    <BLANKLINE>
    total: 4 samples, 0 mistakes, agreement 100%, cost ratio 1
    """
    rule_set = _rules_of(rules)
    if format not in ("text", "markdown", "html"):
        raise ValueError(f"format must be one of ['text', 'markdown', 'html'], got {format!r}")
    conditions = chain.from_iterable(rule.conditions for rule in rule_set.rules)
    numbers = printed_bounds(conditions, precision)
    escape = _escape_markdown if format == "markdown" else str

    def condition_texts(rule: Rule) -> list[str]:
        return rule.condition_texts(lambda condition: condition.render(numbers[condition.column], escape))

    with printed_like(rule_set.marks):
        if format == "text":
            return _as_text(rule_set, condition_texts)
        return _filled(format, rule_set, condition_texts)


def _rules_of(source: object) -> RuleSet:
    """Return rules unchanged, or the rules of a tree."""
    tree: Any = getattr(source, "tree_", source)
    if callable(getattr(tree, "rules", None)):
        source = tree.rules()
    if isinstance(source, RuleSet):
        return source
    rules = tuple(source) if isinstance(source, Iterable) else None
    if rules is None or not all(isinstance(rule, Rule) for rule in rules):
        raise TypeError(
            f"rules must be rules, a ThresholdTree or a fitted tree explainer, got {type(tree).__name__}"
        )
    by_label = sorted(rules, key=lambda rule: rule.label)
    totals = summed((rule.label, rule.counts) for rule in by_label)
    held_out = [(rule.label, rule.held_out) for rule in rules if rule.held_out is not None]
    if not rules or len(held_out) < len(rules):
        return RuleSet(rules, totals)
    return RuleSet(rules, totals, held_out_totals=summed(held_out))


def _as_text(rules: RuleSet, conditions: Conditions) -> str:
    """Write rules as text, a paragraph for each cluster."""
    paragraphs = [_paragraph(rules, label, of_label, conditions) for label, of_label in rules.clusters.items()]
    paragraphs += [f"{name}: {why}" for name, why in no_rule(rules)]
    paragraphs.append("\n    ".join(_overall(rules)))
    return "\n\n".join(filter(None, paragraphs))


def _paragraph(rules: RuleSet, label: Label, of_label: list[Rule], conditions: Conditions) -> str:
    """Write the rules of a cluster; several ones have their measures in the same line, aligned."""
    measures, *held_out = _of_cluster(rules, label)
    lines = [f"{of_label[0].name}: {measures}"]
    lines += [f"    held out: {line}" for line in held_out]

    bodies = [_wrapped(conditions(rule) or ["always"]) for rule in of_label]
    # the measures begin three spaces behind the longest line, which four characters precede
    width = 7 + max(map(len, chain(*bodies)))
    amounts = [text(rule.samples) for rule in of_label]
    longest = max(map(len, amounts))
    for i, (rule, body) in enumerate(zip(of_label, bodies, strict=True)):
        start = "or  " if i else "    "
        first = start + body[0]
        if len(of_label) > 1:  # a single rule has the same measures as its cluster
            indent = width + longest - len(amounts[i])  # the numbers of samples end in the same column
            first = f"{first:{indent}}{_in_short(rule, rules.divide)}"
        lines.append(first)
        lines += [f"    {line}" for line in body[1:]]
    return "\n".join(lines)


def _overall(rules: RuleSet) -> list[str]:
    """Lines with the totals of all rules; none for a single rule, or for rules that may overlap."""
    lines = []
    for title, held_out in (("total", False), ("held out", True)):
        total = overall(rules, held_out)
        if total is not None and len(rules.rules) > 1:
            parts = [counts(total.samples, total.mistakes), f"agreement {precision(total)}"]
            if rules.cost_ratio is not None and rules.cost_ratio >= PRICE and not held_out:
                parts.append(f"cost ratio {text(round(rules.cost_ratio, 3))}")
            lines.append(f"{title}: {', '.join(parts)}")
    if rules.n_noise:
        lines.append(
            f"not counted: {plural(rules.n_noise, 'point')} of noise (label -1), which the rules also assign to "
            "clusters; only the shares with noise count them"
        )
    return lines


def _words(rules: RuleSet) -> list[tuple[str, str]]:
    """Definitions of those measures that occur in the output."""
    total = " ".join(_overall(rules))
    has_rules = bool(rules.rules)
    used = {"coverage": has_rules, "precision": has_rules, "mistakes": has_rules and rules.divide}
    return [(word, meaning) for word, meaning in WORDS.items() if used.get(word, word in total)]


def _wrapped(conditions: list[str]) -> list[str]:
    """Break a rule into lines: before an "and", or between the alternatives of a long condition."""
    lines: list[str] = []
    for condition in conditions:
        text = f"and {condition}" if lines else condition
        if len(text) <= WIDTH:
            _append(text, lines, "")
        else:
            first, *others = re.split(r" (?=or )|(?<=,) (?!\S+\])", text)  # not inside (1, 2]
            lines.append(first)
            for alternative in others:
                _append(alternative, lines, "    ")
    return lines


def _append(text: str, lines: list[str], indent: str) -> None:
    """Append a text to the last line, or to the lines if it does not fit."""
    if lines and len(lines[-1]) + 1 + len(text) <= WIDTH:
        lines[-1] += f" {text}"
    else:
        lines.append(indent + text)


def _escape_markdown(name: str) -> str:
    """Escape a name at the start of a line, where "- x" and "1. x" would start a list."""
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", escape_markdown(name))


def _filled(format: str, rules: RuleSet, conditions: Conditions) -> str:
    """Fill in the template of a format."""
    has_held_out = rules.held_out_totals is not None
    titles = ["samples", "mistakes", "coverage", "precision"]
    if not rules.divide:
        titles.remove("mistakes")
    if has_held_out:
        titles += [f"held-out {title}" for title in titles]

    def figures(rule: Rule) -> list[str]:
        """The measures of a rule in the order of the titles."""
        texts = _figures(rule.counts, rules.divide)
        if has_held_out and rule.held_out is not None:
            texts += _figures(rule.held_out, rules.divide)
        return texts

    filled = _compiled(format).render(
        clusters=rules.clusters.values(),
        titles=titles,
        overall=[line.partition(": ")[::2] for line in _overall(rules)],
        words=_words(rules),
        without=no_rule(rules),
        escape=_escape_markdown,
        conditions=conditions,
        total=lambda rule: _of_cluster(rules, rule.label),
        in_short=lambda rule: _in_short(rule, rules.divide),
        figures=figures,
    )
    return filled.strip()


def _figures(measured: Counts, divide: bool) -> list[str]:
    """Write the measures of a rule for the cells of a table."""
    texts = [text(measured.samples)]
    if divide:
        texts.append(text(measured.mistakes))
    return [*texts, percent(measured.coverage), precision(measured)]


def _of_cluster(rules: RuleSet, label: Label) -> list[str]:
    """All measures of a cluster, and those of its held-out points if there are any.

    Such as ``59 samples (33%), 2 mistakes, coverage 97%, precision 97%``.
    """
    texts = []
    for totals in (rules.totals, rules.held_out_totals):
        if totals:
            texts.append(_measures(totals[label], rules.divide))
    return texts


def _measures(total: Counts, divide: bool) -> str:
    """Write the measures of a cluster."""
    if isnan(total.samples):
        return "several patterns, which may overlap"
    samples, mistakes = counts(total.samples, total.mistakes).split(", ")
    if not isnan(total.support):
        samples += f" ({percent(total.support)})"
    parts = [samples]
    if divide:
        parts.append(mistakes)
    return ", ".join([*parts, *_fractions(total)])


def _in_short(rule: Rule, divide: bool) -> str:
    """Measures of one of several rules, without the precision, which follows from the mistakes."""
    mistakes = rule.mistakes if divide else None
    amounts = counts(rule.samples, mistakes)
    fractions = _fractions(rule.counts, with_precision=not divide or bool(rule.counts.noise))
    measures = ", ".join([amounts, *fractions])
    if rule.held_out is not None:
        measures += f"; held out: {', '.join(_fractions(rule.held_out))}"
    return measures


def _fractions(measured: Counts, with_precision: bool = True) -> list[str]:
    """Write the coverage and the precision, as far as they are known."""
    fractions = []
    if not isnan(measured.coverage):
        fractions.append(f"coverage {percent(measured.coverage)}")
    if with_precision and not isnan(measured.precision):
        fractions.append(f"precision {precision(measured)}")
    return fractions


def precision(measured: Counts) -> str:
    """Write the precision, and that of all points if there is noise among them: ``99% (65% with noise)``."""
    if not measured.noise:
        return percent(measured.precision)
    return f"{percent(measured.precision)} ({percent(measured.precision_with_noise)} with noise)"


def no_rule(rules: RuleSet) -> list[tuple[str, str]]:
    """Name of each cluster without a rule, and why it has none."""
    return [(name, "no rule: no leaf of the tree has this cluster") for _, name in rules.without_rule]


@cache
def _compiled(format: str) -> Template:
    """Compile the template of a format."""
    from jinja2 import Environment  # imported only when it is needed

    is_html = format == "html"
    source = HTML if is_html else MARKDOWN
    environment = Environment(autoescape=is_html, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source)
