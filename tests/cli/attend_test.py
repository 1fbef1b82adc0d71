"""`regard attend` through the real binary: published numbers, then bad files."""
import json
import math
import os
import unittest

from regard import DATA, Case, Tensor, f32, f64, filled, read, to_bytes

INF = math.inf


def small(dtype="F32", **changes):
    tensors = {"q": filled([1, 4, 2, 8], dtype=dtype), "k": filled([1, 2, 3, 8], dtype=dtype),
               "v": filled([1, 2, 3, 5], dtype=dtype)}
    tensors.update(changes)
    return tensors


class PublishedNumbers(Case):
    """tests/data/regard: outputs and gradients computed elsewhere in float64."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(DATA, "regard", "gradients.json"), encoding="utf-8") as file:
            cls.index = json.load(file)
        cls.tensors = read(os.path.join(DATA, "regard", "gradients.safetensors"))

    def flags(self, case):
        flags = ["--scale", case["scale"], "--align", case["alignment"].replace("_", "-")]
        if case["causal"]:
            flags.append("--causal")
        if case["softcap"] > 0:
            flags += ["--softcap", case["softcap"]]
        if case["window_left"] >= 0 or case["window_right"] >= 0:
            flags += ["--window", f"{case['window_left']},{case['window_right']}"]
        return flags

    def check(self, dtype):
        tolerance = self.index["tolerance"][dtype.upper()]
        for case in self.index["cases"]:
            with self.subTest(case=case["name"]):
                prefix = case["name"] + ".in."
                self.write({name[len(prefix):]: t for name, t in self.tensors.items() if name.startswith(prefix)})
                self.works("attend", self.in_path, "-o", self.out_path, "--dtype", dtype, "--lse", "--grad",
                           *self.flags(case))
                got = read(self.out_path)
                wanted = {("out" if o["name"] == "y" else o["name"]): f"{case['name']}.out.{o['name']}"
                          for o in case["outputs"]}
                self.assertEqual(set(got), set(wanted))
                for name, source in wanted.items():
                    self.assertEqual(got[name].dtype, dtype.upper())
                    self.assert_close(got[name], self.tensors[source], tolerance["rtol"], tolerance["atol"], name)

    def test_float64_gives_the_published_numbers(self):
        self.check("f64")

    def test_float32_gives_the_published_numbers(self):
        self.check("f32")


class Attending(Case):
    def attend(self, tensors, *flags):
        self.write(tensors)
        self.works("attend", self.in_path, "-o", self.out_path, *flags)
        return read(self.out_path)


class SmallInputs(Attending):
    def test_output_has_the_type_of_q_and_one_line_a_tensor_is_printed(self):
        for dtype in ["F32", "F64"]:
            self.write(small(dtype))
            text = self.works("attend", self.in_path, "-o", self.out_path, "--lse", "--weights")
            self.assertEqual(text, f"lse [1,4,2] {dtype}\nout [1,4,2,5] {dtype}\nweights [1,4,2,3] {dtype}\n")
            self.assertEqual(read(self.out_path)["out"].dtype, dtype)

    def test_causal_starts_bottom_right_unless_told_otherwise(self):
        tensors = {"q": filled([1, 1, 2, 4], 0.0), "k": filled([1, 1, 5, 4]), "v": filled([1, 1, 5, 4])}
        corner = self.attend(tensors, "--causal", "--weights")["weights"]
        self.assert_close(corner, f32([1, 1, 2, 5], [0.25] * 4 + [0] + [0.2] * 5), 1e-6, 0)
        top = self.attend(tensors, "--causal", "--weights", "--align", "top-left")["weights"]
        self.assert_close(top, f32([1, 1, 2, 5], [1, 0, 0, 0, 0, 0.5, 0.5, 0, 0, 0]), 1e-6, 0)
        five = {"q": filled([1, 1, 5, 4], 0.0), "k": filled([1, 1, 2, 4]), "v": filled([1, 1, 2, 4])}
        rows = self.attend(five, "--causal", "--weights", "--lse")
        self.assert_close(rows["weights"], f32([1, 1, 5, 2], [0] * 6 + [1, 0] + [0.5, 0.5]), 1e-6, 0)
        self.assertEqual(rows["lse"].values[:3], [-INF] * 3)

    def test_mask_hides_nan_and_infinity_of_hidden_keys(self):
        # One visible key: the output is its value, whatever the other holds.
        for bad in [1e10, math.nan, INF]:
            x = [0, 1, 2, 3, bad, bad, bad, bad]
            mask = Tensor("BOOL", [2, 2], [1, 0, 1, 0])
            out = self.attend({"q": filled([1, 1, 2, 4]), "k": f32([1, 1, 2, 4], x), "v": f32([1, 1, 2, 4], x),
                               "mask": mask})["out"]
            self.assertEqual(out.values, [0, 1, 2, 3] * 2)

    def test_masks_of_two_three_and_four_dimensions_mean_the_same(self):
        hidden = [1, 0, 1, 1, 1, 0]
        outputs = [self.attend(small(mask=Tensor("BOOL", shape + [2, 3], hidden)), "--weights")["weights"].values
                   for shape in [[], [1], [1, 1]]]
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])
        self.assertEqual(outputs[0][1], 0)

    def test_sink_alone_gives_zeros_and_its_own_lse(self):
        tensors = small(mask=Tensor("BOOL", [2, 3], [0] * 6), sink=f32([4], [1, -2, 0.5, 3]))
        got = self.attend(tensors, "--lse")
        self.assertEqual(set(got["out"].values), {0.0})
        self.assert_close(got["lse"], f32([1, 4, 2], [1, 1, -2, -2, 0.5, 0.5, 3, 3]), 1e-6, 0)

    def test_keys_beyond_their_length_do_not_exist(self):
        keys = [0.25 * i for i in range(2 * 3 * 8)]
        got = self.attend(small(k=f32([1, 2, 3, 8], keys), kv_lengths=Tensor("I64", [1], [2])))
        two = {"q": filled([1, 4, 2, 8]), "k": f32([1, 2, 2, 8], keys[0:16] + keys[24:40]), "v": filled([1, 2, 2, 5])}
        self.assert_close(got["out"], self.attend(two)["out"], 1e-6, 0)

    def test_gradient_of_lse_alone_is_exact(self):
        # One query, one key, scale 1: lse = q k, so dq = k and dk = q.
        one = [1, 1, 1, 1]
        for dtype in ["f64", "f32"]:
            got = self.attend({"q": f64(one, [3]), "k": f64(one, [0.5]), "v": f64(one, [7]), "dout": f64(one, [0]),
                               "dlse": f64([1, 1, 1], [1])}, "--grad", "--scale", 1, "--dtype", dtype)
            self.assertEqual((got["dq"].values, got["dk"].values, got["dv"].values), ([0.5], [3], [0]))

    def test_bottom_right_counts_keys_that_lengths_hide(self):
        # 3 queries, 5 keys of which 3 exist: the first query stands at key 2 and sees all three; scores are equal, so
        # out is the mean of their values. From the top left it sees the first alone.
        tensors = {"q": filled([1, 1, 3, 2], 0), "k": filled([1, 1, 5, 2]), "v": f32([1, 1, 5, 1], [1, 2, 6, 50, 70]),
                   "kv_lengths": Tensor("I64", [1], [3])}
        for align, right in [("bottom-right", [3, 3, 3]), ("top-left", [1, 1.5, 3])]:
            got = self.attend(tensors, "--causal", "--align", align)
            self.assert_close(got["out"], f32([1, 1, 3, 1], right), 1e-6, 0)

    def test_a_gradient_that_is_not_asked_for_is_said_to_be_unread(self):
        tensors = small(dout=filled([1, 4, 2, 5]), dlse=filled([1, 4, 2]))
        self.write(tensors)
        run = self.regard("attend", self.in_path, "-o", self.out_path)
        self.assertEqual(run.returncode, 0)
        self.assertEqual(run.stderr, f"regard attend: {self.in_path} holds dout and dlse, which only --grad reads\n")
        self.assertEqual(self.regard("attend", self.in_path, "-o", self.out_path, "--grad").stderr, "")

    def test_the_file_that_is_read_is_not_written_over(self):
        self.write(small())
        link = self.in_path + ".link"
        os.symlink(self.in_path, link)
        with open(self.in_path, "rb") as file:
            before = file.read()
        for arguments in [["attend", self.in_path, "-o", self.in_path], ["attend", self.in_path, "-o", link],
                          ["onnx", "Attention", self.in_path, "--opset", "23", "-o", self.in_path]]:
            run = self.regard(*arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn("is the file that is read", run.stderr)
        with open(self.in_path, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_no_keys_give_zeros(self):
        got = self.attend({"q": filled([1, 1, 2, 4]), "k": filled([1, 1, 0, 4]), "v": filled([1, 1, 0, 3])}, "--lse")
        self.assertEqual(got["out"].values, [0] * 6)
        self.assertEqual(got["lse"].values, [-INF] * 2)

    def test_thread_count_does_not_change_a_bit(self):
        values = [math.sin(i) for i in range(1 * 2 * 300 * 16)]
        x = f32([1, 2, 300, 16], values)
        outputs = []
        for threads in [1, 2, 3]:
            self.attend({"q": x, "k": x, "v": x}, "--causal", "--threads", threads)
            with open(self.out_path, "rb") as file:
                outputs.append(file.read())
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])

    def test_half_precision_is_widened_when_a_type_is_named(self):
        half = Tensor("F16", [1, 1, 1, 2], [0x3C00, 0x4000])  # 1, 2
        got = self.attend({"q": half, "k": half, "v": half}, "--dtype", "f32")
        self.assertEqual((got["out"].dtype, got["out"].values), ("F32", [1, 2]))

    def test_results_have_the_types_of_their_inputs(self):
        half, brain = Tensor("F16", [1, 1, 1, 2], [0x3C00, 0x4000]), Tensor("BF16", [1, 1, 1, 2], [0x3F80, 0x4000])
        got = self.attend({"q": half, "k": brain, "v": f32([1, 1, 1, 2], [3, 4]), "dout": half}, "--lse", "--grad")
        self.assertEqual({name: t.dtype for name, t in got.items()},
                         {"out": "F16", "lse": "F32", "dq": "F16", "dk": "BF16", "dv": "F32"})
        self.assertEqual(list(got["out"].values), [0x4200, 0x4400])  # 3, 4
        self.assertEqual(list(got["dv"].values), [1, 2])

    def test_dtype_rounds_what_the_file_holds(self):
        # 1 + 2^-8 lies halfway between two bfloat16 numbers: the even one is 1.
        tensors = {name: f64([1, 1, 1, 1], [1 + 2**-8]) for name in ["q", "k", "v"]}
        got = self.attend(tensors, "--dtype", "bf16")["out"]
        self.assertEqual((got.dtype, list(got.values)), ("BF16", [0x3F80]))
        got = self.attend(tensors, "--dtype", "f16")["out"]
        self.assertEqual((got.dtype, list(got.values)), ("F16", [0x3C04]))

    def test_int8_keys_and_values_have_scales(self):
        bytes_of = lambda *values: Tensor("I8", [1, 1, 2, 2], values)
        scales = f32([1, 1, 2], [0.5, 2])
        tensors = {"q": f32([1, 1, 1, 2], [0, 0]), "k": bytes_of(1, 2, 3, 4), "v": bytes_of(-127, 2, 3, 0),
                   "k_scales": scales, "v_scales": scales}
        for flags in [], ["--dtype", "f64"], ["--dtype", "f32"]:
            # Both keys weigh one half: (-127 * .5 + 3 * 2) / 2, (2 * .5 + 0) / 2.
            self.assertEqual(list(self.attend(tensors, *flags)["out"].values), [-28.75, 0.5])

    def test_explain_prints_the_plan_and_needs_no_output(self):
        self.write(small())
        text = self.works("attend", self.in_path, "--explain", "--softcap", 30)
        self.assertIn("softcap", text)
        self.assertIn("tiles", text)
        self.assertFalse(os.path.exists(self.out_path))
        self.assertIn("out [1,4,2,5]", self.works("attend", self.in_path, "--explain", "-o", self.out_path))
        self.assertIn("reference", self.works("attend", self.in_path, "--explain", "--dtype", "f64"))


class Observers(Attending):
    """Three queries, four keys, weights known by hand: scores are log 1, 2, 3, 4."""

    ALL = ["--lse", "--row-max", "--entropy", "--distance", "--top-k", 2, "--key-mass", "--pool", "2x2", "--diagonals"]

    def known(self, dtype):
        scores = [math.log(n) for n in [1, 2, 3, 4]]
        return {"q": Tensor(dtype, [1, 1, 3, 1], [1, 1, 1]), "k": Tensor(dtype, [1, 1, 4, 1], scores),
                "v": Tensor(dtype, [1, 1, 4, 1], [0] * 4)}

    def test_every_observer_writes_what_its_name_says(self):
        w = [0.1, 0.2, 0.3, 0.4]  # of every query; query i stands at position i + 1
        entropy = -sum(p * math.log(p) for p in w)
        offsets = [-2, -1, 0, 1, 2, 3]
        wanted = {
            "out": ([1, 1, 3, 1], [0] * 3),
            "lse": ([1, 1, 3], [math.log(10)] * 3),
            "row_max": ([1, 1, 3], [math.log(4)] * 3),
            "entropy": ([1, 1, 3], [entropy] * 3),
            "distance": ([1, 1, 3], [sum(p * abs(i - j) for j, p in enumerate(w)) for i in [1, 2, 3]]),
            "top_keys": ([1, 1, 3, 2], [3, 2] * 3),
            "top_weights": ([1, 1, 3, 2], [0.4, 0.3] * 3),
            "key_mass": ([1, 1, 4], [3 * p for p in w]),
            "pooled_sum": ([1, 1, 2, 2], [0.3, 0.7, 0.6, 1.4]),
            "pooled_max": ([1, 1, 2, 2], [0.2, 0.4] * 2),
            "diagonal_mass": ([1, 1, 6], [sum(w[i - o] for i in [1, 2, 3] if 0 <= i - o < 4) for o in offsets]),
            "diagonal_offsets": ([6], offsets),
        }
        for dtype, near in [("F32", 1e-6), ("F64", 1e-14)]:
            got = self.attend(self.known(dtype), "--scale", 1, *self.ALL)
            self.assertEqual(set(got), set(wanted))
            for name, (shape, values) in wanted.items():
                kind = "I64" if name in ["top_keys", "diagonal_offsets"] else dtype
                self.assertEqual(got[name].dtype, kind, name)
                self.assert_close(got[name], Tensor(kind, shape, values), near, near, name)

    def test_observing_changes_no_byte_of_the_output(self):
        x = f32([1, 2, 200, 8], [math.sin(i) for i in range(2 * 200 * 8)])
        tensors = {"q": x, "k": x, "v": x}
        plain = self.attend(tensors, "--causal")["out"]
        self.assertEqual(self.attend(tensors, "--causal", "--weights", *self.ALL)["out"].values, plain.values)

    def test_key_mass_counts_the_queries_that_are_asked_for(self):
        got = self.attend(self.known("F64"), "--scale", 1, "--key-mass", "--queries", "1,2")["key_mass"]
        self.assert_close(got, f64([1, 1, 4], [0.1, 0.2, 0.3, 0.4]), 1e-14, 0)

    def test_ranges_and_sizes_that_make_no_sense_are_refused(self):
        self.write(self.known("F32"))
        for flags, says, code in [(["--top-k", 0], ["--top-k", "0"], 2), (["--pool", "4"], ["--pool", "64x64", "'4'"], 2),
                                  (["--pool", "0x4"], ["--pool", "'0x4'"], 2), (["--queries", "0,1"], ["--key-mass"], 2),
                                  (["--key-mass", "--queries", "1"], ["--queries", "BEGIN,END", "'1'"], 2),
                                  (["--key-mass", "--queries", "2,4"], ["key_mass", "2 to 4", "q_len 3"], 1)]:
            with self.subTest(flags=flags):
                self.fails(code, "attend", self.in_path, "-o", self.out_path, *flags, says=says)


class BadInput(Case):
    def refused(self, tensors, *flags, says, code=1):
        self.write(tensors)
        return self.fails(code, "attend", self.in_path, "-o", self.out_path, *flags, says=says)

    def test_missing_file_is_named(self):
        self.fails(1, "attend", self.in_path, "-o", self.out_path, says=[self.in_path])

    def test_every_truncation_is_refused(self):
        whole = to_bytes(small())
        for length in [0, 1, 7, 8, 9, 60, len(whole) // 2, len(whole) - 1]:
            with self.subTest(length=length):
                with open(self.in_path, "wb") as file:
                    file.write(whole[:length])
                self.fails(1, "attend", self.in_path, "-o", self.out_path, says=[self.in_path])

    def test_a_file_of_something_else_is_refused(self):
        with open(self.in_path, "wb") as file:
            file.write(b"this is no tensor file, but it is long enough to look at\n")
        self.fails(1, "attend", self.in_path, "-o", self.out_path, says=[self.in_path])

    def test_a_folder_is_refused(self):
        self.fails(1, "attend", self.folder, "-o", self.out_path, says=[self.folder])

    def test_missing_tensor_is_named_with_those_there_are(self):
        tensors = small()
        del tensors["v"]
        self.refused(tensors, says=['"v"', "k", "q"])

    def test_unknown_tensor_is_named_with_the_known_ones(self):
        self.refused(small(msk=filled([2, 3])), says=["'msk'", "mask", "kv_lengths"])

    def test_shapes_that_disagree_name_both_sides(self):
        for changes, says in [
            ({"k": filled([1, 2, 3, 7])}, ["head_dim 7", "8", "[1,4,2,8]", "[1,2,3,7]"]),
            ({"k": filled([2, 2, 3, 8])}, ["[1,4,2,8]", "[2,2,3,8]"]),
            ({"v": filled([1, 2, 4, 5])}, ["[1,2,4,5]", "[1,2,3,8]"]),
            ({"v": filled([1, 1, 3, 5])}, ["[1,1,3,5]", "[1,2,3,8]"]),
            ({"k": filled([1, 3, 3, 8]), "v": filled([1, 3, 3, 5])}, ["4 heads", "3 heads"]),
            ({"k": filled([1, 0, 3, 8]), "v": filled([1, 0, 3, 5])}, ["4 heads", "0 heads"]),
            ({"q": filled([1, 4, 2, 0]), "k": filled([1, 2, 3, 0])}, ["head_dim is 0"]),
            ({"q": filled([4, 2, 8])}, ["[4,2,8]", "4 dimensions"]),
            ({"bias": filled([2, 3])}, ["bias", "[2,3]", "4 dimensions"]),
            ({"bias": filled([1, 3, 2, 3])}, ["[1,3,2,3]", "[1,4,2,3]"]),
            ({"mask": Tensor("BOOL", [3, 3], [1] * 9)}, ["[3,3]", "[1,4,2,3]"]),
            ({"mask": Tensor("BOOL", [3], [1] * 3)}, ["mask", "[3]"]),
            ({"sink": filled([2])}, ["sink", "2", "4"]),
            ({"sink": filled([0])}, ["sink", "0", "4"]),
            ({"sink": filled([4, 1])}, ["sink", "[4,1]"]),
            ({"kv_lengths": Tensor("I64", [2], [1, 1])}, ["kv_lengths", "2", "1"]),
            ({"kv_lengths": Tensor("I64", [1], [4])}, ["kv_lengths", "4", "3"]),
            ({"kv_lengths": Tensor("I64", [1], [-1])}, ["kv_lengths", "-1"]),
        ]:
            with self.subTest(changes=changes):
                self.refused(small(**changes), says=says)

    def test_types_that_do_not_fit_are_named(self):
        self.refused(small(mask=filled([2, 3], 1.0)), says=["mask", "F32", "BOOL"])
        self.refused(small(kv_lengths=filled([1], 1.0)), says=["kv_lengths", "F32"])
        self.refused(small(k=filled([1, 2, 3, 8], dtype="F64")), says=["k", "F64", "F32"])
        self.refused(small(q=filled([1, 4, 2, 8], 1, "I64")), says=["q", "I64", "F64, F32, BF16 or F16"])

    def test_int8_is_for_keys_and_values_with_scales(self):
        bytes_of, scales = Tensor("I8", [1, 1, 2, 2], [1, 2, 3, 4]), f32([1, 1, 2], [0.5, 2])
        tensors = {"q": f32([1, 1, 1, 2], [0, 0]), "k": bytes_of, "v": bytes_of, "k_scales": scales, "v_scales": scales}
        self.refused({**tensors, "dout": f32([1, 1, 1, 2], [0, 0])}, "--grad", says=["k is I8", "gradient"])
        self.refused({**tensors, "dout": f32([1, 1, 1, 2], [0, 0])}, "--grad", "--dtype", "f64", says=["k is I8"])
        self.refused({**tensors, "k": f32([1, 1, 2, 2], [0] * 4)}, says=["k_scales", "I8", "F32"])
        del tensors["v_scales"]
        self.refused(tensors, says=["v is I8", "v_scales"])
        self.refused({**tensors, "v_scales": f32([1, 1, 1], [1])}, says=["[1,1,2,2]", "[1,1,1]"])
        self.refused({**tensors, "q": Tensor("I8", [1, 1, 1, 2], [0, 0])}, says=["q has dtype I8"])

    def test_grad_needs_dout_of_the_right_shape(self):
        self.refused(small(), "--grad", says=["dout"], code=2)
        self.refused(small(dout=filled([1, 4, 2, 8])), "--grad", says=["dout", "[1,4,2,8]", "[1,4,2,5]"])
        self.refused(small(dout=filled([1, 4, 2, 5]), dlse=filled([1, 4, 3])), "--grad",
                     says=["dlse", "[1,4,3]", "[1,4,2]"])

    def test_a_failed_command_leaves_the_old_output_alone(self):
        self.write(small(k=filled([1, 2, 3, 7])))
        with open(self.out_path, "w", encoding="utf-8") as file:
            file.write("old")
        self.assertEqual(self.regard("attend", self.in_path, "-o", self.out_path).returncode, 1)
        with open(self.out_path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def test_an_output_that_cannot_be_written_is_named(self):
        self.write(small())
        path = os.path.join(self.folder, "missing", "out.safetensors")
        self.fails(1, "attend", self.in_path, "-o", path, says=[path])


if __name__ == "__main__":
    unittest.main()
