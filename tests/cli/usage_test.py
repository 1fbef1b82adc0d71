"""The command line as a whole: exit codes, help, and one-line errors."""
import json
import os
import resource
import shutil
import subprocess
import tempfile
import unittest

from regard import Case


class Usage(Case):
    def test_without_a_command_the_help_is_printed_and_the_code_is_2(self):
        run = self.regard()
        self.assertEqual(run.returncode, 2)
        self.assertIn("attend", run.stdout)
        self.assertEqual(run.stderr.count("\n"), 1)

    def test_version_is_one_line(self):
        self.assertRegex(self.works("--version"), r"^regard \d+\.\d+\.\d+\n$")

    def test_every_command_has_help_with_an_example(self):
        for command in ["attend", "bench", "cost", "onnx", "info"]:
            text = self.works(command, "--help")
            self.assertIn("Example:", text)
            self.assertIn(f"regard {command} ", text)

    def test_wrong_use_is_code_2_and_one_line(self):
        for arguments, says in [
            (["--foo"], ["--foo"]),
            (["attend"], ["IN"]),
            (["attend", "a"], ["--out"]),
            (["attend", "a", "-o"], ["--out"]),
            (["attend", "a", "b", "-o", "c"], ["'b'"]),
            (["attend", "--caussal", "a", "-o", "b"], ["--caussal"]),
            (["attend", "a", "-o", "b", "--causal=3"], ["--causal"]),
            (["attend", "a", "-o", "b", "--align", "left"], ["left", "bottom-right", "top-left"]),
            (["attend", "a", "-o", "b", "--window", "3"], ["L,R", "'3'"]),
            (["attend", "a", "-o", "b", "--window", "3,x"], ["L,R"]),
            (["attend", "a", "-o", "b", "--window", "-2,0"], ["-1"]),
            (["attend", "a", "-o", "b", "--scale", "big"], ["big"]),
            (["attend", "a", "-o", "b", "--scale", "nan"], ["--scale"]),
            (["attend", "a", "-o", "b", "--softcap", "0"], ["--softcap: 0 is not above 0"]),
            (["attend", "a", "-o", "b", "--softcap", "1e400"], ["--softcap: 1e400 is not a finite number"]),
            (["attend", "a", "-o", "-"], ["--out", "/dev/stdout"]),
            (["onnx", "Attention", "a", "-o", "-", "--opset", "23"], ["--out", "/dev/stdout"]),
            (["attend", "a", "-o", "b", "--threads", "0"], ["--threads"]),
            (["attend", "a", "-o", "b", "--dtype", "int"], ["int", "f64", "f32", "bf16", "f16"]),
            (["onnx", "Attention", "a", "-o", "b"], ["--opset"]),
            (["onnx", "Atention", "a", "-o", "b", "--opset", "23"], ["Atention", "Attention"]),
            (["onnx", "Attention", "a", "-o", "b", "--opset", "22"], ["22", "23"]),
            (["onnx", "LinearAttention", "a", "-o", "b", "--opset", "24", "--attributes", "{\"x\": 1}"],
             ["--opset", "27", "24"]),
            (["info", "--xml"], ["--xml"]),
        ]:
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, says=says)

    def test_unknown_command_is_named(self):
        run = self.regard("atend")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr, "regard: there is no command 'atend' (see `regard --help`)\n")

    def test_full_disk_behind_the_standard_output_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        # The second is longer than what the stream holds back.
        for arguments in [["info"], ["view", "encyclopaedias"], ["--version"], ["--help"], ["info", "--help"]]:
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                run = subprocess.run([os.environ["REGARD"], *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(run.returncode, 1)
                self.assertEqual(run.stderr, "regard: can't write to the standard output: No space left on device\n")

    def test_a_file_beyond_its_size_limit_is_an_error_and_not_the_end(self):
        picture = os.path.join(self.folder, "a.png")
        run = subprocess.run([os.environ["REGARD"], "view", "thought", "-o", picture], capture_output=True, text=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr, f"regard view: {picture}: can't be written: File too large\n")
        self.assertEqual(os.listdir(self.folder), [])

    def test_messages_hold_no_control_characters(self):
        text = self.fails(2, "info", "--\x1b[31m\n\t", says=["\\x1b[31m\\n\\t"])
        self.assertNotIn("\x1b", text)


class Demo(Case):
    def test_any_word_is_shown_and_drawn(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        if shutil.which("make") is None or not os.path.exists(os.path.join(root, "models/phonemes/model.json")):
            self.skipTest("needs make and the shipped model")
        for word, picture in [("thought", "thought"), ("a/b don't", "a_b_don't"), ("-x", "-x")]:
            with self.subTest(word=word), tempfile.TemporaryDirectory() as out:
                build = os.path.dirname(os.path.abspath(os.environ["REGARD"]))
                run = subprocess.run(["make", "-s", "-C", root, "-o", "cli", "demo", f"WORD={word}", f"OUT={out}",
                                      f"BUILD={build}"], capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(sorted(os.listdir(out)), [picture + ".png", picture + ".svg"])


class Info(Case):
    def test_text_names_what_runs(self):
        text = self.works("info")
        for words in ["regard", "cpu", "instruction sets", "in use", "threads", "caches", "Highway", "oneDNN"]:
            self.assertIn(words, text)

    def test_json_holds_the_same(self):
        info = json.loads(self.works("info", "--json"))
        self.assertIn(info["instruction_sets"]["in_use"], info["instruction_sets"]["available"])
        self.assertEqual(info["instruction_sets"]["available"][-1], "portable")
        for name in ["Highway", "oneDNN", "Pango", "Cairo", "utf8proc", "CLI11", "fmt", "nlohmann-json"]:
            self.assertRegex(info["dependencies"][name], r"^\d+\.\d+")

    def test_threads_and_instruction_set_can_be_forced(self):
        self.assertEqual(json.loads(self.works("info", "--json", "--threads", 3))["threads"]["count"], 3)
        for name in ["portable", "Portable", "PORTABLE"]:
            run = self.regard("info", "--json", REGARD_CPU=name, REGARD_THREADS="2")
            info = json.loads(run.stdout)
            self.assertEqual(info["instruction_sets"]["in_use"], "portable")
            self.assertEqual(info["threads"]["count"], 2)

    def test_a_wrong_number_of_threads_in_the_environment_is_an_error(self):
        for value in ["abc", "0", "-3", "999999", "2x"]:
            run = self.regard("info", REGARD_THREADS=value)
            self.assertEqual((run.returncode, run.stdout), (1, ""), value)
            self.assertEqual(run.stderr, f"regard info: REGARD_THREADS is '{value}', "
                                         "must be a whole number from 1 to 1024\n")
        self.assertEqual(self.regard("info", REGARD_THREADS="").returncode, 0)

    def test_unknown_instruction_set_is_an_error_that_lists_them(self):
        run = self.regard("info", REGARD_CPU="AVX9000")
        self.assertEqual(run.returncode, 1)
        self.assertIn("portable", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
