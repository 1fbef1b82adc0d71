"""The operator beside PyTorch, ONNX Runtime and OpenVINO, in turn, one thread each.

attention.py REGARD [ROUNDS [CASES]]   CASES: a glob on the names below

REGARD is build/release/regard; its times come from `regard bench --json` on the
case of that name. Each round runs every library once on each case, one after the
other; a cell is the best time of all rounds in milliseconds. Cases named
"forward + backward" add Regard's two benchmark cases.
"""

import fnmatch
import json
import os
import subprocess
import sys
import time

import numpy as np
import onnxruntime
import openvino
import torch
from onnx import TensorProto, helper
from openvino import opset13
from torch.nn.functional import scaled_dot_product_attention as sdpa

SECONDS = 0.4  # per library, case and round
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Case:
    """As the table of src/measure/bench_cases.cpp has it: `names` are added up."""

    def __init__(self, title, names, shape, causal=False, backward=False, decode=None):
        self.title, self.names, self.causal, self.backward = title, names, causal, backward
        batch, heads, length, dim = shape
        q_len, kv_heads = (1, decode) if decode else (length, heads)
        self.q, self.kv = (batch, heads, q_len, dim), (batch, kv_heads, length, dim)
        self.type = names[0].rsplit("/", 1)[1]


def heads_for(length):
    return 8 if length <= 1024 else 4 if length <= 2048 else 2


def cases():
    for length, dim in [(128, 64), (512, 64), (1024, 64), (2048, 64), (4096, 64), (1024, 128), (2048, 128)]:
        name = f"full/n{length}/d{dim}/f32"
        yield Case(name, [name], (1, heads_for(length), length, dim))
    for kind in ["bf16", "f16"]:
        yield Case(f"full/n1024/d64/{kind}", [f"full/n1024/d64/{kind}"], (1, 8, 1024, 64))
    for length in [1024, 2048, 4096]:
        name = f"causal/n{length}/d64/f32"
        yield Case(name, [name], (1, heads_for(length), length, 64), causal=True)
    for kind in ["f32", "bf16", "f16"]:
        yield Case(f"forward + backward n1024/d64/{kind}", [f"full/n1024/d64/{kind}", f"backward/n1024/d64/{kind}"],
                   (1, 8, 1024, 64), backward=True)
    for batch, heads, length, dim in [(256, 4, 8, 32), (128, 4, 16, 32), (64, 8, 32, 64), (32, 8, 64, 64)]:
        name = f"b{batch}h{heads}n{length}/d{dim}/f32"
        yield Case(f"short/{name}", [f"short/{name}"], (batch, heads, length, dim))
        yield Case(f"forward + backward {name}", [f"short/{name}", f"short-backward/{name}"],
                   (batch, heads, length, dim), backward=True)
    for kind in ["f32", "bf16", "f16"]:
        name = f"decode/q32kv8/n4096/d128/{kind}"
        yield Case(name, [name], (1, 32, 4096, 128), decode=8)
    yield Case("call/b1h1n8/d16/f32", ["call/b1h1n8/d16/f32"], (1, 1, 8, 16))


def best_ms(run):
    run()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def tensors(case):
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(shape, generator=generator).mul(2).sub(1).to(TYPES[case.type]) for shape in (case.q, case.kv, case.kv)]


class PyTorch:
    title = "PyTorch"

    def prepare(self, case):
        q, k, v = (x.requires_grad_(case.backward) for x in tensors(case))
        grouped = case.q[1] != case.kv[1]
        self.path = {0: "math", 1: "flash"}.get(torch._fused_sdp_choice(q, k, v, None, 0.0, case.causal,
                                                                        enable_gqa=grouped), "other")
        dout = torch.ones(case.q, dtype=q.dtype)

        def run():
            out = sdpa(q, k, v, is_causal=case.causal, enable_gqa=grouped)
            if case.backward:
                torch.autograd.grad(out, (q, k, v), dout)

        return run


