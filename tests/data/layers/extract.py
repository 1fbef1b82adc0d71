"""Makes layers.safetensors: extract.py FIXTURES OUT, see README.md. Copies only."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli"))
from regard import Tensor, read, to_bytes  # noqa: E402

FIXTURES, OUT = sys.argv[1:]
result = {}


def fixture(name):
    return (read(os.path.join(FIXTURES, name, part + ".safetensors")) for part in ("model", "expected"))


def keep_weights(name, weights, prefix, parts):
    for ours, theirs in parts.items():
        for kind in ("weight", "bias"):
            if f"{prefix}{theirs}.{kind}" in weights:
                result[f"{name}.{ours}.{kind}"] = weights[f"{prefix}{theirs}.{kind}"]


def keep(name, expected, case, parts):
    for ours, theirs in parts.items():
        tensor = expected[f"{case}.{theirs}"]
        if "attention_mask" in theirs:
            tensor = Tensor("I64", tensor.shape, [int(value) for value in tensor.values])
        result[f"{name}.{ours}"] = tensor


BERT = {"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "output": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
        "first": "intermediate.dense", "second": "output.dense", "feed_forward_norm": "output.LayerNorm"}
STATES = {"x": "hidden_states.0", "y": "hidden_states.1", "mask": "attention_mask"}

weights, expected = fixture("longformer")
keep_weights("longformer", weights, "encoder.layer.0.", BERT | {
    f"global_{part}": f"attention.self.{part}_global" for part in ("query", "key", "value")})
keep("longformer", expected, "right_padded", STATES | {
    "global_mask": "global_attention_mask", "local": "attentions.0", "global": "global_attentions.0"})
keep("longformer.local_only", expected, "local_only", STATES | {"local": "attentions.0"})

weights, expected = fixture("big_bird-random")
keep_weights("big_bird", weights, "encoder.layer.0.", BERT)
keep("big_bird", expected, "random_blocks", STATES)
drawn = expected["random_blocks.rand_attn.0"]
result["big_bird.blocks"] = Tensor("I64", drawn.shape, [int(value) for value in drawn.values])

weights, expected = fixture("deberta-v2")
keep_weights("deberta", weights, "encoder.layer.0.", BERT | {
    part: f"attention.self.{part}_proj" for part in ("query", "key", "value")})
keep_weights("deberta", weights, "encoder.", {"relative": "rel_embeddings", "relative_norm": "LayerNorm"})
keep("deberta", expected, "right_padded", STATES | {"attentions": "attentions.0"})

weights, expected = fixture("modernbert")
for layer in range(2):
    name = f"modernbert.{layer}"
    keep_weights(name, weights, f"model.layers.{layer}.", {
        "qkv": "attn.Wqkv", "output": "attn.Wo", "first": "mlp.Wi", "second": "mlp.Wo",
        "attention_norm": "attn_norm", "feed_forward_norm": "mlp_norm"})
    keep(name, expected, "right_padded", {
        "x": f"hidden_states.{layer}", "y": f"hidden_states.{layer + 1}", "mask": "attention_mask",
        "attentions": f"attentions.{layer}"})

with open(OUT, "wb") as file:
    file.write(to_bytes(result))
