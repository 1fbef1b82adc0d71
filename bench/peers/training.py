"""Training steps of the shipped model's size, in PyTorch: words a second.

training.py time [SECONDS]                        PyTorch alone, one line
training.py compare REGARD [ROUNDS [SECONDS]]     in turn with build/bench/training_speed, and a table

The same network and step as bench/model/training_speed.cpp: pre-norm
Transformer, 4 + 4 layers, model_dim 128, 4 heads, feed-forward 512 with ReLU,
dropout 0.1 but none on attention weights, target embeddings that are the output
weights too, label smoothing 0.1, gradients clipped to norm 1, AdamW; one thread.
"""

import math
import os
import re
import statistics
import subprocess
import sys
import time

BATCH, SOURCE, TARGET = 256, 9, 8
SOURCE_SYMBOLS, TARGET_SYMBOLS, SPECIALS = 33, 43, 4
WIDTH, HEADS, HIDDEN, LAYERS, DROPOUT = 128, 4, 512, 4, 0.1


def make_network():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(WIDTH, WIDTH)
            self.key_value = nn.Linear(WIDTH, 2 * WIDTH)
            self.output = nn.Linear(WIDTH, WIDTH)

        def forward(self, x, memory, causal=False):
            def heads(y):
                return y.view(y.shape[0], y.shape[1], HEADS, -1).transpose(1, 2)

            k, v = self.key_value(memory).chunk(2, dim=-1)
            y = F.scaled_dot_product_attention(heads(self.query(x)), heads(k), heads(v), is_causal=causal)
            return self.output(y.transpose(1, 2).flatten(2))

    class Layer(nn.Module):
        def __init__(self, crosses):
            super().__init__()
            self.attention = Attention()
            self.cross = Attention() if crosses else None
            self.feed_forward = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3 if crosses else 2))
            self.dropout = nn.Dropout(DROPOUT)

        def forward(self, x, memory=None):
            y = self.norms[0](x)
            x = x + self.dropout(self.attention(y, y, causal=self.cross is not None))
            if self.cross is not None:
                x = x + self.dropout(self.cross(self.norms[1](x), memory))
            return x + self.dropout(self.feed_forward(self.norms[-1](x)))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.source = nn.Embedding(SOURCE_SYMBOLS, WIDTH)
            self.target = nn.Embedding(TARGET_SYMBOLS, WIDTH)
            for table in (self.source, self.target):
                nn.init.normal_(table.weight, std=WIDTH**-0.5)
            self.encoder = nn.ModuleList(Layer(False) for _ in range(LAYERS))
            self.decoder = nn.ModuleList(Layer(True) for _ in range(LAYERS))
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
            self.dropout = nn.Dropout(DROPOUT)
            angles = torch.arange(max(SOURCE, TARGET))[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
            self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))

        def embed(self, table, ids):
            return self.dropout(table(ids) * math.sqrt(WIDTH) + self.positions[: ids.shape[1]])

        def forward(self, source, target):
            memory = self.embed(self.source, source)
            for layer in self.encoder:
                memory = layer(memory)
            memory, x = self.norms[0](memory), self.embed(self.target, target)
            for layer in self.decoder:
                x = layer(x, memory)
            return self.norms[1](x) @ self.target.weight.T

    return Network()


def time_pytorch(limit):
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = make_network().train()
    weights = list(network.parameters())
    optimizer = torch.optim.AdamW(weights, lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True)
    source = torch.randint(SPECIALS, SOURCE_SYMBOLS, (BATCH, SOURCE))
    given, wanted = (torch.randint(SPECIALS, TARGET_SYMBOLS, (BATCH, TARGET)) for _ in range(2))

    def step():
        start = time.perf_counter()
        logits = network(source, given)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return time.perf_counter() - start, loss.item()

    step()  # not counted: memory is touched for the first time
    times = []
    while sum(times) < limit:
        seconds, loss = step()
        times.append(seconds)
    count = sum(w.numel() for w in weights)
    print(
        f"pytorch {BATCH / statistics.median(times):.1f} words/s (median of {len(times)} steps; "
        f"best {BATCH / min(times):.1f}), {count} weights, {torch.get_num_threads()} thread(s), loss {loss:.4f}, "
        f"torch {torch.__version__}"
    )


def words_per_second(command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.strip()
    print(line, flush=True)
    return float(re.search(r"([\d.]+) words/s", line)[1])


def compare(regard, rounds, seconds):
    pytorch = [sys.executable, __file__, "time", str(seconds)]
    pairs = [(words_per_second([regard, "1", str(seconds)]), words_per_second(pytorch)) for _ in range(rounds)]
    print(f"\n{'round':<8}{'regard':>10}{'pytorch':>10}{'ratio':>8}   words/s, one thread each")
    for number, (ours, theirs) in enumerate(pairs, 1):
        print(f"{number:<8}{ours:>10.1f}{theirs:>10.1f}{ours / theirs:>8.2f}")
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    print(f"{'median':<8}{ours:>10.1f}{theirs:>10.1f}{ours / theirs:>8.2f}")


if __name__ == "__main__":
    arguments = sys.argv[2:]
    if sys.argv[1:2] == ["time"]:
        time_pytorch(float(arguments[0]) if arguments else 10)
    elif sys.argv[1:2] == ["compare"] and arguments:
        rounds, seconds = (arguments[1:] + ["3", "10"][len(arguments) - 1 :])[:2]
        compare(arguments[0], int(rounds), float(seconds))
    else:
        sys.exit(__doc__)
