"""Break one line of the core at a time, and tell which changes no test notices.

python -m tests.mutants [--count 60] [--seed 0] [--only REGEX] [--runs FILE] [--list]

A change swaps a sign or a comparison, drops a term, takes another axis, turns a condition round, or ends a loop at
once. A change that survives is either harmless (the same result by another way) or not tested.

The default tests run once under coverage (pytest-cov), which tells the tests that run each line; `--runs` names a
file that keeps the answer. Then each change is made in a copy of the checkout, and the tests that run its line are
asked until one fails: those that run few lines first, and at last whole files, as the first test of a file may
compute what others compare.
"""

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    "neonxc/head neonxc/lrp neonxc/pipelines neonxc/inputs neonxc/attribution neonxc/clusterings models/kernel "
    "trees/criteria trees/cuts trees/explainers trees/fit"
)
LIMIT = 3600  # seconds; a change may make a loop without end
FEW = 40  # tests that are asked first, in one process
SWAPS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


class Mutant(NamedTuple):
    """A change of a piece of source code, from byte `start` to byte `stop` of a file."""

    file: str
    line: int
    start: int
    stop: int
    old: str
    new: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.old!r} -> {self.new!r}"


def changes(node):
    """Yield the changes of a node: what is replaced, and by which code."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left = ast.unparse(node.left)
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        yield node, f"{left} {sign} ({ast.unparse(node.right)})"
        yield node, left
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        swapped = SWAPS[type(node.ops[0])]()
        yield node, ast.unparse(ast.Compare(node.left, [swapped, *node.ops[1:]], node.comparators))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield node, ast.unparse(node.operand)
    elif isinstance(node, ast.keyword) and node.arg == "dim" and isinstance(node.value, ast.Constant):
        yield node.value, str(1 - bool(node.value.value))
    elif isinstance(node, (ast.If, ast.IfExp)) and ast.unparse(node.test) != "TYPE_CHECKING":
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, (ast.For, ast.While)):
        yield node.body[0], "break"


def mutants(path):
    """Yield the possible changes of a file; error messages and annotations are left as they are."""
    text = path.read_text(encoding="utf-8")
    offsets = [0]
    for line in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    left = [ast.parse(text)]
    while left:
        node = left.pop()
        for part, new in changes(node):
            start = offsets[part.lineno - 1] + part.col_offset
            stop = offsets[part.end_lineno - 1] + part.end_col_offset
            old = text.encode()[start:stop].decode()
            yield Mutant(path.relative_to(ROOT).as_posix(), part.lineno, start, stop, old, new)
        skipped = {id(getattr(node, name, None)) for name in ("annotation", "returns")}
        children = (child for child in ast.iter_child_nodes(node) if id(child) not in skipped)
        left += [child for child in children if not isinstance(child, (ast.Raise, ast.Assert, ast.JoinedStr))]


def chosen(count, seed, only):
    """Choose changes at random, from as many files as possible."""
    draw = random.Random(seed)
    paths = [path for folder in CORE.split() for path in sorted((ROOT / folder).rglob("*.py"))]
    pools = [list(mutants(path)) for path in paths if re.search(only, path.as_posix())]
    for pool in pools:
        draw.shuffle(pool)
    draw.shuffle(pools)
    found = []
    while len(found) < count and any(pools):
        found += [pool.pop() for pool in pools if pool][: count - len(found)]
    return found


def run(arguments, copy, limit=LIMIT):
    """Run tests of a copy and return their exit status and output; what takes too long is ended."""
    env = os.environ | {"PYTHONPATH": str(copy), "COVERAGE_FILE": str(copy / "runs")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=copy, env=env, stdout=pipe, text=True, start_new_session=True)
    try:
        text = process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the workers, too
        text = process.communicate()[0]
    return process.returncode, text


def runs(copy, file):
    """Return which tests run which lines, after a run of all of them if the file does not tell yet."""
    if not file.exists():
        settings = copy / ".coveragerc"
        settings.write_text("[run]\nrelative_files = true\n", encoding="utf-8")
        sources = [f"--cov={name}" for name in ("neonxc", "trees", "models")]
        run([*sources, f"--cov-config={settings}", "--cov-context=test", "--cov-report="], copy)
        shutil.copy(copy / "runs", file)
    data = CoverageData(str(file))
    data.read()
    return data


def lines_run(data):
    """Count the lines that every test runs."""
    counts = Counter()
    for file in data.measured_files():
        for names in data.contexts_by_lineno(file).values():
            counts.update({name.rpartition("|")[0] for name in names})
    return counts


def tests_of(mutant, data, counts):
    """Return the tests that run a line: each function once before any again, and those that run few lines first.

    A line without any (it runs on import, or in another process) has those of all lines of its file.
    """
    lines = data.contexts_by_lineno(mutant.file)
    found = lines.get(mutant.line, []), [name for line in lines.values() for name in line]
    own, all_ = ({name.rpartition("|")[0] for name in names} - {""} for names in found)
    tests = sorted(own or all_, key=lambda test: (counts[test], test))
    seen = Counter()
    ranks = {}
    for test in tests:
        function = test.partition("[")[0]
        ranks[test] = seen[function]
        seen[function] += 1
    return sorted(tests, key=ranks.__getitem__)


def noticed(copy, mutant, tests):
    """Return the first test that fails with a change, or "" if none does."""
    path = copy / mutant.file
    names = copy / "names"
    code = path.read_bytes()
    path.write_bytes(code[: mutant.start] + mutant.new.encode() + code[mutant.stop :])
    files = sorted({test.partition("::")[0] for test in tests})
    try:
        for stage, workers, limit in (
            (tests[:FEW], "0", LIMIT / 12),
            (tests[FEW:], "auto", LIMIT),
            (files, "auto", LIMIT),
        ):
            names.write_text("\n".join(stage), encoding="utf-8")
            status, text = run(["-x", f"-n{workers}", f"@{names}"], copy, limit) if stage else (0, "")
            if status:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
                return failed[1] if failed else f"exit status {status}"
    finally:
        path.write_bytes(code)
    return ""


def main():
    """Try the changes and print what noticed them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="regular expression of files")
    parser.add_argument("--runs", type=Path, help="file that tells which tests run which lines; made if missing")
    parser.add_argument("--list", action="store_true", help="print the changes without trying them")
    options = parser.parse_args()
    found = chosen(options.count, options.seed, options.only)
    if options.list:
        print(*found, sep="\n")
        return
    survivors = 0
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", "_build", ".*_cache"))
        data = runs(copy, options.runs or Path(folder) / "runs")
        counts = lines_run(data)
        for mutant in found:
            by = noticed(copy, mutant, tests_of(mutant, data, counts))
            survivors += not by
            print(f"{'noticed' if by else 'SURVIVED'}: {mutant}{f' by {by}' * bool(by)}", flush=True)
    print(f"{survivors} of {len(found)} changes survived")


if __name__ == "__main__":
    main()
