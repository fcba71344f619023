"""What makes a cut good: one file per criterion, all on the contract of :mod:`neonxc.trees.criterion`."""
