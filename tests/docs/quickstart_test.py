"""The quickstart prints what can be worked out by hand."""

import re
import subprocess
import sys

printed = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout

# Scores 0 and 1/sqrt(2); 1/sqrt(2) twice and sqrt(2).
expected = [[1, 0, 0, 0, 1, 0], [0.330, 0.670, 0, 0.634, 0.330, 0.670], [0.248, 0.248, 0.503, 1.037, 0.752, 0.752]]
numbers = [[float(x) for x in re.findall(r"\d\.\d+", line)] for line in printed.splitlines()]
for got, wanted in zip(numbers, expected, strict=True):
    assert all(abs(a - b) < 0.0011 for a, b in zip(got, wanted, strict=True)), (got, wanted)
