"""README.zh-CN.md says what README.md says, as far as a program can tell.

Section by section, in both: the same blocks of code, commands, flags and names in inline code, targets of links and
pictures, numbers in the text, and tables with the same inline code and numbers in every cell. Each points to the other
in its first lines. What differs is printed with the section it stands in.

translation_test.py [ENGLISH CHINESE]: other files than those of the project.
"""

import pathlib
import re
import sys
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = re.compile(r"`([^`]+)`")
TARGET = re.compile(r"\]\(([^)]+)\)")
# Chinese characters may touch a number; Latin letters make it part of a name.
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+(?:,\d{3})*(?:\.\d+)?")


class Section:
    def __init__(self, level, title):
        self.level, self.title = level, title
        self.blocks, self.tables, self.text = [], [], ""


def sections_of(path):
    found, block, in_table = [Section(0, "(before the first heading)")], None, False
    for line in path.read_text(encoding="utf-8").splitlines():
        if block is not None:
            block.append(line)
            block = None if line == "```" else block
            continue
        now = found[-1]
        heading = re.match(r"(#+) (.*)", line)
        if line.startswith("```"):
            block = [line]
            now.blocks.append(block)
        elif heading:
            found.append(Section(len(heading[1]), heading[2]))
        elif line.startswith("|"):
            if not in_table:
                now.tables.append([])
            now.tables[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        else:
            now.text += line + "\n"
        in_table = line.startswith("|")
    return found


def facts_of(text):
    """What a translation keeps."""
    targets, bare = TARGET.findall(text), TARGET.sub("]", text)
    return {
        "inline code": Counter(CODE.findall(bare)),
        "link": Counter(target for target in targets if not target.startswith("README.")),
        "number": Counter(NUMBER.findall(CODE.sub("", bare))),
    }


def differences(where, english, chinese):
    ours, theirs = facts_of(english), facts_of(chinese)
    for what in ours:
        for item in ours[what] - theirs[what]:
            yield f"{where}: {what} {item} is in the English text only"
        for item in theirs[what] - ours[what]:
            yield f"{where}: {what} {item} is in the Chinese text only"


def compare_tables(where, english, chinese):
    if len(english) != len(chinese):
        yield f"{where}: {len(english)} tables in English, {len(chinese)} in Chinese"
    for ours, theirs in zip(english, chinese):
        if [len(row) for row in ours] != [len(row) for row in theirs]:
            first_cells = [", ".join(row[0] for row in rows if set(row[0]) - {"-"}) for rows in (ours, theirs)]
            yield f"{where}: rows of a table differ: in English {first_cells[0]}; in Chinese {first_cells[1]}"
            continue
        for row, translated in zip(ours, theirs):
            for cell, other in zip(row, translated):
                yield from differences(f"{where}, row {row[0] or translated[0]}", cell, other)


def compare(english, chinese):
    where = f'section "{english.title}"'
    if english.level != chinese.level:
        yield f'{where} and "{chinese.title}" are of different level'
    if len(english.blocks) != len(chinese.blocks):
        yield f"{where}: {len(english.blocks)} blocks of code in English, {len(chinese.blocks)} in Chinese"
    for ours, theirs in zip(english.blocks, chinese.blocks):
        for line, other in zip(ours + [""], theirs + [""]):
            if line != other:
                yield f"{where}: a block of code says {line!r} in English, {other!r} in Chinese"
                break
    yield from compare_tables(where, english.tables, chinese.tables)
    yield from differences(where, english.text, chinese.text)


def problems(english_path, chinese_path):
    for path, other in ((english_path, chinese_path), (chinese_path, english_path)):
        if f"]({other.name})" not in "".join(path.read_text(encoding="utf-8").splitlines(True)[:4]):
            yield f"the first lines of {path.name} do not point to {other.name}"
    english, chinese = sections_of(english_path), sections_of(chinese_path)
    if len(english) != len(chinese):
        yield f"sections in English: {[s.title for s in english]}; in Chinese: {[s.title for s in chinese]}"
        return
    for ours, theirs in zip(english, chinese):
        yield from compare(ours, theirs)


if __name__ == "__main__":
    paths = [pathlib.Path(path) for path in sys.argv[1:]] or [ROOT / "README.md", ROOT / "README.zh-CN.md"]
    found = list(problems(*paths))
    print("\n".join(found) or "both say the same")
    sys.exit(1 if found else 0)
