"""Break one line of the core at a time, and tell which changes no test notices.

python -m tests.mutants [--count 60] [--seed 0] [--only REGEX] [--tests FILE ...] [--list]

A change swaps a sign or a comparison, drops a term, takes another axis, turns a condition round, or ends a loop at
once. A change that survives is either harmless (the same result by another way) or not tested. Each change is made
in a copy of the checkout, whose default tests then run until the first one fails: some minutes for a survivor.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    "neonxc/head neonxc/lrp neonxc/pipelines neonxc/inputs neonxc/attribution neonxc/clusterings models/kernel "
    "trees/criteria trees/cuts trees/explainers trees/fit"
)
FIRST = {  # tests that are likely to notice, by the beginning of a file's name
    "neonxc/lrp": "lrp networks rules",
    "neonxc": "attribution neuralize flipping soft_heads mixed_pipelines sparse_attribution encoding dataset",
    "models": "kernel group_kernel surrogate",
    "trees": "tree criterion kernel_trees spex group_trees streams sketch",
}
LIMIT = 600  # seconds; the default tests take some minutes
SWAPS: dict[type, type] = {
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

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old!r} -> {self.new!r}"


def changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the changes of a node: what is replaced, and by which code."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, sign = ast.unparse(node.left), "-" if isinstance(node.op, ast.Add) else "+"
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


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield the possible changes of a file; error messages and annotations are left as they are."""
    text = path.read_text(encoding="utf-8")
    offsets = [0]
    for line in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    left = [ast.parse(text)]
    while left:
        node = left.pop()
        for part, new in changes(node):
            assert part.end_lineno is not None
            assert part.end_col_offset is not None
            start, stop = (
                offsets[part.lineno - 1] + part.col_offset,
                offsets[part.end_lineno - 1] + part.end_col_offset,
            )
            old = text.encode()[start:stop].decode()
            yield Mutant(path.relative_to(ROOT).as_posix(), part.lineno, start, stop, old, new)
        skipped = {id(getattr(node, name, None)) for name in ("annotation", "returns")}
        children = (child for child in ast.iter_child_nodes(node) if id(child) not in skipped)
        left += [child for child in children if not isinstance(child, (ast.Raise, ast.Assert, ast.JoinedStr))]


def chosen(count: int, seed: int, only: str) -> list[Mutant]:
    """Choose changes at random, from as many files as possible."""
    draw = random.Random(seed)
    paths = [path for folder in CORE.split() for path in sorted((ROOT / folder).rglob("*.py"))]
    pools = [list(mutants(path)) for path in paths if re.search(only, path.as_posix())]
    for pool in pools:
        draw.shuffle(pool)
    draw.shuffle(pools)
    found: list[Mutant] = []
    while len(found) < count and any(pools):
        found += [pool.pop() for pool in pools if pool][: count - len(found)]
    return found


def stages(copy: Path, file: str, only: list[str]) -> list[list[str]]:
    """Return the test files in the order in which they run: recorded answers, likely ones, and the others."""
    likely = next(names for start, names in FIRST.items() if file.startswith(start)).split()
    found: list[list[str]] = [[], [], []]
    for name in only or sorted(path.relative_to(copy).as_posix() for path in (copy / "tests").glob("test_*.py")):
        is_likely = any(f"test_{word}" in name for word in likely)
        is_first = "recorded" in name or "far_device" in name
        found[0 if is_first else 2 - is_likely].append(name)
    return list(filter(None, found))


def noticed(copy: Path, mutant: Mutant, only: list[str]) -> str:
    """Return the first test that fails with a change, or "" if none does."""
    path = copy / mutant.file
    code = path.read_bytes()
    path.write_bytes(code[: mutant.start] + mutant.new.encode() + code[mutant.stop :])
    env = os.environ | {"PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    try:
        for tests in stages(copy, mutant.file, only):
            code_of_exit, text = run([*command, *tests], copy, env)
            if code_of_exit:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
                return failed[1] if failed else f"exit status {code_of_exit}"
    finally:
        path.write_bytes(code)
    return ""


def run(command: list[str], folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run tests and return their exit status and output; a change may make a loop without end, which is ended."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=pipe, text=True, start_new_session=True)
    try:
        text = process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the workers, too
        text = process.communicate()[0]
    return process.returncode, text


def main() -> None:
    """Try the changes and print what noticed them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="regular expression of files")
    parser.add_argument("--tests", nargs="*", default=[], help="test files; default: all")
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
        for mutant in found:
            by = noticed(copy, mutant, options.tests)
            survivors += not by
            print(f"{'noticed' if by else 'SURVIVED'}: {mutant}{f' by {by}' * bool(by)}", flush=True)
    print(f"{survivors} of {len(found)} changes survived")


if __name__ == "__main__":
    main()
