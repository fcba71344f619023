"""Modules that all folders use: results, numbers, arguments, memory, progress, processes, storage."""
