"""What every part of the package shares: results, numbers, arguments, memory, progress, processes, storage."""
