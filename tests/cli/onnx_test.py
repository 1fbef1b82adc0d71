"""`regard onnx` through the real binary: the ONNX project's cases, then bad input."""
import json
import os
import unittest

from regard import DATA, Case, Tensor, filled, read, to_bytes


def small(**changes):
    tensors = {"Q": filled([1, 2, 2, 4]), "K": filled([1, 2, 3, 4]), "V": filled([1, 2, 3, 4])}
    tensors.update(changes)
    return tensors


class Onnx(Case):
    def onnx(self, *arguments, opset=23, operator="Attention"):
        return ["onnx", operator, self.in_path, "-o", self.out_path, "--opset", opset, *arguments]

    def test_every_attention_case_gives_its_exact_result(self):
        self.runs_cases("Attention", "attention", 50)

    def test_every_rotary_embedding_case_gives_its_exact_result(self):
        self.runs_cases("RotaryEmbedding", "rotary_embedding", 6)

    def test_every_linear_attention_case_gives_its_exact_result(self):
        self.runs_cases("LinearAttention", "linear_attention", 13)

    def runs_cases(self, operator, folder, at_least):
        folder = os.path.join(DATA, "onnx", folder)
        with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        self.assertGreaterEqual(len(cases), at_least)
        for case in cases:
            with self.subTest(case=case["name"]):
                tensors = read(os.path.join(folder, case["file"]))
                self.write({entry["name"]: tensors[entry["name"]] for entry in case["inputs"]})
                names = [entry["name"] for entry in case["outputs"]]
                self.works(*self.onnx("--attributes", json.dumps(case["attributes"]), "--outputs", ",".join(names),
                                      opset=case["opset"], operator=operator))
                got = read(self.out_path)
                self.assertEqual(set(got), set(names))
                for name in names:
                    exact = tensors.get("exact." + name)
                    # Half a unit in the last place of a result that is rounded once.
                    rounding = {"F16": 2**-11, "BF16": 2**-8}.get(got[name].dtype, 0)
                    tolerance = (1e-5 + rounding, 1e-6) if exact else (0, 0)
                    self.assert_close(got[name], exact or tensors["out." + name], *tolerance, name)

    def test_every_output_is_written_unless_some_are_picked(self):
        self.write(small())
        text = self.works(*self.onnx())
        self.assertEqual([line.split()[0] for line in text.splitlines()],
                         ["Y", "present_key", "present_value", "qk_matmul_output"])
        self.works(*self.onnx("--outputs", "Y"))
        self.assertEqual(list(read(self.out_path)), ["Y"])

    def test_what_is_unknown_is_named_with_what_is_known(self):
        for tensors, arguments, says in [
            (small(), ["--attributes", '{"causal": 1}'], ["'causal'", "is_causal"]),
            (small(), ["--attributes", "causal"], ["JSON"]),
            (small(), ["--attributes", '{"is_causal": 7}'], ["is_causal", "7"]),
            (small(), ["--outputs", "Z"], ["'Z'", "present_key"]),
            (small(mask=filled([2, 3])), [], ["'mask'", "attn_mask"]),
            (small(nonpad_kv_seqlen=Tensor("I64", [1], [2])), [], ["'nonpad_kv_seqlen'"]),
            (small(), ["--attributes", '{"left_window_size": 2}'], ["opset 25"]),
        ]:
            with self.subTest(arguments=arguments, says=says):
                self.write(tensors)
                self.fails(2 if arguments else 1, *self.onnx(*arguments), says=says)

    def test_sizes_and_types_that_disagree_are_named(self):
        for changes, says in [
            ({"K": filled([1, 2, 3, 5])}, ["[1,2,3,5]", "[1,2,2,4]"]),
            ({"K": filled([2, 3, 4])}, ["[2,3,4]", "[1,2,2,4]"]),
            ({"attn_mask": filled([3, 3])}, ["attn_mask", "[3,3]", "[1,2,2,3]"]),
            ({"past_key": filled([1, 2, 3, 4])}, ["past_value"]),
            ({"Q": filled([1, 2, 2, 4], 0, "F16")}, ["F16", "F32"]),
        ]:
            with self.subTest(changes=changes):
                self.write(small(**changes))
                self.fails(1, *self.onnx(), says=says)

    def test_missing_and_truncated_files_are_named(self):
        self.fails(1, *self.onnx(), says=[self.in_path])
        with open(self.in_path, "wb") as file:
            file.write(to_bytes(small())[:-1])
        self.fails(1, *self.onnx(), says=[self.in_path])


if __name__ == "__main__":
    unittest.main()
