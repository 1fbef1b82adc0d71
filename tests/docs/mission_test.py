"""docs/mission.md names only what there is.

mission_test.py REGARD: the built command line.

- A row has as many cells as its table's head; the last cell is the cost.
- Inline code is a command with flags that it has, a make target, a test, a benchmark case, a path, or words that the
  public headers hold.
- A number in a cost cell stands in a file that the cell links to.
"""

import fnmatch
import functools
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "mission.md"
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+)(?:#[^)]*)?\)")
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?")


class CommandLine:
    def __init__(self, binary):
        self.binary = binary

    @functools.cache
    def prints(self, *arguments):
        return subprocess.run([self.binary, *arguments], capture_output=True, text=True, timeout=60).stdout

    def problem(self, line):
        command, *rest = shlex.split(line)[1:]
        usage = self.prints(command, "--help")
        if f"Usage: regard {command} " not in usage:
            return f"there is no command {command}"
        known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z0-9-]*", usage))
        unknown = [word for word in rest if re.match(r"--?[a-zA-Z]", word) and word not in known]
        if unknown:
            return f"{command} has no {unknown[0]}"
        if command == "bench" and "--filter" in rest:
            wanted = rest[rest.index("--filter") + 1]
            return None if fnmatch.filter(self.cases(), wanted) else f"no benchmark case is {wanted}"
        return None

    def cases(self):
        return self.prints("bench", "--list").split()


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8")


@functools.cache
def header_words():
    return {word for path in (ROOT / "include" / "regard").glob("*.h") for word in re.findall(r"\w+", text_of(path))}


@functools.cache
def tests():
    """ROOM.SUITE.NAME of C++ tests; cli.FILE.CLASS.NAME of Python ones; whatever tests/CMakeLists.txt calls a test."""
    names = set()
    for path in (ROOT / "tests").glob("*/*_test.cpp"):
        for suite, name in re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text_of(path), re.M):
            names.add(f"{path.parent.name}.{suite}.{name}")
    for path in (ROOT / "tests" / "cli").glob("*_test.py"):
        room = f"cli.{path.stem.removesuffix('_test')}"
        names.add(room)
        for line in re.findall(r"^class (\w+)|^    def (test_\w+)", text_of(path), re.M):
            suite, test = line[0] or suite, line[1]
            names.add(f"{room}.{suite}.{test}" if test else f"{room}.{suite}")
    listed = text_of(ROOT / "tests" / "CMakeLists.txt")
    names |= set(re.findall(r"NAME ((?:docs|house|package)\.\w+)[\s)]", listed))
    for room in ("docs", "examples"):
        programs = (ROOT / "tests" / room / "expected").glob("*.txt")
        names |= {f"{room}.{path.stem}_prints_the_right_numbers" for path in programs}
    return names


@functools.cache
def make_targets():
    rules = re.findall(r"^([\w -]+):(?!=)", text_of(ROOT / "Makefile"), re.M)
    return {target for targets in rules for target in targets.split()}


def problem_with_code(code, command_line):
    if code.startswith("regard "):
        return command_line.problem(code)
    if code.startswith("make "):
        return None if code.split()[1] in make_targets() else "no such make target"
    if re.fullmatch(r"[a-z]+(\.\w+)+", code) and (ROOT / "tests" / code.split(".")[0]).exists():
        return None if code in tests() else "no such test"
    if code in command_line.cases() or (ROOT / code).exists() or (ROOT / "include" / "regard" / code).is_file():
        return None
    if "/" in code:
        return "neither a path nor a benchmark case"
    unknown = [word for word in re.findall(r"[A-Za-z_]\w*", code) if word not in header_words()]
    return f"no test, command or file, and no public header says {unknown[0]}" if unknown else None


def numbers(text):
    return {number.replace(",", "") for number in NUMBER.findall(text)}


def problem_with_cost(cell):
    linked = [(PAGE.parent / target).resolve() for _, target in LINK.findall(cell)]
    known = set().union(*[numbers(text_of(path)) for path in linked if path.is_file()])
    strange = numbers(CODE.sub("", LINK.sub(r"\1", cell))) - known
    return f"{', '.join(sorted(strange))} in no file that the cell links to" if strange else None


def cells_of(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def problems(command_line):
    columns, rows = 0, 0
    for place, line in enumerate(text_of(PAGE).splitlines(), 1):
        for code in CODE.findall(line):
            found = problem_with_code(code, command_line)
            if found:
                yield place, f"`{code}`: {found}"
        if not line.startswith("|"):
            columns = 0
            continue
        cells = cells_of(line)
        if columns and len(cells) != columns:
            yield place, f"{len(cells)} cells, not {columns}"
        if columns and not set(line) <= set("|-"):
            rows += 1
            found = problem_with_cost(cells[-1])
            if found:
                yield place, found
        columns = columns or len(cells)
    if rows < 40:
        yield 0, f"only {rows} rows: not every line of the mission has one"


if __name__ == "__main__":
    found = [f"docs/mission.md:{place}: {what}" for place, what in problems(CommandLine(sys.argv[1]))]
    print("\n".join(found) or "everything named is there")
    sys.exit(1 if found else 0)
