"""What every part of the package shares: numbers as text, arguments, memory, progress, processes, storage."""
