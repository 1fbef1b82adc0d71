"""Each public header compiles by itself, with all warnings."""

import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
for header in sorted((root / "include" / "regard").glob("*.h")):
    command = [sys.argv[1], "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root / 'include'}", "-x", "c++", "-"]
    # Twice, for the include guard.
    source = f'#include "regard/{header.name}"\n' * 2
    result = subprocess.run(command, input=source, capture_output=True, text=True)
    assert result.returncode == 0, f"{header.name} does not stand alone:\n{result.stderr}"