def session(graph, opsets):
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class OrtAttention:
    title = "ORT Attention"
    path = ""

    def prepare(self, case):
        if case.backward or case.type != "f32":
            return None
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("QKV", (case.q, case.kv, case.kv))]
        out = helper.make_tensor_value_info("Y", TensorProto.FLOAT, case.q)
        node = helper.make_node("Attention", list("QKV"), ["Y"], is_causal=int(case.causal))
        run = session(helper.make_graph([node], "g", infos, [out]), [helper.make_opsetid("", 23)])
        feed = {name: x.numpy() for name, x in zip("QKV", tensors(case))}
        return lambda: run.run(None, feed)


class OrtMultiHead:
    title = "ORT MHA"
    path = ""

    def prepare(self, case):
        if case.backward or case.type != "f32" or case.q[1] != case.kv[1]:
            return None
        packed = [x.transpose(1, 2).flatten(2).contiguous() for x in tensors(case)]
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip("QKV", packed)]
        out = helper.make_tensor_value_info("Y", TensorProto.FLOAT, packed[0].shape)
        node = helper.make_node("MultiHeadAttention", list("QKV"), ["Y"], domain="com.microsoft", num_heads=case.q[1],
                                unidirectional=int(case.causal))
        run = session(helper.make_graph([node], "g", infos, [out]),
                      [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        feed = {name: x.numpy() for name, x in zip("QKV", packed)}
        return lambda: run.run(None, feed)


class OpenVino:
    title = "OpenVINO"
    path = ""

    def prepare(self, case):
        if case.backward or case.type != "f32" or case.q[1] != case.kv[1]:
            return None
        parameters = [opset13.parameter(list(s), np.float32) for s in (case.q, case.kv, case.kv)]
        node = opset13.scaled_dot_product_attention(*parameters, causal=case.causal)
        core = openvino.Core()
        compiled = core.compile_model(openvino.Model([node], parameters), "CPU",
                                      {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})
        request = compiled.create_infer_request()
        for index, x in enumerate(tensors(case)):
            request.set_input_tensor(index, openvino.Tensor(x.numpy()))
        return request.infer


def regard_ms(regard, case):
    total = 0.0
    for name in case.names:
        command = [regard, "bench", "--threads", "1", "--filter", name, "--json"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)
        total += found["cases"][0]["ms"]
    return total


def prepared(peer, case):
    """None where the library refuses the case."""
    try:
        run = peer.prepare(case)
        if run:
            run()
        return run
    except Exception as error:  # a peer's own words are worth seeing, whatever their class
        print(f"{peer.title} refuses {case.title}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
        return None


def measure(regard, case, rounds):
    peers = [(peer, prepared(peer, case)) for peer in (PyTorch(), OrtMultiHead(), OrtAttention(), OpenVino())]
    ours, theirs = [], {peer.title: [] for peer, _ in peers}
    for _ in range(rounds):
        ours.append(regard_ms(regard, case))
        for peer, run in peers:
            if run:
                theirs[peer.title].append(best_ms(run))
    return min(ours), {title: min(times) for title, times in theirs.items() if times}, peers[0][0].path


def main(regard, rounds=3, pattern="*"):
    torch.set_num_threads(1)
    info = json.loads(subprocess.run([regard, "info", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    print(f"{info.get('cpu', '')}; torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, "
          f"openvino {openvino.__version__.split('-')[0]}; one thread each, best of {rounds} rounds, milliseconds\n")
    titles = [peer.title for peer in (PyTorch, OrtMultiHead, OrtAttention, OpenVino)]
    print("| case | Regard | " + " | ".join(titles) + " | best peer / Regard |")
    print("|---|" + "---|" * (len(titles) + 2))
    for case in cases():
        if not fnmatch.fnmatch(case.title, pattern):
            continue
        ours, theirs, path = measure(regard, case, rounds)
        cells = [f"{theirs[t]:.4g}" + (f" ({path})" if t == "PyTorch" else "") if t in theirs else "-" for t in titles]
        print(f"| `{case.title}` | {ours:.4g} | " + " | ".join(cells) + f" | {min(theirs.values()) / ours:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3, *sys.argv[3:4])
