"""What `fit` reads: tables in memory, in shards or in batches, and the reference clustering."""
