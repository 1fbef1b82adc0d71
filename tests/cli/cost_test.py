"""regard cost from the outside: the table, the JSON, the figure, bad use."""
import json
import math
import os
import re
import unittest

from regard import Case

SMALL = ["--n", "64,128", "--model-dim", "32", "--heads", "2", "--budget", "16"]
QUICK = [*SMALL, "--measure", "--seconds", "0.001", "--threads", "1"]
METHODS = ["exact", "stored", "causal", "window", "linformer", "performer", "linear", "reformer", "rnn", "lstm"]


class Cost(Case):
    def rows(self, *arguments):
        run = json.loads(self.works("cost", "--json", *arguments))
        return {(row["method"], row["n"], row["step"]): row for row in run["rows"]}

    def test_json_holds_every_method_length_and_step_by_formula(self):
        rows = self.rows("--n", "512,2048,8192", "--model-dim", "512", "--heads", "8")
        for n in [512, 2048, 8192]:
            for method in METHODS:
                self.assertIn((method, n, "layer"), rows)
            step = {name: rows["exact", n, name] for name in ["project", "scores", "softmax", "sum", "output"]}
            self.assertEqual(step["project"]["flops"], 3 * 2 * n * 512 * 512)
            self.assertEqual(step["scores"]["flops"], 2 * n * n * 512)
            self.assertEqual(step["softmax"]["flops"], 5 * n * n * 8)
            self.assertEqual(step["sum"]["flops"], 2 * n * n * 512 + n * 512)
            self.assertEqual(step["output"]["flops"], 2 * n * 512 * 512)
            self.assertEqual(rows["exact", n, "layer"]["flops"], sum(one["flops"] for one in step.values()))
            self.assertEqual(rows["stored", n, "attention"]["workspace_bytes"], 4 * 8 * n * n)
            self.assertEqual(rows["lstm", n, "layer"]["sequential_steps"], n)
            self.assertEqual(rows["exact", n, "layer"]["sequential_steps"], 1)
        for row in rows.values():
            for key in ["flops", "bytes", "workspace_bytes"]:
                self.assertGreaterEqual(row[key], 0)
            self.assertIsNone(row["ms"])
            self.assertIsNone(row["exponent"])
        self.assertAlmostEqual(rows["exact", 512, "scores"]["flops_exponent"], 2)
        self.assertAlmostEqual(rows["lstm", 512, "recurrence"]["flops_exponent"], 1)

    def test_measured_rows_have_time_peak_and_the_exponent_of_their_times(self):
        rows = self.rows(*QUICK)
        for method in METHODS:
            small, large = rows[method, 64, "layer"], rows[method, 128, "layer"]
            self.assertGreater(small["ms"], 0)
            slope = math.log(large["ms"] / small["ms"]) / math.log(2)
            self.assertAlmostEqual(small["exponent"], slope, places=9)
            self.assertEqual(small["exponent"], large["exponent"])
        self.assertIsNone(rows["exact", 64, "softmax"]["ms"], "one pass does all three")
        self.assertGreater(rows["stored", 64, "softmax"]["ms"], 0)

    def test_one_length_has_no_exponent(self):
        rows = self.rows("--n", "64", "--method", "exact,lstm", "--measure", "--seconds", "0.001")
        self.assertEqual({method for method, _, _ in rows}, {"exact", "lstm"})
        for row in rows.values():
            self.assertIsNone(row["exponent"])
            self.assertIsNone(row["flops_exponent"])

    def test_table_has_a_line_a_step_and_fits_its_width(self):
        for arguments in [[], QUICK]:
            for width in [76, 100, 200]:
                text = self.works("cost", *arguments, "--width", width)
                self.assertLessEqual(max(map(len, text.splitlines())), width, text)
                for method in METHODS:
                    self.assertRegex(text, rf"(?m)^{method} ")
                self.assertRegex(text, r"(?m)^ +softmax ")
        text = self.works("cost", "--n", "512,2048", "--method", "exact")
        # 2 * 512^2 * 512 = 268 million operations, 16 times as many at 2048: n^2.
        self.assertRegex(text, r"(?m)^ +scores +268 M .* 4\.29 G .*n\^2\.00$")

    def test_a_figure_that_can_not_be_drawn_loses_no_numbers(self):
        for arguments in [["--n", str(1 << 22), "--method", "stored", "--measure", "-o", "x.svg"],
                          [*SMALL, "-o", os.path.join(self.folder, "none", "x.svg")]]:
            run = self.regard("cost", *arguments)
            self.assertEqual(run.returncode, 1, run.stderr)
            self.assertIn("x.svg", run.stderr)
            self.assertRegex(run.stdout, r"(?m)^stored ")
            if "--measure" in arguments:
                self.assertIn("Not measured, for want of memory (half of this machine's): stored at 4194304", run.stdout)

    def test_what_a_window_of_one_says_never_arrives(self):
        self.assertRegex(self.works("cost", "--method", "window", "--budget", "1"), r"(?m)^window .* never$")
        self.assertEqual(self.works("cost", "--method", "exact,exact"), self.works("cost", "--method", "exact"))

    def test_lengths_are_sorted_and_not_repeated(self):
        self.assertEqual(self.works("cost", "--n", "128,64,64", "--method", "exact"),
                         self.works("cost", "--n", "64,128", "--method", "exact"))

    def test_figures(self):
        for ending, start in [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]:
            path = os.path.join(self.folder, "cost." + ending)
            self.works("cost", *SMALL, "-o", path)
            with open(path, "rb") as file:
                self.assertIn(start, file.read()[:200])
        path = os.path.join(self.folder, "measured.svg")
        self.works("cost", *QUICK, "--method", "exact,lstm", "-o", path)
        with open(path, encoding="utf-8") as file:
            svg = file.read()
        self.assertEqual(len(re.findall("<polyline", svg)), 2)
        for words in ["exact", "lstm", "milliseconds", "FMA peak", "length n"]:
            self.assertIn(words, svg)

    def test_bad_use(self):
        self.fails(2, "cost", "--model-dim", "100", "--heads", "3", says=["100", "3"])
        self.fails(2, "cost", "--n", "0", says=["n is 0"])
        self.fails(2, "cost", "--n", "64,99999999", "--measure", says=["n is 99999999"])
        self.fails(2, "cost", "--inches", "5", says=["--inches", "--out"])
        self.fails(2, "cost", "--width", "80", "--json", says=["--width"])
        self.fails(2, "cost", "--width", "51", says=["52 columns"])
        self.fails(2, "cost", "--width", "75", "--measure", says=["76 columns"])
        self.fails(2, "cost", "--n", "many", says=["--n"])
        self.fails(2, "cost", "--method", "flash", says=["flash", "exact"])
        self.fails(2, "cost", "--seconds", "1", says=["--measure"])
        self.fails(2, "cost", "--seconds", "0", "--measure", says=["--seconds"])
        self.fails(1, "cost", "-o", os.path.join(self.folder, "cost.txt"), says=["cost.txt"])
        self.fails(2, "cost", "-o", os.path.join(self.folder, "c.svg"), "--method", ",".join(METHODS), says=["8"])


if __name__ == "__main__":
    unittest.main()
