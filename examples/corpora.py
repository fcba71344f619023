"""Labelled texts for the examples: scikit-learn's 20 newsgroups, Debian's fortunes and its packages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_20newsgroups

# Files of Debian's packages `fortunes-min` and `fortunes` that have one subject or author, and enough texts.
TOPICS = re.findall(
    "[a-z-]+",
    "art computers definitions disclaimer drugs education food humorists kids knghtbrd law linux literature love "
    "perl people platitudes politics riddles science songs-poems sports startrek wisdom work zippy",
)


@dataclass(frozen=True)
class Corpus:
    """N texts, the index [N] of each text's topic, and the names of the topics."""

    texts: list[str]
    labels: np.ndarray
    topics: list[str]

    def part(self, keep: np.ndarray) -> Corpus:
        """Return the texts for which `keep` [N] is true."""
        return Corpus([self.texts[n] for n in np.flatnonzero(keep)], self.labels[keep], self.topics)

    def distinct(self) -> Corpus:
        """Remove duplicates: some texts belong to several topics and differ only in their line breaks."""
        _, first = np.unique([" ".join(text.split()).lower() for text in self.texts], return_index=True)
        return self.part(np.isin(np.arange(len(self.texts)), first))


def lines(file: Path) -> Corpus:
    """Load a file of one text per line, all on one topic."""
    texts = [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]
    return Corpus(texts, np.zeros(len(texts), dtype=int), ["all"])


def newsgroups() -> Corpus:
    """Messages of 20 newsgroups without headers, footers and quotes; scikit-learn downloads them once."""
    found = fetch_20newsgroups(subset="all", remove=("headers", "footers", "quotes"))
    return Corpus(found.data, found.target, list(found.target_names)).distinct()


def fortunes(folder: Path) -> Corpus:
    """Short texts by topic: there is one file per topic, in which lines of a single % separate the texts."""
    topics = [name for name in TOPICS if (folder / name).is_file()]
    if len(topics) < 2:
        raise FileNotFoundError(f"no fortunes in {folder}: install Debian's package `fortunes`, or pass --data")
    texts = []
    labels = []
    for number, topic in enumerate(topics):
        whole = (folder / topic).read_text(encoding="utf-8", errors="replace")
        whole = re.sub(".\b", "", whole)  # overstruck characters, as typewriters underline
        found = [text.strip("\n").expandtabs() for text in re.split(r"^%.*$", whole, flags=re.MULTILINE)]
        texts += filter(str.strip, found)
        labels += [number] * (len(texts) - len(labels))
    return Corpus(texts, np.array(labels), topics).distinct()


SECTIONS = "database editors electronics fonts games gnu-r graphics java mail math net perl"
SECTIONS += " php python ruby science sound video web"


def packages(folder: Path, most: int = 500) -> Corpus:
    """Descriptions of Debian's packages by section, at most `most` of a section.

    `folder` is that of apt's lists, which ``apt-get update -o Acquire::Languages=en`` fills.
    """
    texts = {}
    for entry in _entries(folder, "*Translation-en*"):
        texts[entry.get("Description-md5", "").strip()] = _body(entry.get("Description-en", ""))
    if not texts:
        raise FileNotFoundError(
            f"no descriptions in {folder}: run apt-get update -o Acquire::Languages=en, or pass --data"
        )
    found: dict[str, list[str]] = {name: [] for name in SECTIONS.split()}
    seen = set()
    for entry in _entries(folder, "*_Packages*"):
        own = found.get(entry.get("Section", "").strip())
        key = entry.get("Description-md5", "").strip()
        text = texts.get(key, "")
        start = text[:60]  # packages of one source begin alike
        if own is not None and len(text.split()) >= 20 and start not in seen:
            seen.add(start)
            own.append(text)
    return _drawn(found, most)


def installed(folder: Path = Path("/var/lib/dpkg"), most: int = 500) -> Corpus:
    """Descriptions of the packages that are installed on a Debian system, by section; `folder` is that of dpkg."""
    found: dict[str, list[str]] = {}
    for entry in _entries(folder, "status"):
        text = _body(entry.get("Description", ""))
        if len(text.split()) >= 20:
            found.setdefault(entry.get("Section", "").strip(), []).append(text)
    if not found:
        raise FileNotFoundError(f"no descriptions of packages in {folder}")
    return _drawn(found, most).distinct()


def _body(description: str) -> str:
    """A description without line breaks, and without the dots of empty lines."""
    return " ".join(re.sub(r"\n \.?", " ", description).split())


def _drawn(found: dict[str, list[str]], most: int) -> Corpus:
    """Draw at most `most` texts of every topic."""
    draw = np.random.default_rng(0)
    parts = [[own[i] for i in sorted(draw.permutation(len(own))[:most])] for own in found.values()]
    labels = np.repeat(np.arange(len(parts)), [*map(len, parts)])
    return Corpus([text for part in parts for text in part], labels, [*found])


def _entries(folder: Path, pattern: str) -> Iterator[dict[str, str]]:
    """Yield the entries of apt's lists, which may be compressed."""
    for file in sorted(folder.glob(pattern)):
        read = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", file], capture_output=True, check=True)
        for entry in read.stdout.decode("utf-8", "replace").split("\n\n"):
            yield dict(re.findall(r"^(\S+?):((?:.*(?:\n .*)*))", entry, re.MULTILINE))
