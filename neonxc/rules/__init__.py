"""Rules: what points of a cluster have in common, and the forms in which people carry them away."""

from neonxc.rules import tabular  # noqa: F401  # registers how rules are stored
from neonxc.rules.collection import Rules
from neonxc.rules.condition import Column, Condition
from neonxc.rules.rendering import render_rules
from neonxc.rules.rule import Counts, Rule
from neonxc.rules.sql import SQL

__all__ = ["SQL", "Column", "Condition", "Counts", "Rule", "Rules", "render_rules"]
