"""How much memory a test takes."""

import sys


def peak_memory():
    """Most bytes that this process has held so far, also outside of Python; 0 on Windows, which has no `resource`.

    tracemalloc would miss what torch and Pillow take. On Windows, comparisons of two peaks hold untried.
    """
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
