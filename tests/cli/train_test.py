"""regard train, eval and run from the outside: a tiny model from nothing, and
everything that can be wrong on the way."""
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from regard import Case

SIZES = {"--layers": "1", "--model-dim": "16", "--heads": "2", "--hidden": "16", "--batch": "8", "--threads": "1"}


def pairs(first, last):
    """Numbers spelled in letters; the target repeats the letters as capitals."""
    lines = []
    for number in range(first, last):
        letters = "".join("abcdefghij"[int(digit)] for digit in str(number))
        lines.append(letters + "\t" + " ".join(letters.upper()) + "\n")
    return "".join(lines)


class TrainCase(Case):
    def setUp(self):
        super().setUp()
        shutil.rmtree(self.folder)
        self.folder = tempfile.mkdtemp(prefix="regard-test-")
        self.data = tempfile.mkdtemp(prefix="regard-data-")
        self.train = self.file("train.tsv", pairs(0, 60))
        self.dev = self.file("dev.tsv", pairs(60, 70))
        self.out = os.path.join(self.data, "model")

    def tearDown(self):
        super().tearDown()
        shutil.rmtree(self.data)

    def file(self, name, text):
        path = os.path.join(self.data, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def run_model(self, text):
        """`regard run` on the model just trained, which is too raw to end every output: what it says of that is no
        fault here."""
        run = self.regard("run", text, "--model", self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        run.stderr = re.sub(r"regard run: the output for .* did not end: cut at \d+ symbols\n", "", run.stderr)
        return run

    def arguments(self, *more):
        if "--resume" in more:
            more = ("--threads", "1", *more)
            return ["train", "--train", self.train, "--dev", self.dev, "--out", self.out, *more]
        sizes = [word for flag, value in SIZES.items() if flag not in more for word in (flag, value)]
        return ["train", "--train", self.train, "--dev", self.dev, "--out", self.out, *sizes, *more]


class Train(TrainCase):
    def test_a_run_leaves_a_model_that_answers_and_is_measured(self):
        text = self.works(*self.arguments("--epochs", "2"))
        self.assertIn("60 pairs", text)
        self.assertIn("epoch 2/2", text)
        self.assertNotIn("\r", text, "no progress bar in a file")
        self.assertTrue(self.run_model("ab").stdout.startswith("ab\t"))
        report = json.loads(self.works("eval", "--model", self.out, "--data", self.dev, "--json", "--beam", "2"))
        self.assertEqual(report["sequences"], 10)
        self.assertEqual(report["symbols"], 20)
        self.assertAlmostEqual(report["symbol_error_rate"], report["symbol_errors"] / 20)
        self.assertIn("symbol error rate", self.works("eval", "--model", self.out, "--data", self.dev))

    def test_one_vocabulary_holds_the_symbols_of_both_sides(self):
        self.works(*self.arguments("--shared-vocabulary"))
        with open(os.path.join(self.out, "model.json"), encoding="utf-8") as file:
            model = json.load(file)
        self.assertTrue(model["config"]["shared_vocabulary"])
        self.assertEqual(model["source_symbols"], model["target_symbols"])
        self.assertEqual(set(model["source_symbols"]), set("abcdefghijABCDEFGHIJ"))
        self.run_model("abc")

    def test_models_of_every_position_scheme_go_on_answer_and_are_looked_into(self):
        """Weights of the two stacks: a vector for each of 256 positions, a number for each of 32 buckets a head,
        or a vector for each of 33 distances, and of 17 in the decoder."""
        learned = {"sinusoidal": 0, "learned": 2 * 256 * 16, "rotary": 0, "alibi": 0, "t5": 2 * 32 * 2,
                   "shaw": (33 + 17) * 16}
        counts = {}
        for scheme in learned:
            with self.subTest(scheme=scheme):
                self.out = os.path.join(self.data, scheme)
                text = self.works(*self.arguments("--epochs", "8", "--stop-after", "1", "--positions", scheme,
                                                  "--rate", "0.01", "--warmup", "1"))
                counts[scheme] = int(re.search(r"(\d+) weights", text).group(1))
                with open(os.path.join(self.out, "model.json"), encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["config"]["positions"], scheme)
                self.fails(2, *self.arguments("--resume", "--positions", scheme), says=["--positions", "--resume"])
                self.assertIn("epoch 8/8", self.works(*self.arguments("--resume")))
                self.assertTrue(self.run_model("ab").stdout.startswith("ab\t"))
                report = json.loads(self.works("eval", "--model", self.out, "--data", self.dev, "--json"))
                self.assertEqual(report["sequences"], 10)
                shown = self.regard("view", "ab", "--model", self.out, "--method", "weights,norms,rollout")
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertIn("encoder", shown.stdout)
                report = self.regard("explain", "ab", "--model", self.out, "--json")
                self.assertEqual(report.returncode, 0, report.stderr)
                self.assertTrue(json.loads(report.stdout))
        for scheme, own in learned.items():
            self.assertEqual(counts[scheme] - counts["sinusoidal"], own, scheme)

    def test_positions_that_do_not_fit_are_refused(self):
        self.fails(2, *self.arguments("--positions", "rotary", "--model-dim", "6", "--heads", "2"),
                   says=["--positions rotary", "--model-dim 6", "--heads 2", "3"])
        self.fails(2, *self.arguments("--positions", "polar"), says=["--positions", "rotary", "alibi", "t5"])

    def test_a_run_goes_on_and_is_not_begun_twice(self):
        self.works(*self.arguments("--epochs", "2", "--stop-after", "1"))
        text = self.fails(2, *self.arguments("--epochs", "2"), says=["--resume"])
        self.assertIn(self.out, text)
        self.assertIn("epoch 2/2", self.works(*self.arguments("--resume")))

    def test_a_folder_that_another_run_writes_to_is_refused(self):
        self.works(*self.arguments("--epochs", "2", "--stop-after", "1"))
        before = sorted(os.listdir(self.out))
        holder = os.open(self.out, os.O_RDONLY)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
            self.fails(1, *self.arguments("--epochs", "2"), says=[self.out, "another run"])
            self.fails(1, *self.arguments("--resume"), says=[self.out, "another run"])
        finally:
            os.close(holder)
        self.assertEqual(sorted(os.listdir(self.out)), before)
        self.works(*self.arguments("--resume"))

    def test_a_model_that_is_no_run_is_not_written_over(self):
        self.works(*self.arguments("--epochs", "1"))
        for name in os.listdir(self.out):
            if name.startswith("training"):
                os.remove(os.path.join(self.out, name))
        text = self.fails(2, *self.arguments("--epochs", "1"), says=[self.out, "another --out"])
        self.assertNotIn("--resume", text)

    def test_a_finished_run_whose_model_is_gone_says_so(self):
        self.works(*self.arguments("--epochs", "1"))
        os.remove(os.path.join(self.out, "model.safetensors"))
        self.fails(1, *self.arguments("--resume"), says=["model.safetensors", "gone"])

    def test_a_run_that_diverges_at_once_leaves_nothing(self):
        text = self.fails(1, *self.arguments("--rate", "1e30", "--warmup", "0", "--clip", "1e30"),
                          says=["no longer finite", "smaller learning rate"])
        self.assertNotIn("checkpoint", text)
        self.assertFalse(os.path.exists(self.out))

    def test_a_first_checkpoint_that_can_not_be_written_leaves_no_half_of_a_run(self):
        self.works(*self.arguments("--epochs", "1"))
        sizes = sorted(os.path.getsize(os.path.join(self.out, name)) for name in os.listdir(self.out)
                       if name.endswith(".safetensors"))
        shutil.rmtree(self.out)
        limit = sum(sizes) // 2  # the model fits, the state does not
        run = subprocess.run([os.environ["REGARD"], *self.arguments("--epochs", "1")], capture_output=True, text=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(run.returncode, 1)
        self.assertIn("can't be written", run.stderr)
        self.assertFalse(os.path.exists(self.out))
        self.works(*self.arguments("--epochs", "1"))

    def test_a_run_that_can_not_begin_leaves_no_folder(self):
        self.fails(1, "train", "--train", self.train, "--dev", self.dev + "x", "--out", self.out, says=[self.dev + "x"])
        self.assertFalse(os.path.exists(self.out))

    def test_a_bad_line_is_named_or_skipped_and_counted(self):
        self.train = self.file("bad.tsv", pairs(0, 20) + "no tab here\n" + pairs(20, 30))
        self.fails(1, *self.arguments(), says=[self.train, "line 21", "--skip-bad"])
        self.assertIn("1 bad lines", self.works(*self.arguments("--epochs", "1", "--skip-bad")))

    def test_invalid_utf8_is_a_bad_line(self):
        self.train = self.file("bad.tsv", b"a\tA\n\xff\xfe\tB\n")
        self.fails(1, *self.arguments(), says=["line 2", "UTF-8"])

    def test_wrong_use_is_one_line(self):
        self.fails(2, "train", "--train", self.train, says=["--out"])
        self.fails(2, "train", "--train", self.train, "--out", self.out, says=["--dev"])
        self.fails(2, *self.arguments("--heads", "3"), says=["16", "3"])
        self.fails(2, *self.arguments("--epochs", "0"), says=["--epochs"])
        self.fails(2, *self.arguments("--dtype", "int8"), says=["int8"])
        self.fails(1, "train", "--train", self.train + "x", "--dev", self.dev, "--out", self.out, says=[self.train + "x"])
        self.fails(1, *self.arguments("--resume"), says=["training.json"])

    def test_a_run_that_goes_on_takes_no_other_sizes_nor_plan(self):
        self.works(*self.arguments("--epochs", "3", "--stop-after", "1"))
        for flags in [["--layers", "2"], ["--epochs", "2"], ["--rate", "0.001"], ["--seed", "1"], ["--words"],
                      ["--name", "x"], ["--norm", "post"], ["--dtype", "f16"], ["--batch", "8"]]:
            with self.subTest(flags=flags):
                self.fails(2, *self.arguments("--resume", *flags), says=[flags[0], "--resume"])
        text = self.works(*self.arguments("--resume", "--stop-after", "1", "--skip-bad"))
        self.assertIn("epoch 2/3", text)
        self.assertNotIn("epoch 3/3", text)

    def test_resuming_on_other_data_is_refused(self):
        self.works(*self.arguments("--epochs", "2", "--stop-after", "1"))
        self.train = self.dev
        self.fails(1, *self.arguments("--resume"), says=["other data"])

    def test_numbers_out_of_range_are_told_in_few_words(self):
        for flags, says in [
            (["--rate", "0"], "--rate: 0 is not above 0"),
            (["--rate", "nan"], "--rate: nan is not a finite number"),
            (["--clip", "inf"], "--clip: inf is not a finite number"),
            (["--clip", "nan"], "--clip: nan is not a finite number"),
            (["--dropout", "nan"], "--dropout: nan is not a finite number"),
            (["--dropout", "1"], "--dropout: 1 is not between 0 and 0.99"),
            (["--warmup", "-1"], "--warmup: -1 is not at least 0"),
            (["--weight-decay", "-1"], "--weight-decay: -1 is not at least 0"),
            (["--weight-decay", "x"], "--weight-decay: 'x' is not a number"),
            (["--seed", "-1"], "--seed: -1 is not a whole number from 0"),
            (["--seed", "18446744073709551616"], "--seed: 18446744073709551616 is not a whole number from 0"),
        ]:
            with self.subTest(flags=flags):
                self.fails(2, *self.arguments(*flags), says=[says])

    def test_a_name_with_control_characters_is_refused(self):
        for name in ["a\x1b[31m", "a\nb", "a\tb"]:
            self.fails(2, *self.arguments("--name", name), says=["--name"])

    def test_a_finished_run_says_so(self):
        self.works(*self.arguments("--epochs", "1"))
        text = self.works(*self.arguments("--resume"))
        self.assertIn("its one epoch is finished", text)
        self.assertIn(self.out, text)
        self.assertNotIn("epochs 2 to 1", text)

    def test_what_a_kill_left_behind_is_removed(self):
        os.mkdir(self.out)
        for name in ["model.safetensors", "model.json", "training.json", "training-12.safetensors"]:
            self.file(os.path.join("model", name + ".tmp-123-0"), "half")
        self.file("model/mine.tmp-1", "of somebody else")
        self.works(*self.arguments("--epochs", "1"))
        self.assertEqual([name for name in os.listdir(self.out) if ".tmp-" in name], ["mine.tmp-1"])

    def test_a_signal_before_the_first_step_is_a_clean_stop_too(self):
        fifo = os.path.join(self.data, "slow.tsv")
        os.mkfifo(fifo)
        process = subprocess.Popen([os.environ["REGARD"], "train", "--train", fifo, *self.arguments()[3:]],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with open(fifo, "w") as file:  # opens once the program reads: its handler stands by then
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            file.write(pairs(0, 60))
        out, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 143, out + errors)
        self.assertIn("--resume", out)
        self.works(*self.arguments("--resume", "--stop-after", "1"))

    def test_an_interrupt_is_a_clean_stop(self):
        process = subprocess.Popen([os.environ["REGARD"], *self.arguments("--epochs", "5000")], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.time() + 30
        while not os.path.exists(os.path.join(self.out, "training.json")) and time.time() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("--resume", out)
        self.assertTrue(self.run_model("ab").stdout.startswith("ab\t"))
        self.works(*self.arguments("--resume", "--stop-after", "1"))

    def test_a_full_disk_keeps_the_old_model(self):
        if os.geteuid() != 0 or shutil.which("mount") is None:
            self.skipTest("needs a small file system of its own")
        os.mkdir(self.out)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", self.out]).returncode != 0:
            self.skipTest("can't mount one here")
        try:
            self.works(*self.arguments("--epochs", "2", "--stop-after", "1"))
            before = self.run_model("ab").stdout
            with open(os.path.join(self.out, "filler"), "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(b"x" * 1024)
                except OSError:
                    pass
            files = sorted(os.listdir(self.out))
            run = self.regard(*self.arguments("--resume"))
            self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
            self.assertEqual(sorted(os.listdir(self.out)), files, "half a file is left")
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
            self.assertEqual(self.run_model("ab").stdout, before)
            os.remove(os.path.join(self.out, "filler"))
            self.works(*self.arguments("--resume"))
        finally:
            subprocess.run(["umount", self.out], check=True)


class Run(TrainCase):
    def setUp(self):
        super().setUp()
        self.works(*self.arguments("--epochs", "1"))

    def test_unknown_characters_are_run_and_shown(self):
        run = self.run_model("aXb")
        self.assertTrue(run.stdout.startswith("aXb\t"))
        self.assertIn("X", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1)
        report = json.loads(self.regard("run", "aXb", "--model", self.out, "--json").stdout)
        self.assertEqual(report[0]["unknown"], ["X"])
        self.assertLess(report[0]["log_probability"], 0)

    def test_control_characters_are_escaped(self):
        run = self.run_model("a\tb\n\x1b[31m")
        self.assertTrue(run.stdout.startswith("a\\tb\\n\\x1b[31m\t"), run.stdout)
        for text in [run.stdout, run.stderr]:
            self.assertEqual(text.count("\n"), 1)
            self.assertNotIn("\x1b", text)
        self.assertEqual(run.stdout.count("\t"), 1)
        text = self.fails(1, "run", "a", "--model", "\x1b[31m\n", says=["\\x1b[31m\\n"])
        self.assertNotIn("\x1b", text)

    def test_empty_text_and_invalid_utf8_are_errors(self):
        self.fails(2, "run", "a", "", "--model", self.out, says=["2", "empty"])
        run = subprocess.run([os.environ["REGARD"], "run", b"a\xff", "--model", self.out], capture_output=True)
        self.assertIn(run.returncode, (1, 2))
        self.assertIn(b"UTF-8", run.stderr)
        self.assertIn(b"text number 1", run.stderr)
        self.assertEqual(run.stderr.count(b"\n"), 1)

    def test_a_missing_or_cut_model_is_an_error_that_names_the_file(self):
        self.fails(1, "run", "a", "--model", self.out + "x", says=[self.out + "x"])
        path = os.path.join(self.out, "model.safetensors")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2)
        self.fails(1, "run", "a", "--model", self.out, says=[path])
        self.fails(1, "eval", "--model", self.out, "--data", self.dev, says=[path])

    def test_a_longer_text_than_the_model_takes_is_an_error(self):
        self.fails(1, "run", "b", "a" * 300, "--model", self.out, says=["text number 2", "300", "256"])
        self.fails(1, "view", "a" * 300, "--model", self.out, says=["300", "256"])

    def test_eval_names_the_line_of_a_source_too_long_for_the_model_or_skips_it(self):
        data = self.file("long.tsv", "\nab\tA B\n" + "a" * 300 + "\tA\nb\t" + "A " * 300 + "\n")
        command = ["eval", "--model", self.out, "--data", data]
        self.fails(1, *command, says=[data + ", line 3", "300", "256", "--skip-bad"])
        self.assertIn("skipped 1 bad line", self.works(*command, "--skip-bad"))
        report = json.loads(self.works(*command, "--skip-bad", "--json"))
        self.assertEqual((report["skipped_lines"], report["sequences"]), (1, 2), "a right answer may be long")

    def test_an_output_that_does_not_end_is_said_to_be_cut(self):
        """A model that has seen one long answer only repeats its one symbol."""
        out, data = os.path.join(self.data, "endless"), self.file("endless.tsv", "a\t" + "A " * 12 + "\n")
        self.works("train", "--train", data, "--dev", data, "--out", out, *sum(map(list, SIZES.items()), []),
                   "--max-length", "13", "--epochs", "8", "--rate", "0.01", "--warmup", "1")
        run = self.regard("run", "a", "--model", out)
        self.assertEqual((run.returncode, run.stdout), (0, "a\t" + " ".join("A" * 12) + "\n"))
        self.assertEqual(run.stderr, 'regard run: the output for "a" did not end: cut at 12 symbols\n')
        run = self.regard("run", "a", "--model", out, "--json")
        self.assertEqual((json.loads(run.stdout)[0]["truncated"], run.stderr), (True, ""))
        run = self.regard("view", "a", "--model", out)
        self.assertEqual((run.returncode, run.stderr.count("cut at 12 symbols")), (0, 1))


if __name__ == "__main__":
    unittest.main()
