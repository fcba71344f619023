"""The `neonxc` command: each of its commands parses arguments, calls the Python interface and prints."""
