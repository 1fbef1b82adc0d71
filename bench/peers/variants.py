"""Sparse and approximate attention beside public Python packages, in turn, one thread each.

variants.py VARIANTS [ROUNDS [CASES [LENGTH]]]   CASES: a glob on the names below; LENGTH: 8192

VARIANTS is build/release/bench/variants. Float32, batch 1, 8 heads of 64, forward, no gradients. In each round Regard
and the package run one after the other; a cell is the best time of all rounds in milliseconds.
"""

import fnmatch
import importlib.metadata
import os
import subprocess
import sys
import time

import torch
from linformer import LinformerSelfAttention
from local_attention import LocalAttention
from performer_pytorch import FastAttention
from reformer_pytorch import LSHAttention
from torch.nn.functional import scaled_dot_product_attention as sdpa

HEADS, DIM, SECONDS = 8, 64, 1.0


def local(length):
    # Its window is the query's own block of 256 and the one before; no rotary positions.
    layer = LocalAttention(window_size=256, causal=True, look_backward=1, use_rotary_pos_emb=False)
    return lambda q, k, v: layer(q, k, v)


def performer(causal):
    def make(length):
        layer = FastAttention(dim_heads=DIM, nb_features=256, causal=causal)
        return lambda q, k, v: layer(q, k, v)

    return make


def linformer_layer(length):
    layer = LinformerSelfAttention(dim=HEADS * DIM, seq_len=length, k=256, heads=HEADS).eval()
    return lambda q, k, v: layer(q.transpose(1, 2).flatten(2))


def reformer(length):
    layer = LSHAttention(bucket_size=64, n_hashes=4).eval()
    return lambda q, k, v: layer(q[0], v[0])


def exact(causal):
    return lambda length: lambda q, k, v: sdpa(q, k, v, is_causal=causal)


# What Regard calls it, the package, how it is made there.
CASES = [
    ("full", "torch", exact(False)),
    ("causal", "torch", exact(True)),
    ("window256", "local-attention", local),
    ("performer", "performer-pytorch", performer(False)),
    ("performer_causal", "performer-pytorch", performer(True)),
    ("linformer_layer", "linformer", linformer_layer),
    ("reformer", "reformer-pytorch", reformer),
]


def best_ms(run):
    best, start = float("inf"), time.perf_counter()
    while True:
        begin = time.perf_counter()
        run()
        end = time.perf_counter()
        best = min(best, end - begin)
        if end - start > SECONDS:
            return best * 1e3


def regard_ms(program, name, length):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REGARD_THREADS": "1"}
    table = subprocess.run([program, "times", str(length), name], check=True, stdout=subprocess.PIPE, text=True,
                           env=environment).stdout
    return float(table.splitlines()[1].split("\t")[1])


def measure(program, case, rounds, length):
    name, package, make = case
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, HEADS, length, DIM) for _ in range(3))
    run = make(length)
    ours, theirs = [], []
    with torch.no_grad():
        for _ in range(rounds):
            ours.append(regard_ms(program, name, length))
            theirs.append(best_ms(lambda: run(q, k, v)))
    return min(ours), min(theirs), f"{package} {importlib.metadata.version(package)}"


def main(program, rounds=3, pattern="*", length=8192):
    torch.set_num_threads(1)
    print(f"{length} tokens, one thread each, best of {rounds} rounds, milliseconds\n")
    print("| case | Regard | package | time | times Regard's |\n|---|---|---|---|---|")
    for case in CASES:
        if fnmatch.fnmatch(case[0], pattern):
            ours, theirs, package = measure(program, case, rounds, length)
            print(f"| `{case[0]}` | {ours:.4g} | {package} | {theirs:.4g} | {theirs / ours:.1f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3, *sys.argv[3:4],
         *(int(n) for n in sys.argv[4:5]))
