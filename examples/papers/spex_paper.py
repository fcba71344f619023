"""Figures of Tables 2 to 6 of the SpEx paper, which examples/papers/spex.py measures again.

T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TABLE_2 = """
             |               | R15            | Pathbased      | Ecoli          | Iris           | Cancer
spectral     | reference     | .993 .994 1.   | .526 .570 1.   | .711 .653 1.   | .630 .661 1.   | .743 .626 1.
spectral     | SpEx-kNN      | .982 .987 .989 | .332 .410 .551 | .679 .642 .863 | .450 .647 .450 | .507 .490 .562
spectral     | SpEx-Clique   | .986 .989 .993 | .441 .517 .824 | .662 .621 .847 | .576 .629 .787 | .694 .588 .785
spectral     | CART, printed | .986 .989 .993 | .441 .517 .824 | .672 .618 .886 | .576 .629 .787 | .683 .560 .811
k-means      | reference     | .993 .994 1.   | .461 .543 1.   | .489 .609 1.   | .641 .669 1.   | .491 .464 1.
k-means      | EMN           | .986 .989 .993 | .461 .543 1.   | .456 .559 .873 | .576 .629 .772 | .491 .464 1.
k-means      | SpEx-Clique   | .986 .989 .993 | .461 .543 1.   | .456 .559 .873 | .576 .629 .772 | .491 .464 1.
k-means      | CART, printed | .986 .989 .993 | .421 .507 .897 | .454 .543 .840 | .576 .629 .772 | .491 .464 1.
kernel k-means | reference   | .908 .967 1.   | .919 .888 1.   | .538 .612 1.   | .731 .767 1.   | .116 .228 1.
kernel k-means | Kernel IMM  | .904 .962 .986 | .614 .614 .583 | .522 .560 .848 | .732 .788 .924 | .127 .241 .93
kernel k-means | SpEx-Clique | .869 .941 .951 | .479 .553 .450 | .529 .573 .851 | .732 .788 .924 | .406 .414 .511
kernel k-means | CART, printed | .682 .876 .759 | .479 .553 .450 | .500 .558 .824 | .732 .788 .924 | .406 .414 .511
"""  # the paper prints 683 as the ARI of CART on Cancer

TABLE_3 = """
         |               | MNIST          | Beans
spectral | reference     | .745 .820 1.   | .586 .677 1.
spectral | SpEx-kNN      | .092 .338 .150 | .574 .690 .649
spectral | SpEx-Clique   | .217 .384 .282 | .564 .671 .743
spectral | CART, printed | .027 .148 .030 | .542 .658 .705
k-means  | reference     | .364 .481 1.   | .572 .689 1.
k-means  | EMN           | .25  .342 .42  | .563 .688 .780
k-means  | SpEx-Clique   | .209 .336 .403 | .562 .687 .773
k-means  | CART, printed | .124 .299 .229 | .536 .669 .757
"""  # these points are not available: the paper embeds MNIST by CLIP

TABLE_4 = """
                    | R15  | Pathbased | Ecoli | Iris | Cancer
spectral clustering | 91.6 | 29        | 34.2  | 22.1 | 34.1
k-means             | 10.4 | 4.16      | 5.39  | 4.21 | 7.01
k-NN graph          | 19   | 3.57      | 9.31  | 7.01 | 8.03
SpEx-kNN            | 93.4 | 22.8      | 85.3  | 27   | 90.8
SpEx-Clique         | 17   | 9.65      | 13.3  | 8.36 | 16.3
EMN                 | 101  | 13.3      | 20.9  | 6.51 | 184
CART                | 72.7 | 9.4       | 33.9  | 14.8 | 31.9
"""  # milliseconds

TABLE_5 = """
   | Ecoli          | Iris           | Cancer
2  | .594 .571 .006 | .287 .370 .020 | .681 .603 -.019
5  | .594 .589 .640 | .450 .647 .895 | .594 .546 .688
10 | .682 .648 .828 | .450 .647 .514 | .507 .490 .547
15 | .682 .648 .854 | .450 .647 .445 | .507 .490 .567
20 | .679 .642 .863 | .450 .647 .450 | .507 .490 .562
50 | .679 .638 .593 | .600 .642 .756 | .507 .490 .532
"""

TABLE_6 = """
              | Ecoli     | Iris      | Cancer
SpEx-Clique   | .469 .589 | .716 .739 | .491 .464
ExKMC         | .458 .582 | .730 .755 | .491 .464
CART-k-means  | .447 .573 | .716 .739 | .491 .464
CART-spectral | .434 .493 | .610 .648 | .749 .631
"""


def read(table: str) -> dict[tuple[str, ...], dict[str, tuple[float, ...]]]:
    """Parse a table into {row names: {column name: figures}}."""
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in table.strip("\n").splitlines())
    names = head.count("")  # the columns of names have no title
    return {
        tuple(row[:names]): {
            column: tuple(map(float, figures.split()))
            for column, figures in zip(head[names:], row[names:], strict=True)
        }
        for row in rows
    }


def beside(ours: float, theirs: float | None, digits: int = 3) -> str:
    """Format our figure, the paper's in parentheses, and the difference unless it is zero."""
    text = f"{ours:.{digits}f}"
    if theirs is None:
        return text
    apart = round(float(text) - theirs, digits)
    return f"{text} ({theirs:.{digits}f}{f', {apart:+.{digits}f}' if apart else ''})"


def farthest(pairs: Mapping[str, Sequence[float]]) -> str:
    """Describe which of the pairs of figures {name: (ours, theirs)} differ most."""
    name = max(pairs, key=lambda name: abs(pairs[name][0] - pairs[name][1]))
    return f"Largest difference to the paper's ARI: {pairs[name][0] - pairs[name][1]:+.3f} ({name})."
