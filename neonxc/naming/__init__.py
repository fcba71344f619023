"""Names of clusters, and a blind test that tells whether they hold.

A judge who knows the names alone sorts rows by them (:mod:`neonxc.naming.judges`). A name passes if the rows of
its cluster choose it, and if those who choose it are its own (:mod:`neonxc.naming.blind_test`). Names are chosen
among candidates (:mod:`neonxc.naming.candidates`), or asked from a namer (:mod:`neonxc.naming.evidence`), on
other rows than they are tested on.
"""
