"""Running the real `regard` binary (environment variable REGARD), and reading
and writing safetensors with the standard library alone."""
import array
import json
import math
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

CODES = {"F64": "d", "F32": "f", "I64": "q", "BOOL": "B", "I8": "b", "F16": "H", "BF16": "H"}
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")


class Tensor:
    def __init__(self, dtype, shape, values):
        self.dtype, self.shape, self.values = dtype, list(shape), list(values)

    def __repr__(self):
        return f"{self.dtype}{self.shape}"

    def numbers(self):
        """What the elements stand for: half precision is held as bits."""
        bits = array.array("H", self.values).tobytes() if self.dtype in ("F16", "BF16") else b""
        if self.dtype == "F16":
            return struct.unpack(f"<{len(self.values)}e", bits)
        if self.dtype == "BF16":
            return [struct.unpack("<f", b"\0\0" + bits[2 * i : 2 * i + 2])[0] for i in range(len(self.values))]
        return self.values


def f64(shape, values):
    return Tensor("F64", shape, values)


def f32(shape, values):
    return Tensor("F32", shape, values)


def filled(shape, value=0.5, dtype="F32"):
    return Tensor(dtype, shape, [value] * math.prod(shape))


def to_bytes(tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        packed = array.array(CODES[tensor.dtype], tensor.values).tobytes()
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = array.array(CODES[entry["dtype"]])
        values.frombytes(data[begin:end])
        tensors[name] = Tensor(entry["dtype"], entry["shape"], values)
    return tensors


class Case(unittest.TestCase):
    """Each test gets a folder of its own, with paths `in_path` and `out_path`."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="regard-test-")
        self.in_path = os.path.join(self.folder, "in.safetensors")
        self.out_path = os.path.join(self.folder, "out.safetensors")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def write(self, tensors):
        with open(self.in_path, "wb") as file:
            file.write(to_bytes(tensors))

    def regard(self, *arguments, **environment):
        return subprocess.run([os.environ["REGARD"], *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, env={**os.environ, **environment})

    def works(self, *arguments):
        run = self.regard(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr, "")
        return run.stdout

    def fails(self, code, *arguments, says=()):
        """One line on stderr that begins with the command; `says` are words in it."""
        run = self.regard(*arguments)
        self.assertEqual(run.returncode, code, f"{arguments}: {run.stdout}{run.stderr}")
        command = arguments[0] if arguments and not str(arguments[0]).startswith("-") else ""
        self.assertTrue(run.stderr.startswith(f"regard {command}".rstrip() + ": "), run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertTrue(run.stderr.endswith("\n"), run.stderr)
        for words in says:
            self.assertIn(words, run.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if name != "in.safetensors"], [],
                         "a failed command leaves nothing behind")
        return run.stderr

    def assert_close(self, got, wanted, rtol, atol, what=""):
        self.assertEqual(got.shape, wanted.shape, what)
        for index, (ours, right) in enumerate(zip(got.numbers(), wanted.numbers())):
            close = ours == right or (math.isfinite(right) and abs(ours - right) <= atol + rtol * abs(right))
            self.assertTrue(close, f"{what}[{index}] is {ours}, right is {right}")
