"""A room includes only itself and the rooms to its left (see ARCHITECTURE.md)."""

import pathlib
import re

root = pathlib.Path(__file__).resolve().parents[2]

LEFT = {
    "core": [],
    "attention": ["core"],
    "nn": ["attention", "core"],
    "io": ["core"],
    "trace": ["io", "core"],
    "model": ["nn", "trace", "io", "attention", "core"],
    "explain": ["model", "nn", "trace", "io", "attention", "core"],
    "onnx": ["attention", "io", "core"],
    "measure": ["nn", "attention", "core"],
    "picture": ["io", "core"],
    "view": ["picture", "trace", "io", "core"],
}

HEADERS = {
    "core": "cpu digest dtype error half ink pixel_span random storage tensor threads view",
    "attention": "attend chain_attention instruction_set linear_attention linear_recurrence linformer mask nystrom observe pair_bias performer plan reformer relative_attention relative_bias rope score sparse_masks tree",
    "nn": "contributions disentangled head_projections layers longformer loss multi_head optimizer positions recurrent tape transformer transformer_xl",
    "io": "characters file locked_folder npy safetensors",
    "trace": "patterns reading_places rollout trace",
    "model": "conllu dataset decoding model patches seq2seq training vocabulary",
    "explain": "experiments explain",
    "onnx": "onnx",
    "measure": "bench cost peak",
    "picture": "drawn_strings drawn_text picture",
    "view": "chart figure heatmap overlay palette pattern_view terminal text_width view_json",
}
ROOM_OF = {name: room for room, names in HEADERS.items() for name in names.split()}

problems = []
public = {p.stem for p in (root / "include" / "regard").glob("*.h")}
for name in public ^ set(ROOM_OF):
    problems.append(f"include/regard/{name}.h: in the folder or in this list, but not in both")


def check(path, room):
    allowed = {room, *LEFT[room]}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(r'#include "(?:regard/(\w+)\.h|(\w+)/)', line)
        if not found:
            continue
        used = ROOM_OF.get(found[1]) if found[1] else found[2] if found[2] in LEFT else None
        if used and used not in allowed:
            problems.append(f"{path.relative_to(root)}: {room} uses {used}: {line}")


for room in LEFT:
    for path in (root / "src" / room).rglob("*"):
        if path.suffix in (".cpp", ".h"):
            check(path, room)
for name, room in ROOM_OF.items():
    path = root / "include" / "regard" / f"{name}.h"
    if path.exists():
        check(path, room)

# The library never prints.
for path in (root / "src").rglob("*.cpp"):
    if re.search(r"std::cout|std::cerr|\bprintf\(|fmt::print\(", path.read_text(encoding="utf-8")):
        problems.append(f"{path.relative_to(root)}: prints")

assert not problems, "\n".join(problems)
