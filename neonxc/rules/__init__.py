"""Rules that describe clusters, and their export as text, markdown, HTML, SQL, Python, pandas queries and JSON."""

from neonxc.rules.code import SQL
from neonxc.rules.collection import Rules
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rendering import render_rules
from neonxc.rules.rule import Counts, Rule

__all__ = ["SQL", "Column", "Condition", "Counts", "Rule", "Rules", "render_rules"]
