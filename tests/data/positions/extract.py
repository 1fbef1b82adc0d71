"""Makes positions.safetensors: extract.py FIXTURES OUT, see README.md.

Everything before the positions is done here, in double and in plain loops: the
norm in front of layer 0's attention and its query and key projections."""
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli"))
from regard import Tensor, f32, read, to_bytes  # noqa: E402

FIXTURES, OUT = sys.argv[1:]
HEADS = 4


def rows(tensor):
    width = tensor.shape[-1]
    return [list(tensor.values[i : i + width]) for i in range(0, len(tensor.values), width)]


def layer_norm(x, weight, bias, epsilon):
    mean = sum(x) / len(x)
    centred = [v - mean for v in x]
    spread = math.sqrt(sum(v * v for v in centred) / len(x) + epsilon)
    return [v / spread * w + b for v, w, b in zip(centred, weight, bias)]


def rms_norm(x, weight, epsilon):
    size = math.sqrt(sum(v * v for v in x) / len(x) + epsilon)
    return [v / size * w for v, w in zip(x, weight)]


def project(x, weight, bias=None):
    out = [sum(a * b for a, b in zip(x, row)) for row in rows(weight)]
    return [a + b for a, b in zip(out, bias.values)] if bias else out


def split(flat, batch, heads):
    """[batch * seq][heads * size] to a tensor [batch, heads, seq, size]."""
    seq, size = len(flat) // batch, len(flat[0]) // heads
    values = [v for b in range(batch) for h in range(heads) for s in range(seq)
              for v in flat[b * seq + s][h * size : (h + 1) * size]]
    return f32([batch, heads, seq, size], values)


class Model:
    def __init__(self, name, case="right_padded"):
        self.w = read(os.path.join(FIXTURES, name, "model.safetensors"))
        expected = read(os.path.join(FIXTURES, name, "expected.safetensors"))
        self.expected = {key[len(case) + 1 :]: value for key, value in expected.items() if key.startswith(case + ".")}

    def norm(self, states, prefix, epsilon):
        weight = self.w[prefix + ".weight"].values
        if prefix + ".bias" in self.w:
            return [layer_norm(x, weight, self.w[prefix + ".bias"].values, epsilon) for x in rows(states)]
        return [rms_norm(x, weight, epsilon) for x in rows(states)]

    def projected(self, x, prefix):
        bias = self.w.get(prefix + ".bias")
        return [project(row, self.w[prefix + ".weight"], bias) for row in x]


result = {}


def keep(name, model, q, k, kv_heads=HEADS, attentions="attentions.0", mask="attention_mask"):
    shape = model.expected[attentions].shape
    batch = shape[0]
    result[name + ".q"], result[name + ".k"] = split(q, batch, HEADS), split(k, batch, kv_heads)
    result[name + ".attentions"] = model.expected[attentions]
    given = model.expected.get(mask)
    result[name + ".mask"] = Tensor("I64", [batch, shape[2]], given.values if given else [1] * batch * shape[2])


def separate(name, folder, prefix, norm, epsilon, projections=("q_proj", "k_proj"), case="right_padded", kv_heads=HEADS):
    model = Model(folder, case)
    states = model.expected["hidden_states.0"]
    x = model.norm(states, norm, epsilon) if norm else rows(states)
    q, k = (model.projected(x, prefix + part) for part in projections)
    keep(name, model, q, k, kv_heads)
    return model


def fused(name, folder, prefix, norm):
    """query_key_value holds query, key and value of one head after the other."""
    model = Model(folder)
    both = model.projected(model.norm(model.expected["hidden_states.0"], norm, 1e-5), prefix)
    size = len(both[0]) // HEADS // 3
    part = lambda which: [[v for h in range(HEADS) for v in row[(3 * h + which) * size : (3 * h + which + 1) * size]]
                          for row in both]
    keep(name, model, part(0), part(1))


LLAMA, NORM = "model.layers.0.self_attn.", "model.layers.0.input_layernorm"
separate("llama", "llama", LLAMA, NORM, 1e-5, kv_heads=2)
separate("llama_left_padded", "llama", LLAMA, NORM, 1e-5, case="left_padded", kv_heads=2)
separate("llama_linear", "llama-linear", LLAMA, NORM, 1e-5, kv_heads=2)
separate("llama3", "llama-llama3rope", LLAMA, NORM, 1e-5, kv_heads=2)
separate("phi", "phi", LLAMA, NORM, 1e-5)
oss = separate("gpt_oss", "gpt_oss", LLAMA, NORM, 1e-5, kv_heads=2)
result["gpt_oss.sink"] = oss.w[LLAMA + "sinks"]
ESM = "esm.encoder.layer.0.attention."
separate("esm", "esm", ESM + "self.", ESM + "LayerNorm", 1e-5, ("query", "key"))
mpnet = separate("mpnet", "mpnet", "encoder.layer.0.attention.attn.", None, 0, ("q", "k"))
result["mpnet.table"] = mpnet.w["encoder.relative_attention_bias.weight"]
fused("gpt_neox", "gpt_neox", "gpt_neox.layers.0.attention.query_key_value", "gpt_neox.layers.0.input_layernorm")
fused("bloom", "bloom", "transformer.h.0.self_attention.query_key_value", "transformer.h.0.input_layernorm")

t5 = Model("t5")
for side in ("encoder", "decoder"):
    prefix = side + ".block.0.layer.0."
    x = t5.norm(t5.expected[side + "_hidden_states.0"], prefix + "layer_norm", 1e-6)
    q, k = (t5.projected(x, prefix + "SelfAttention." + part) for part in "qk")
    keep("t5_" + side, t5, q, k, attentions=side + "_attentions.0",
         mask="attention_mask" if side == "encoder" else "decoder_attention_mask")
    result[f"t5_{side}.table"] = t5.w[prefix + "SelfAttention.relative_attention_bias.weight"]

# Keys of 16 numbers a head without positions and 8, shared by all heads, with.
v3 = Model("deepseek_v3")
x = v3.norm(v3.expected["hidden_states.0"], NORM, 1e-6)
low = [rms_norm(row, v3.w[LLAMA + "q_a_layernorm.weight"].values, 1e-6)
       for row in v3.projected(x, LLAMA + "q_a_proj")]
joint = v3.projected(x, LLAMA + "kv_a_proj_with_mqa")
keys = v3.projected([rms_norm(row[:16], v3.w[LLAMA + "kv_a_layernorm.weight"].values, 1e-6) for row in joint],
                    LLAMA + "kv_b_proj")
keep("deepseek_v3", v3, v3.projected(low, LLAMA + "q_b_proj"),
     [[v for h in range(HEADS) for v in key[28 * h : 28 * h + 16] + row[16:24]] for key, row in zip(keys, joint)])

# Sparse blocks drawn by the other side: window, first and last block, two random ones a block of queries.
BIRD = "encoder.layer.0.attention.self."
bird = separate("big_bird", "big_bird-random", BIRD, None, 0, ("query", "key"), case="random_blocks")
drawn = bird.expected["rand_attn.0"]
result["big_bird.blocks"] = Tensor("I64", [1, *drawn.shape], [int(value) for value in drawn.values])
for part in ("q", "k", "attentions", "blocks"):  # two heads are enough
    whole = result["big_bird." + part]
    result["big_bird." + part] = Tensor(whole.dtype, [1, 2, *whole.shape[2:]], whole.values[: len(whole.values) // 2])

with open(OUT, "wb") as file:
    file.write(to_bytes(result))
