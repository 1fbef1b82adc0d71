"""regard bench from the outside: the table, the JSON, the comparison, bad use."""
import json
import os
import unittest

from regard import Case

QUICK = ["--filter", "call/*", "--seconds", "0.01", "--threads", "1"]


class Bench(Case):
    def test_list_names_the_stable_cases(self):
        names = self.works("bench", "--list").split()
        for name in ["full/n1024/d64/f32", "causal/n2048/d64/f32", "window256/n8192/d64/f32",
                     "backward/n1024/d64/f32", "decode/q32kv8/n4096/d128/f32", "short/b128h4n16/d32/f32",
                     "observe-rows/n2048/d64/f32", "observe-all/n2048/d64/f32"]:
            self.assertIn(name, names)
        self.assertEqual(len(names), len(set(names)))

    def test_filter_is_a_glob(self):
        names = self.works("bench", "--list", "--filter", "causal/*/d64/f32").split()
        self.assertTrue(names and all(name.startswith("causal/") for name in names))

    def test_json_has_the_machine_and_every_figure(self):
        run = json.loads(self.works("bench", "--json", *QUICK))
        for key in ["cpu", "isa", "threads", "peak_gflops", "read_gbs", "cases"]:
            self.assertIn(key, run)
        case = run["cases"][0]
        self.assertEqual(case["name"], "call/b1h1n8/d16/f32")
        for key in ["ms", "gflops", "percent_of_peak", "percent_of_bandwidth", "workspace_bytes"]:
            self.assertGreater(case[key], 0, key)
        self.assertEqual(case["skipped_blocks"], 0)
        # 1 head, 8 x 8 pairs, 16 wide, 4 operations a pair and element.
        self.assertAlmostEqual(case["gflops"] * case["ms"], 4 * 8 * 8 * 16 * 1e-6, places=9)

    def test_compare_adds_old_over_new(self):
        old = os.path.join(self.folder, "old.json")
        with open(old, "w") as file:
            json.dump({"cases": [{"name": "call/b1h1n8/d16/f32", "ms": 1000.0}]}, file)
        run = json.loads(self.works("bench", "--json", "--compare", old, *QUICK))
        self.assertEqual(run["cases"][0]["old_ms"], 1000.0)
        table = self.works("bench", "--compare", old, *QUICK)
        self.assertIn("old/new", table)

    def test_bad_use(self):
        self.fails(2, "bench", "--filter", "nothing/*", says=["nothing/*", "--list"])
        self.fails(2, "bench", "--seconds", "0", says=["--seconds"])
        self.fails(1, "bench", "--compare", "missing.json", says=["missing.json"])
        self.fails(1, "bench", "--compare", __file__, says=["bench_test.py", "--json"])


if __name__ == "__main__":
    unittest.main()
