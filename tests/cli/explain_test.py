"""regard explain from the outside: one text, a file, and wrong use."""
import json
import os
import shutil
import tempfile
import unittest

from regard import Case

SIZES = ["--layers", "1", "--model-dim", "16", "--heads", "2", "--hidden", "16", "--batch", "8",
         "--epochs", "40", "--rate", "0.01", "--warmup", "1", "--threads", "1"]
METHODS = ["weights", "norms", "rollout", "gradient", "ablation"]


class Explain(Case):
    @classmethod
    def setUpClass(cls):
        """A tiny model, trained until its outputs end."""
        cls.data = tempfile.mkdtemp(prefix="regard-explain-")
        cls.model = os.path.join(cls.data, "model")
        cls.tsv = os.path.join(cls.data, "train.tsv")
        with open(cls.tsv, "w") as file:
            for text in ["a", "b", "ab", "ba", "abb"]:
                file.write(f"{text}\tA B\n")
        case = cls()
        case.works("train", "--train", cls.tsv, "--dev", cls.tsv, "--out", cls.model, *SIZES)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.data)

    def runTest(self):
        """unittest wants a method of this name for the instance made in setUpClass."""

    def test_a_text_is_explained_with_scores_and_a_report(self):
        text = self.works("explain", "ab", "--model", self.model)
        self.assertTrue(text.startswith("a b  ->  A B\n"), text)
        for words in [*METHODS, "random order", "encoder, layer 0", "cross, all layers", "confidence"]:
            self.assertIn(words, text)
        report = json.loads(self.works("explain", "ab", "--model", self.model, "--json"))
        self.assertEqual(report["source"], ["a", "b"])
        self.assertEqual(report["answer"], ["A", "B", "</s>"])
        for method in METHODS:
            self.assertEqual([len(row) for row in report["scores"][method]], [2, 2, 2])
        for row in report["scores"]["weights"]:
            self.assertAlmostEqual(sum(row), 1, places=5)
        self.assertEqual(len(report["heads"]), 6)
        self.assertEqual(len(report["weights_replaced"]), 6)
        self.assertEqual(report["texts"], 1)

    def test_a_file_is_explained_over_each_text_once(self):
        first = self.works("explain", "--data", self.tsv, "--model", self.model).splitlines()[0]
        self.assertEqual(first, "5 texts, 15 answered symbols (ends included), greedy answers")
        report = json.loads(self.works("explain", "--data", self.tsv, "--model", self.model, "--json", "--draws", "2"))
        self.assertEqual((report["texts"], report["symbols"], report["left_out"]), (5, 15, 0))
        again = json.loads(self.works("explain", "--data", self.tsv, "--model", self.model, "--json", "--draws", "2"))
        self.assertEqual(report, again, "the same seed gives the same numbers")

    def test_no_line_is_wider_than_asked_for(self):
        for width in [20, 40, 80, 120]:
            text = self.works("explain", "abb", "--model", self.model, "--width", str(width))
            self.assertLessEqual(max(map(len, text.splitlines())), width)

    def test_wrong_use_says_what_to_do(self):
        for arguments, code, says in [
            ([], 2, "TEXT or --data"),
            (["ab", "--data", self.tsv], 2, "TEXT or --data"),
            (["", "--model", self.model], 2, "TEXT or --data"),
            (["ab", "--skip-bad"], 2, "--skip-bad"),
            (["ab", "--json", "--width", "80"], 2, "--width"),
            (["ab", "--draws", "0"], 2, "--draws"),
            (["--data", "nowhere.tsv", "--model", self.model], 1, "nowhere.tsv"),
            (["a" * 300, "--model", self.model], 1, "longest"),
        ]:
            with self.subTest(arguments=arguments):
                self.fails(code, "explain", *arguments, says=[says])


if __name__ == "__main__":
    unittest.main()
