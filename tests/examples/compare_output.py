"""Runs an example and compares the numbers it prints with a file of right ones.

usage: compare_output.py PROGRAM EXPECTED

Lines of EXPECTED: `LABEL ~ TOLERANCE: NUMBERS`; `... N ...` among the numbers
stands for N that are not given. The program prints `LABEL: NUMBERS`.
"""
import subprocess
import sys


def expected_lines(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                head, numbers = line.split(":")
                label, tolerance = head.split("~")
                yield label.strip(), float(tolerance), numbers.split()


def with_gaps(words):
    """`a ... 3 ... b` as [a, None, None, None, b]."""
    numbers, at = [], 0
    while at < len(words):
        if words[at] == "...":
            numbers += [None] * int(words[at + 1])
            at += 3
        else:
            numbers.append(float(words[at]))
            at += 1
    return numbers


def main(program, expected):
    run = subprocess.run([program], capture_output=True, text=True, encoding="utf-8", timeout=60)
    if run.returncode != 0 or run.stderr:
        return [f"exit code {run.returncode}, stderr: {run.stderr}"]
    printed = dict(line.rsplit(":", 1) for line in run.stdout.splitlines() if ":" in line)
    wrong = []
    for label, tolerance, words in expected_lines(expected):
        wanted = with_gaps(words)
        got = [float(word) for word in printed.pop(label, "").split()]
        if len(got) != len(wanted):
            wrong.append(f"{label}: {len(got)} numbers instead of {len(wanted)}")
        for index, (ours, right) in enumerate(zip(got, wanted)):
            if right is not None and not abs(ours - right) <= tolerance:
                wrong.append(f"{label}[{index}]: {ours}, right is {right} within {tolerance}")
    return wrong + [f"printed, but not in {expected}: {label}" for label in printed]


if __name__ == "__main__":
    problems = main(*sys.argv[1:])
    print("\n".join(problems) or "every number is right")
    sys.exit(1 if problems else 0)
