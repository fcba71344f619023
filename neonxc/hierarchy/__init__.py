"""Layers of clusters: why a cluster split, and what tells its parts apart.

What users have, labels of several resolutions, dendrograms and condensed trees, is read as forks
(:mod:`neonxc.hierarchy.forks`): clusters with the parts that they fall into. Each fork is explained by a contrast
of its parts, by rules, by a verdict whether they are separated, and by names.
"""
