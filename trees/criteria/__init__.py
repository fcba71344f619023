"""What makes a cut good: one file per criterion, all on the sweep of :mod:`neonxc.trees.sweep`."""
