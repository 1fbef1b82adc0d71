"""The pictures that docs/snippets prints, against the published definitions as functions of two positions.

pictures_test.py MASKS REFORMER: the built programs.
"""

import subprocess
import sys

LENGTH = 12
IDS = [4, 8, 1, 9, 3, 3, 6, 2, 5, 0, 0, 0]
DOCUMENTS = [0] * 5 + [1] * 3 + [2] * 4

SEES = {
    "causal": lambda q, k: k <= q,
    "window": lambda q, k: q - 2 <= k <= q + 1,
    "sliding": lambda q, k: q - 3 <= k <= q,
    "padding": lambda q, k: IDS[k] != 0,
    "padding, queries too": lambda q, k: IDS[k] != 0 and IDS[q] != 0,
    "documents": lambda q, k: DOCUMENTS[q] == DOCUMENTS[k] and k <= q,
    "prefix": lambda q, k: k <= q or k < 5,
    "dilated": lambda q, k: k in (q, q - 2, q - 4, q - 6),
    "strided": lambda q, k: k <= q and (q - k <= 4 or (q - k) % 4 == 0),
    "fixed": lambda q, k: k <= q and (q // 4 == k // 4 or k % 4 == 3),
    "longformer": lambda q, k: abs(q - k) <= 1 or q in (0, 6) or k in (0, 6),
    "neighbourhood": lambda q, k: abs(q // 4 - k // 4) <= 1 and abs(q % 4 - k % 4) <= 1,
    "boolean": lambda q, k: q != k,
}


def pictures(program):
    """Blocks of rows of 0 and 1, by the line before them."""
    found, name = {}, None
    for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        if line and set(line) <= set("01"):
            found[name].append([int(c) for c in line])
        elif line:
            name = line
            found.setdefault(name, [])
    return {name: rows for name, rows in found.items() if rows}


def picture(sees, length=LENGTH):
    return [[int(sees(q, k)) for k in range(length)] for q in range(length)]


def check_big_bird(rows):
    """Neighbours, the first and the last block, and one more a query: of blocks of one token."""
    for q, row in enumerate(rows):
        fixed = [int(abs(q - k) <= 1 or 0 in (q, k) or LENGTH - 1 in (q, k)) for k in range(LENGTH)]
        assert all(seen >= always for seen, always in zip(row, fixed)), ("big bird", q, row)
        assert sum(row) == min(LENGTH, sum(fixed) + 1), ("big bird", q, row)


def main(masks, reformer):
    found = pictures(masks)
    check_big_bird(found.pop("big bird"))
    assert found.keys() == SEES.keys(), found.keys() ^ SEES.keys()
    for name, sees in SEES.items():
        assert found[name] == picture(sees), (name, found[name])
    sides = pictures(reformer)["who meets whom"]
    assert sides == picture(lambda q, k: q != k and (q - k) % 2 == 0, 8), sides


main(*sys.argv[1:])
