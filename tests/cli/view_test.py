"""regard view from the outside: flags that go together, and captions that can
be pasted into a shell."""
import html
import json
import os
import re
import shlex
import shutil
import tempfile
import unittest

from regard import Case

SIZES = ["--layers", "1", "--model-dim", "16", "--heads", "2", "--hidden", "16", "--batch", "8",
         "--epochs", "40", "--rate", "0.01", "--warmup", "1", "--threads", "1"]


class View(Case):
    @classmethod
    def setUpClass(cls):
        """A tiny model whose folder and letters have what shells treat in their own ways, trained until its outputs
        end."""
        cls.data = tempfile.mkdtemp(prefix="regard-view-")
        cls.model = os.path.join(cls.data, "it's a $model")
        for name in ("train.tsv", "dev.tsv"):
            with open(os.path.join(cls.data, name), "w") as file:
                for text in ["a", "b", "ab", "ba", "it's $5", "-a", 'a "b" c']:
                    file.write(f"{text}\tA B\n")
        case = cls()
        case.works("train", "--train", os.path.join(cls.data, "train.tsv"), "--dev", os.path.join(cls.data, "dev.tsv"),
                   "--out", cls.model, *SIZES)
        cls.trace = os.path.join(cls.data, "trace")
        case.works("view", "ab", "--model", cls.model, "--save-trace", cls.trace)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.data)

    def runTest(self):
        """unittest wants a method of this name for the instance made in setUpClass."""

    def test_flags_without_effect_are_refused_with_the_reason(self):
        for flags, says in [
            (["--inches", "5"], "svg, png or pdf"),
            (["--transparent"], "svg, png or pdf"),
            (["--lines", "--format", "json"], "svg, png or pdf"),
            (["--inches", "5", "--format", "json"], "svg, png or pdf"),
            (["--query", "0", "--format", "svg"], "--format term"),
            (["--query", "0", "--format", "json"], "--format term"),
            (["--width", "80", "--format", "png"], "--format term"),
            (["--query", "0", "--kind", "encoder,cross"], "one --kind"),
            (["--scale", "log", "--lines", "--format", "svg"], "--lines"),
            (["-o", "x"], "svg, png, pdf or json"),
            (["--kind", "cross", "--contents"], "--contents"),
            (["--layer", "0", "--contents"], "--contents"),
            (["--head", "0", "--contents"], "--contents"),
            (["--query", "0", "--contents"], "--contents"),
            (["--scale", "log", "--contents"], "--contents"),
            (["--width", "80", "--contents"], "--contents"),
            (["--contents", "--format", "svg"], "term or json"),
            (["--method", "norms", "--contents"], "--contents"),
            (["--method", "norms", "--patterns"], "--patterns"),
            (["--head", "0", "--patterns"], "--patterns"),
            (["--query", "0", "--patterns"], "--patterns"),
            (["--scale", "log", "--patterns"], "--patterns"),
            (["--lines", "--patterns", "--format", "svg"], "--patterns"),
            (["--method", "weights,norms", "--format", "svg"], "one --method"),
            (["--method", "norms", "--save-trace", "x"], "weights"),
        ]:
            with self.subTest(flags=flags):
                self.fails(2, "view", "ab", "--model", self.model, *flags, says=[flags[0], says])
        self.fails(2, "view", "ab", "--model", self.model, "--format", "svg", "-o", "a.png", says=["svg", "a.png"])
        self.fails(2, "view", "--trace", self.trace, "-o", self.trace + ".json", says=["is the file that is read"])
        self.fails(2, "view", "ab", "--model", self.model, "--save-trace", os.path.join(self.folder, "t"), "-o",
                   os.path.join(self.folder, "t.json"), says=["--save-trace"])
        for arguments in [["-o", os.path.join(self.model, "model.json")],
                          ["--save-trace", os.path.join(self.model, "model")]]:
            self.fails(2, "view", "ab", "--model", self.model, *arguments, says=["is the file that is read"])
        self.fails(2, "view", "ab", "--model", self.model, "--save-trace", "", says=["--save-trace", "name a file"])
        self.fails(2, "view", "ab", "--model", self.model, "--layer", "9", "--save-trace",
                   os.path.join(self.folder, "t"), says=["layer"])
        self.fails(2, "view", "ab", "--model", self.model, "-o", "-", says=["--out", "/dev/stdout"])
        self.fails(2, "view", "--trace", self.trace, "--method", "norms", says=["give a TEXT"])
        for flags in [["--model", self.model], ["--beam", "2"]]:
            self.fails(2, "view", "--trace", self.trace, *flags, says=[flags[0], "--trace"])

    def test_what_is_not_there_is_refused_before_anything_is_printed(self):
        for flags, says in [
            (["--head", "99"], "99"),
            (["--layer", "4"], "4"),
            (["--query", "99"], "99"),
            (["--head", "99", "--kind", "cross", "--format", "json"], "99"),
            (["--layer", "-1"], "--layer: -1 is not at least 0"),
            (["--query", "-1"], "--query: -1 is not at least 0"),
            (["--inches", "nan", "--format", "svg"], "--inches: nan is not a finite number"),
        ]:
            with self.subTest(flags=flags):
                self.fails(2, "view", "ab", "--model", self.model, *flags, says=[says])
                self.assertEqual(self.regard("view", "ab", "ba", "--model", self.model, *flags).stdout, "")

    def test_no_line_is_wider_than_asked_for_and_no_fewer_columns_than_20_can_be_asked_for(self):
        for width in [20, 33, 47, 48, 80]:
            for flags in [[], ["--patterns"], ["--patterns", "--layer", "0"], ["--method", "norms,rollout"]]:
                text = self.works("view", "abababab" * 4, "--model", self.model, "--width", str(width), *flags)
                self.assertLessEqual(max(map(len, text.splitlines())), width)
        self.fails(2, "view", "ab", "--model", self.model, "--width", "19", says=["--width", "20"])

    def test_control_characters_of_a_text_are_escaped(self):
        run = self.regard("view", "a\tb\n\x1b[31m", "--model", self.model)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("\\t", run.stdout.splitlines()[0])
        for text in [run.stdout, run.stderr]:
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\t", text)
        self.assertEqual(run.stderr.count("\n"), 1)

    def test_flags_with_an_effect_are_taken(self):
        for flags in [["--query", "0", "--kind", "cross", "--width", "90", "--scale", "log"], ["--query", "0"],
                      ["--method", "weights,rollout"], ["--method", "rollout", "--format", "json"],
                      ["--patterns"], ["--patterns", "--layer", "0", "--kind", "cross"],
                      ["--contents"], ["--contents", "--format", "json"], ["--beam", "3", "--layer", "0"],
                      ["--format", "json", "--scale", "lift", "--head", "all", "--kind", "encoder,cross"]]:
            with self.subTest(flags=flags):
                self.works("view", "ab", "--model", self.model, *flags)
                if "--beam" not in flags:
                    self.works("view", "--trace", self.trace, *flags)

    def test_the_method_on_screen_is_named_and_its_numbers_are_its_own(self):
        for method, says in [("weights", "attention weights"), ("norms", "contribution norms"),
                             ("rollout", "attention rollout")]:
            text = self.works("view", "ab", "--model", self.model, "--kind", "cross", "--method", method)
            self.assertIn(says, " ".join(text.split()))
            maps = json.loads(self.works("view", "ab", "--model", self.model, "--kind", "cross", "--method", method,
                                         "--format", "json"))["maps"]
            self.assertEqual([m["quantity"] for m in maps], [method])
            for row in maps[0]["weights"]:
                # The residual takes its part of norms, the target its part of rollout.
                self.assertAlmostEqual(sum(row), 1, 5) if method == "weights" else self.assertLess(sum(row), 0.99)
        both = self.works("view", "ab", "--model", self.model, "--method", "weights,norms")
        for words in ["Method: attention weights", "Method: contribution norms"]:
            self.assertIn(words, both)

    def test_the_ending_of_the_file_is_the_format(self):
        path = os.path.join(self.folder, "picture")
        for ending, begin in [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("json", b"{")]:
            self.works("view", "ab", "--model", self.model, "-o", f"{path}.{ending}", "--kind", "cross,cross")
            with open(f"{path}.{ending}", "rb") as file:
                self.assertEqual(file.read(len(begin)), begin)

    def test_an_ending_in_capitals_is_one_and_another_is_told_what_to_do(self):
        self.fails(2, "view", "ab", "--model", self.model, "-o", "a.txt", says=["a.txt", "end it in .svg, .png, .pdf"])
        path = os.path.join(self.folder, "capitals.SVG")
        self.works("view", "ab", "--model", self.model, "-o", path)
        with open(path, "rb") as file:
            self.assertEqual(file.read(4), b"<svg")

    def test_a_trace_may_be_named_by_one_of_its_files(self):
        shown = self.works("view", "--trace", self.trace)
        for ending in (".json", ".safetensors"):
            self.assertEqual(self.works("view", "--trace", self.trace + ending), shown)

    def test_one_key_alone_has_no_focus(self):
        # One letter: cross-attention has nothing to choose from.
        looked = ["view", "--model", self.model, "--kind", "encoder"]
        self.assertNotIn("Focus of every head", self.works(*looked, "--", "a"))
        self.assertIn("Focus of every head", self.works(*looked, "--", "ab"))

    def test_patterns_are_named_for_every_head_the_same_from_text_and_trace(self):
        text = json.loads(self.works("view", "ab", "--model", self.model, "--patterns", "--format", "json"))
        trace = json.loads(self.works("view", "--trace", self.trace, "--patterns", "--format", "json"))
        self.assertEqual(len(text["patterns"]), 6)
        for a, b in zip(text["patterns"], trace["patterns"], strict=True):
            self.assertEqual([a[k] for k in ("kind", "layer", "head", "label")],
                             [b[k] for k in ("kind", "layer", "head", "label")])
            self.assertAlmostEqual(a["score"], b["score"], 5)
        overview = self.works("view", "ab", "--model", self.model, "--patterns")
        for kind in ["encoder self-attention", "decoder self-attention", "cross-attention"]:
            self.assertIn(f"Patterns of {kind}, 1 layer × 2 heads", overview)
        self.fails(2, "view", "ab", "--model", self.model, "--patterns", "--layer", "3", says=["layers 0 to 0"])

    def command_in(self, *arguments):
        """The command in the caption of the figure that `arguments` draw, with the figure."""
        path = os.path.join(self.folder, "figure.svg")
        self.works("view", "--format", "svg", "-o", path, *arguments)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        described = html.unescape(re.search(r"<desc[^>]*>(.*?)</desc>", text, re.S)[1])
        return re.search(r"; (regard view .*?)(?:; |\. |\.$)", described)[1], text

    def test_the_caption_draws_the_same_picture_when_pasted_into_a_shell(self):
        model = ["--model", self.model]
        for arguments in [
            ["ab", *model],
            ["it's $5", *model, "--beam", "3", "--scale", "log"],
            ['a "b" c', *model, "--head", "1", "--lines"],
            ["ab", *model, "--head", "all", "--scale", "lift"],
            ["--trace", self.trace, "--kind", "encoder"],
            ["ab", *model, "--patterns"],
            ["ab", *model, "--kind", "cross", "--method", "norms"],
            ["--trace", self.trace, "--kind", "cross", "--method", "rollout"],
            [*model, "--", "-a"],
        ]:
            with self.subTest(arguments=arguments):
                end = arguments.index("--") if "--" in arguments else len(arguments)
                command, figure = self.command_in(*arguments[:end], "--inches", "6.75", *arguments[end:])
                words = shlex.split(command)
                self.assertEqual(words[:2], ["regard", "view"])
                for word in arguments:
                    self.assertIn(word, words)
                end = words.index("--") if "--" in words else len(words)
                again, same = self.command_in(*words[2:end], "--inches", "6.75", *words[end:])
                self.assertEqual(again, command)
                self.assertEqual(same, figure)


if __name__ == "__main__":
    unittest.main()
