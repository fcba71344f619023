"""Counterfactuals: the nearest point that belongs to another cluster."""

from neonxc.counterfactuals.find import counterfactual
from neonxc.counterfactuals.result import Counterfactual

__all__ = ["Counterfactual", "counterfactual"]
