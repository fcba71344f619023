"""What users pass, and the files it is in: arrays, tensors, tables, sparse matrices, labels and weights."""
