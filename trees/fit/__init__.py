"""What `fit` works on: points in memory, in shards or in batches, the reference clustering, and the problem."""
