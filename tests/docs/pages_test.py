"""Every page shows code that runs, with the output it has.

pages_test.py EXAMPLES SNIPPETS: folders with the built programs of examples/ and docs/snippets/.

- A ```cpp block is a run of whole lines of one program's source (indentation aside).
- A ```text block is a run of lines that the program of the block before it prints.
- Every program of docs/snippets is shown by some page.
- Whatever a page points to exists.
"""

import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("**/*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)


class Program:
    def __init__(self, source, folder):
        self.name = f"{source.parent.name}/{source.name}"
        self.lines = source.read_text(encoding="utf-8").splitlines()
        self.binary = pathlib.Path(folder) / source.stem
        self.output = None

    def shows(self, block):
        wanted = textwrap.dedent(block).splitlines()
        for start in range(len(self.lines) - len(wanted) + 1):
            piece = "\n".join(self.lines[start : start + len(wanted)])
            if textwrap.dedent(piece).splitlines() == wanted:
                return True
        return False

    def prints(self, block):
        if self.output is None:
            run = subprocess.run([self.binary], check=True, capture_output=True, text=True, timeout=60)
            self.output = run.stdout.splitlines()
        wanted = block.splitlines()
        return any(self.output[i : i + len(wanted)] == wanted for i in range(len(self.output)))


def problems_of(page, programs, shown):
    text = page.read_text(encoding="utf-8")
    name, current = page.relative_to(ROOT), None
    for language, block in BLOCK.findall(text):
        first = block.splitlines()[0] if block.strip() else "(empty)"
        if language == "cpp":
            current = next((program for program in programs if program.shows(block)), None)
            if current is None:
                yield f"{name}: no program holds these lines: {first} ..."
            else:
                shown.add(current.name)
        elif language == "text":
            if current is None:
                yield f"{name}: no code before this output: {first} ..."
            elif not current.prints(block):
                yield f"{name}: {current.name} does not print: {first} ..."
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", BLOCK.sub("", text)):
        if not (page.parent / target).exists():
            yield f"{name} points to {target}, which does not exist"


def main(examples, snippets):
    programs = [Program(source, examples) for source in sorted((ROOT / "examples").glob("*.cpp"))]
    pages_own = [Program(source, snippets) for source in sorted((ROOT / "docs" / "snippets").glob("*.cpp"))]
    shown = set()
    problems = [problem for page in PAGES for problem in problems_of(page, programs + pages_own, shown)]
    problems += [f"no page shows {program.name}" for program in pages_own if program.name not in shown]
    return problems


if __name__ == "__main__":
    found = main(*sys.argv[1:])
    print("\n".join(found) or "every block is real")
    sys.exit(1 if found else 0)
