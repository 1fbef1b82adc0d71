"""The README's C++ is examples/quickstart.cpp, and its output is what that prints."""

import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
readme = (root / "README.md").read_text(encoding="utf-8")
code = (root / "examples" / "quickstart.cpp").read_text(encoding="utf-8")
printed = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout

blocks = re.findall(r"```\w*\n(.*?)```", readme, re.S)
assert code in blocks, "README.md does not show examples/quickstart.cpp as it is"
assert printed in blocks, f"README.md does not show what the quickstart prints:\n{printed}"

# By hand: scores 0 and 1/sqrt(2); 1/sqrt(2) twice and sqrt(2).
expected = [[1, 0, 0, 0, 1, 0], [0.330, 0.670, 0, 0.634, 0.330, 0.670], [0.248, 0.248, 0.503, 1.037, 0.752, 0.752]]
numbers = [[float(x) for x in re.findall(r"\d\.\d+", line)] for line in printed.splitlines()]
for got, wanted in zip(numbers, expected, strict=True):
    assert all(abs(a - b) < 0.0011 for a, b in zip(got, wanted, strict=True)), (got, wanted)

# Every file the README points to exists.
for target in re.findall(r"\]\(([^)#:]+)\)", readme):
    assert (root / target).exists(), f"README.md points to {target}, which does not exist"
