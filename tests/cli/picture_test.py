"""Pictures from the outside: regard picture draws them, run, view and eval read them with the shipped model, train learns
from them, and everything that can be wrong on the way."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib

import regard
from regard import Case

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GLYPHS = os.path.join(ROOT, "models", "glyphs")
PHONEMES = os.path.join(ROOT, "models", "phonemes")

SIZES = ["--layers", "1", "--model-dim", "16", "--heads", "2", "--hidden", "16", "--batch", "8", "--threads", "1"]
# Fonts that the packages of the project bring.
PLAN = {"alphabet": "abcdef", "shortest": 1, "longest": 3, "fonts": ["DejaVu Sans", "DejaVu Serif"], "distortion": 0.5,
        "seed": 1, "height": 16, "train": 40, "dev": 6, "test": 8}


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, colour, depth, pixel, palette=b""):
    """A PNG file written by hand; pixel(x, y) gives the bytes of one."""
    rows = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    extra = chunk(b"PLTE", palette) if palette else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


class PictureCase(Case):
    def setUp(self):
        super().setUp()
        self.files = tempfile.mkdtemp(prefix="regard-pictures-")

    def tearDown(self):
        super().tearDown()
        shutil.rmtree(self.files)

    def path(self, name):
        return os.path.join(self.files, name)

    def file(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def bytes_of(self, path):
        with open(path, "rb") as file:
            return file.read()

    def draw(self, text, *more, name="x.png"):
        self.works("picture", text, "-o", self.path(name), *more)
        return self.path(name)


class ShippedModel(PictureCase):
    def test_strings_are_read_as_they_were_drawn(self):
        fonts = ["DejaVu Sans", "DejaVu Sans Bold", "DejaVu Serif", "DejaVu Serif Bold", "DejaVu Sans Mono"]
        texts = ["regard7", "k9", "x", "quick5", "fox2jump", "wd40", "cvbnm"]
        paths, wanted = [], []
        for font in fonts:
            for text in texts:
                paths.append(self.draw(text, "--font", font, name=f"{font} {text}.png"))
                wanted.append(text)
        answers = [line.split("\t")[1] for line in self.works("run", *paths).splitlines()]
        wrong = [(path, got) for path, got, want in zip(paths, answers, wanted) if got != want]
        # One character may be mistaken in one of 35; of distorted ones it reads 98 in 100.
        self.assertLessEqual(len(wrong), 1, wrong)

    def test_colours_and_sizes_do_not_matter(self):
        path = self.draw("hello42", "--height", "96")
        self.assertEqual(self.works("run", path).strip(), f"{path}\thello42")
        trace = self.path("trace")
        path = self.draw("abc")
        self.works("view", path, "--save-trace", trace)
        grey = regard.read(trace + ".safetensors")["picture"]
        height, width = grey.shape
        def at(x, y):
            return round(255 * grey.values[y * width + x])
        # The same picture as light on dark, in colour and with transparency.
        others = {
            "grey.png": png(width, height, 0, 8, lambda x, y: bytes([at(x, y)])),
            "negative.png": png(width, height, 0, 8, lambda x, y: bytes([255 - at(x, y)])),
            "deep.png": png(width, height, 0, 16, lambda x, y: bytes([at(x, y)] * 2)),
            "red.png": png(width, height, 2, 8, lambda x, y: bytes([255, at(x, y), at(x, y)])),
            "clear.png": png(width, height, 6, 8, lambda x, y: bytes([0, 0, 0, 255 - at(x, y)])),
            "palette.png": png(width, height, 3, 8, lambda x, y: bytes([at(x, y)]),
                               b"".join(bytes([i, i, i]) for i in range(256))),
        }
        for name, content in others.items():
            other = self.file(name, content)
            self.assertEqual(self.works("run", other).strip(), f"{other}\tabc", name)

    def test_a_picture_is_read_as_the_pixels_it_has(self):
        # Rec. 601 luma of pure red is 0.299; half transparent black over white is a half.
        height, width = 32, 8
        colours = [b"\xff\x00\x00\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\xff", b"\x00\x00\x00\xff"]
        path = self.file("pixels.png", png(width, height, 6, 8, lambda x, y: colours[x // 2]))
        trace = self.path("trace")
        run = self.regard("view", path, "--save-trace", trace)
        self.assertEqual(run.returncode, 0, run.stderr)
        tensor = regard.read(trace + ".safetensors")["picture"]
        self.assertEqual(tensor.shape, [height, width])
        for x, grey in enumerate([0.299, 0.299, 127 / 255, 127 / 255, 1, 1, 0, 0]):
            self.assertAlmostEqual(tensor.values[5 * width + x], grey, delta=0.005, msg=f"column {x}")

    def test_view_shows_where_each_character_was_read(self):
        path = self.draw("map5", "--font", "DejaVu Sans Mono")
        text = self.works("view", path, "--width", "80")
        self.assertIn("->  map5", text)
        for label in ("m ", "a ", "p ", "5 ", "</s> "):
            self.assertRegex(text, rf"(?m)^ *{label}")
        for ending in ("svg", "png", "pdf"):
            self.works("view", path, "-o", self.path("figure." + ending))
        with open(self.path("figure.svg")) as file:
            svg = file.read()
        self.assertIn("attends to the patch at pixel column", svg)
        self.assertEqual(svg.count("<image "), 7, "the picture, four characters, the end, and the scale")
        report = json.loads(self.works("view", path, "--kind", "cross", "--format", "json"))
        self.assertIn("</s>", json.dumps(report))
        self.works("view", path, "--head", "all")
        self.works("view", path, "--kind", "encoder")
        self.works("view", path, "--method", "norms")
        self.works("view", path, "--patterns")

    def test_a_saved_trace_is_shown_as_the_picture_was(self):
        path = self.draw("map5")
        shown = self.works("view", path, "--save-trace", self.path("t"))
        self.assertEqual(self.works("view", "--trace", self.path("t")), shown)

    def test_attention_is_on_the_character_being_written(self):
        plan = dict(PLAN, alphabet="abcdefghijklmnopqrstuvwxyz0123456789", longest=8, height=32, test=40, distortion=1)
        path = self.file("plan.json", json.dumps(plan))
        report = json.loads(self.works("eval", "--model", GLYPHS, "--strings", path, "--places", "--json"))
        self.assertEqual(report["sequences"], 40)
        self.assertLess(report["symbol_error_rate"], 0.1)
        places = report["places"]
        self.assertEqual(places["characters"], report["symbols"])
        best = max(head["peaks_inside"] for layer in places["layers"] for head in layer)
        self.assertGreater(best / places["characters"], 2 * places["by_chance"])
        text = self.works("eval", "--model", GLYPHS, "--strings", path, "--places")
        self.assertIn("mean of heads", text)

    def test_a_picture_is_explained_by_its_patches(self):
        path = self.draw("w7")
        text = self.works("explain", path)
        self.assertTrue(text.splitlines()[0].endswith("patches  ->  w 7"), text)
        report = json.loads(self.works("explain", path, "--json"))
        self.assertEqual(report["answer"], ["w", "7", "</s>"])
        self.assertEqual(report["source"], [str(4 * i) for i in range(len(report["source"]))])
        scores = report["scores"]
        for row in scores["weights"]:
            self.assertEqual(len(row), len(report["source"]))
            self.assertAlmostEqual(sum(row), 1, places=5)
        # The w stands left of the 7, and what each is read from does too.
        places = [row.index(max(row)) for row in scores["weights"]]
        self.assertLess(places[0], places[1])

    def test_many_pictures_are_explained_together(self):
        data = self.file("list.tsv", "one.png\ta b c\ntwo.png\tk 8\n")
        self.draw("abc", name="one.png")
        self.draw("k9", name="two.png")
        report = json.loads(self.works("explain", "--model", GLYPHS, "--data", data, "--json"))
        self.assertEqual((report["texts"], report["symbols"], report["left_out"]), (2, 7, 0))
        plan = dict(PLAN, alphabet="abcdefghijklmnopqrstuvwxyz0123456789", longest=4, height=32, test=5)
        path = self.file("plan.json", json.dumps(plan))
        report = json.loads(self.works("explain", "--model", GLYPHS, "--strings", path, "--json", "--draws", "1"))
        self.assertEqual(report["texts"] + report["left_out"], 5)
        faithful = report["faithfulness"]
        # A tenth of the patches taken away: those that ablation ranks first, against any.
        self.assertGreater(faithful["ablation"]["comprehensiveness"][2], faithful["random"]["comprehensiveness"][2])

    def test_lists_of_files_are_measured(self):
        self.draw("abc", name="one.png")
        self.draw("k9", name="two.png")
        data = self.file("list.tsv", "one.png\ta b c\ntwo.png\tk 8\n")
        report = json.loads(self.works("eval", "--model", GLYPHS, "--data", data, "--json"))
        self.assertEqual((report["sequences"], report["wrong_sequences"]), (2, 1))
        self.assertEqual((report["symbols"], report["symbol_errors"]), (5, 1))
        data = self.file("list.tsv", "one.png\ta b c\ngone.png\tk 8\n")
        self.fails(1, "eval", "--model", GLYPHS, "--data", data, says=["gone.png"])


class Refusals(PictureCase):
    def test_files_that_are_no_pictures(self):
        self.fails(1, "run", self.path("none.png"), says=["none.png"])
        self.fails(1, "run", self.file("text.png", "hello"), says=["text.png: is no PNG"])
        whole = png(40, 32, 0, 8, lambda x, y: b"\xff")
        self.fails(1, "view", self.file("half.png", whole[:60]), says=["half.png: the PNG is damaged or cut off"])
        self.fails(1, "run", self.file("wide.png", png(500, 32, 0, 8, lambda x, y: b"\xff")),
                   says=["wide.png", "500 pixels wide", "up to 384"])
        self.fails(1, "run", "thought", "--model", GLYPHS, says=["thought", "the model reads pictures"])

    def test_models_of_the_other_kind(self):
        path = self.draw("abc")
        self.fails(2, "run", path, "--model", PHONEMES, says=["x.png is a picture", "reads text"])
        self.fails(2, "view", path, "--model", PHONEMES, says=["x.png is a picture", "reads text"])
        self.fails(1, "explain", "thought", "--model", GLYPHS, says=["thought", "give PNG files"])
        self.fails(1, "explain", self.file("text.png", "hello"), says=["text.png: is no PNG"])
        self.fails(2, "explain", "--strings", self.file("plan.json", json.dumps(PLAN)), says=["reads text"])
        self.fails(2, "explain", "thought", "--strings", "plan.json", says=["one of them"])
        plan = self.file("plan.json", json.dumps(PLAN))
        self.fails(2, "eval", "--model", PHONEMES, "--strings", plan, says=["reads text"])
        self.fails(1, "eval", "--model", GLYPHS, "--strings", plan, says=["[16,", "32"])

    def test_a_picture_is_not_written_over(self):
        path = self.draw("abc")
        before = self.bytes_of(path)
        self.fails(2, "view", path, "-o", path, says=["x.png"])
        self.assertEqual(self.bytes_of(path), before)
        # A file need not be named like a picture to be one.
        scan = self.path("scan")
        shutil.copy(path, scan)
        self.fails(2, "view", scan, "--model", GLYPHS, "-o", scan, "--format", "png", says=["scan is the file that is read"])
        self.assertEqual(self.bytes_of(scan), before)

    def test_a_default_name_is_not_written_over_the_picture_either(self):
        path = self.draw("abc", name="attention-cross.png")
        before = self.bytes_of(path)
        run = subprocess.run([os.path.abspath(os.environ["REGARD"]), "view", "attention-cross.png", "--model",
                              os.path.abspath(GLYPHS), "--format", "png"], cwd=self.files, capture_output=True, text=True)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("attention-cross.png is the file that is read", run.stderr)
        self.assertEqual(self.bytes_of(path), before)

    def test_a_plan_is_not_written_over_by_a_picture(self):
        plan = self.file("plan.png", json.dumps(PLAN))
        before = self.bytes_of(plan)
        self.fails(2, "picture", "--strings", plan, "--number", "0", "-o", plan, says=["is the file that is read"])
        self.assertEqual(self.bytes_of(plan), before)

    def test_what_can_not_be_drawn(self):
        out = ("-o", self.path("x.png"))
        self.fails(1, "picture", "abc", "--font", "No Such Family", *out, says=["'No Such Family' is not installed"])
        self.fails(2, "picture", "abc", "--distortion", "2", *out, says=["--distortion"])
        self.fails(2, "picture", *out, says=["TEXT"])
        self.fails(2, "picture", "abc", "-o", self.path("x.txt"), says=["x.txt", ".png"])
        self.fails(2, "picture", "abc", "--number", "3", *out, says=["--strings and --number"])
        self.fails(1, "picture", "", "--strings", self.path("none.json"), "--number", "0", *out, says=["none.json"])
        plan = self.file("plan.json", json.dumps(PLAN))
        self.fails(1, "picture", "--strings", plan, "--number", "8", *out, says=["no string 8 of 8"])
        self.fails(2, "picture", "--strings", plan, "--number", "1", "--font", "DejaVu Sans", *out, says=["--font"])
        self.assertFalse(os.path.exists(self.path("x.png")))


class Training(PictureCase):
    def setUp(self):
        super().setUp()
        self.plan = self.file("plan.json", json.dumps(PLAN))
        self.out = self.path("model")

    def train(self, *more):
        return ["train", "--strings", self.plan, "--out", self.out, *more]

    def test_a_run_in_pieces_is_a_run_in_one(self):
        self.works(*self.train("--epochs", "2", *SIZES))
        whole = self.bytes_of(os.path.join(self.out, "model.safetensors"))
        shutil.rmtree(self.out)
        self.works(*self.train("--epochs", "2", "--stop-after", "1", *SIZES))
        self.works(*self.train("--resume", "--threads", "1"))
        self.assertEqual(self.bytes_of(os.path.join(self.out, "model.safetensors")), whole)
        description = json.loads(self.bytes_of(os.path.join(self.out, "model.json")))
        self.assertEqual(description["format"], "regard picture-to-text 1")
        self.assertEqual(description["config"]["patches"], {"height": 16, "patch_height": 16, "patch_width": 4})

    def test_other_data_are_refused(self):
        self.works(*self.train("--epochs", "2", "--stop-after", "1", "--patch-height", "16", *SIZES))
        self.file("plan.json", json.dumps(dict(PLAN, fonts=["DejaVu Sans"])))
        error = self.regard(*self.train("--resume")).stderr
        self.assertIn("was trained on other data", error)

    def test_files_are_learned_from(self):
        lines = []
        for i, text in enumerate(["ab", "ba", "aa", "bb", "a", "b"]):
            self.draw(text, "--height", "20", name=f"{i}.png")
            lines.append(f"{i}.png\t{' '.join(text)}\n")
        data = self.file("list.tsv", "".join(lines))
        self.works("train", "--pictures", "--train", data, "--dev", data, "--out", self.out, "--picture-height", "16",
                   "--patch-height", "8", "--epochs", "60", "--rate", "0.01", "--warmup", "5", "--dropout", "0",
                   "--smoothing", "0", *SIZES)
        report = json.loads(self.works("eval", "--model", self.out, "--data", data, "--json"))
        self.assertEqual(report["symbol_errors"], 0)
        self.works("train", "--train", data, "--dev", data, "--out", self.out, "--resume")

    def test_pictures_that_can_not_be_read_are_refused_before_the_run(self):
        self.draw("ab", "--height", "16", name="good.png")
        self.file("wide.png", png(1100, 16, 0, 8, lambda x, y: b"\xff"))
        data = self.file("good.tsv", "good.png\ta b\n")
        for bad, says in (("gone.png", "gone.png"), ("wide.png", "1100 pixels wide")):
            lines = self.file("bad.tsv", f"good.png\ta b\n{bad}\ta b\n")
            command = ["train", "--pictures", "--train", lines, "--dev", data, "--out", self.out, "--picture-height",
                       "16", "--epochs", "1", *SIZES]
            self.fails(1, *command, says=["bad.tsv, line 2", says])
            self.assertFalse(os.path.exists(os.path.join(self.out, "training.json")))
            self.works(*command, "--skip-bad")
            shutil.rmtree(self.out)

    def test_other_pictures_of_the_same_names_are_other_data(self):
        self.draw("ab", "--height", "16", name="one.png")
        data = self.file("list.tsv", "one.png\ta b\n")
        self.works("train", "--pictures", "--train", data, "--dev", data, "--out", self.out, "--picture-height", "16",
                   "--epochs", "2", "--stop-after", "1", *SIZES)
        self.draw("abc", "--height", "16", name="one.png")
        self.fails(1, "train", "--train", data, "--dev", data, "--out", self.out, "--resume", says=["other data"])

    def test_wrong_flags(self):
        self.fails(2, "train", "--out", self.out, says=["--train is required"])
        self.fails(2, *self.train("--train", "x"), says=["--train does not go with --strings"])
        self.fails(2, *self.train("--words"), says=["--words goes with text"])
        self.fails(2, "train", "--train", "x", "--dev", "y", "--out", self.out, "--patch-width", "4", says=["--pictures"])
        self.fails(1, *self.train("--patch-height", "5", *SIZES), says=["5 does not divide", "16"])


if __name__ == "__main__":
    unittest.main()
