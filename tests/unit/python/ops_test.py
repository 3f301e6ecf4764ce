"""The operators in Python: tracing, gradients, shortcuts, GPUs.

usage: ops_test.py [LONGHAUL_CODEC] [unittest's arguments...]

LONGHAUL_CODEC: that program, whose files are compared with the operators' blobs. Needs a Python that has torch; without
it exits with 77, which ctest shows as skipped. The library is found as users find it (LONGHAUL_TORCH_OPS). With
LONGHAUL_REQUIRE_GPU a machine without a GPU fails.
"""
import contextlib
import io
import logging
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "python"
sys.path.insert(0, str(PACKAGE))
try:
    import torch
    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode
except (ImportError, OSError) as error:
    print(f"skipped: {sys.executable} cannot import torch ({error}). Where there is no GPU, deploy/setup.sh "
          "brings LibTorch's CPU part alone; another Python is named by cmake -DLONGHAUL_TORCH_PYTHON=PATH")
    sys.exit(77)

import longhaul_codecs  # noqa: E402

ops = torch.ops.longhaul
PROGRAM = None
NAMES = longhaul_codecs.codec_names()
CODECS = NAMES + ["tah:p=0.5,tile=32,rounding=stochastic", "fixed:bits=4,rounding=stochastic"]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
GRADIENTS = "fixed:bits=4,rounding=stochastic"
# Inductor compiles C++ or, for GPUs, links what Triton makes.
BACKENDS = ["aot_eager"] + (["inductor"] if shutil.which("g++") or shutil.which("gcc") else [])


def tensor(*shape, dtype=torch.float32, device="cpu", seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


class Model(nn.Module):
    """Two stages with a link between them; of operations that compilers do not round differently."""

    def __init__(self, codec="tah", backward_codec=GRADIENTS, width=64):
        super().__init__()
        torch.manual_seed(1)
        self.codec, self.backward_codec = codec, backward_codec
        self.first, self.second = (nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x, seed: int = 0):
        x = torch.relu(self.first(x))
        x = ops.roundtrip(x, self.codec, self.backward_codec, seed=seed)
        return self.second(x)


def step(model, x, seed):
    """The loss, and all gradients."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    y = model(x, seed)
    y.square().mean().backward()
    return [y.detach(), x.grad] + [p.grad.clone() for p in model.parameters()]


class OpsTest(unittest.TestCase):
    device = "cpu"

    def setUp(self):
        torch._dynamo.reset()

    def tensor(self, *shape, dtype=torch.float32, seed=0):
        return tensor(*shape, dtype=dtype, device=self.device, seed=seed)

    def assertSame(self, a, b):
        self.assertEqual((a.dtype, a.shape, a.device), (b.dtype, b.shape, b.device))
        self.assertTrue(torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)))

    def test_the_other_side_sees_what_roundtrip_says(self):
        for codec in CODECS:
            for dtype in DTYPES:
                for shape in [(300,), (5, 200), (2, 3, 200), (2, 0, 8)]:
                    with self.subTest(codec=codec, dtype=dtype, shape=shape):
                        x = self.tensor(*shape, dtype=dtype)
                        blob = ops.encode(x, codec, seed=3)
                        self.assertLessEqual(blob.numel(), ops.max_encoded_bytes(list(shape), codec))
                        y = ops.decode(blob, shape)
                        self.assertEqual((y.dtype, y.shape), (dtype, x.shape))
                        self.assertSame(y, ops.roundtrip(x, codec, seed=3))
                        buffer, length = ops.encode_padded(x, codec, seed=3)
                        self.assertSame(buffer[:length.item()], blob)
                        self.assertSame(ops.decode(buffer, shape, padded=True), y)
        self.assertEqual(ops.roundtrip(self.tensor(2, 3, 8).transpose(1, 2), "none").stride(), (24, 3, 1))

    def test_every_codec_has_its_shortcuts(self):
        x = self.tensor(2, 3, 200)
        for name in NAMES:
            blob = getattr(ops, f"{name}_encode")(x)
            self.assertSame(blob, ops.encode(x, name))
            self.assertSame(getattr(ops, f"{name}_decode")(blob), ops.decode(blob))
        self.assertSame(ops.fixed_encode(x, "bits=4,rounding=stochastic", seed=5, direction="backward"),
                        ops.encode(x, GRADIENTS, seed=5, direction="backward"))
        with self.assertRaisesRegex(ValueError, "expected a blob of tah, got one of zip"):
            ops.tah_decode(ops.zip_encode(x))

    def test_the_seed_decides(self):
        x = self.tensor(2, 3, 200)
        self.assertSame(ops.roundtrip(x, GRADIENTS, seed=2), ops.roundtrip(x, GRADIENTS, seed=2))
        for other in [{"seed": 3}, {"seed": 2, "direction": "backward"}, {"seed": 2**40 + 2}, {"seed": -2}]:
            self.assertFalse(torch.equal(ops.roundtrip(x, GRADIENTS, seed=2), ops.roundtrip(x, GRADIENTS, **other)))

    def link(self, codec="predict:pairs=64/gauss:bits=3", vocabulary=40, samples=1):
        return torch.classes.longhaul.PredictLink(codec, vocabulary, [samples, 16, 128], self.device)

    def text(self, seed, samples=4):
        """Ids, and tensors that mostly say which token stands there."""
        ids = torch.randint(0, 40, (samples, 16), generator=torch.Generator().manual_seed(seed))
        noise = tensor(samples, 16, 128, seed=seed) * 0.1
        return ids, (tensor(40, 128, seed=99)[ids] + noise).to(self.device)

    def test_links_learn_tokens(self):
        link, errors = self.link(), []
        for seed in range(8):
            ids, x = self.text(seed)
            y = link.transfer(x, ids, True)
            self.assertEqual((y.dtype, y.shape, y.device), (x.dtype, x.shape, x.device))
            errors.append(float((y - x).norm() / x.norm()))
        self.assertLess(errors[-1], 0.5 * errors[0])
        # What validates teaches nothing.
        self.assertSame(link.transfer(x, ids, False), link.transfer(x, ids, False))
        link.check()
        self.assertEqual(link.encoded_bytes(), 64 + 16 + 2 * 16 + ops.max_encoded_bytes([1, 16, 128], "gauss:bits=3"))

    def test_a_batch_is_messages_one_after_the_other(self):
        together, alone = self.link(), self.link()
        for seed in range(3):
            ids, x = self.text(seed)
            x = x.bfloat16()
            parts = [alone.transfer(x[k:k + 1], ids[k:k + 1], True) for k in range(4)]
            self.assertSame(together.transfer(x, ids, True), torch.cat(parts))
        self.assertFalse(torch.equal(self.link(samples=4).transfer(x, ids, True), self.link().transfer(x, ids, True)))

    def test_links_take_any_codec_of_differences(self):
        ids, x = self.text(1)
        self.assertSame(self.link("predict/zip").transfer(torch.zeros_like(x), ids, True), torch.zeros_like(x))
        link = self.link("predict:pairs=0/none")
        for _ in range(2):
            self.assertLess(float((link.transfer(x, ids, True) - x).abs().max()), 1e-5)
        link.check()

    def test_links_refuse_with_sentences(self):
        link, (ids, x) = self.link(), self.text(1)
        for call, words in [
                (lambda: self.link("gauss"), "expected a codec of predict, got gauss"),
                (lambda: self.link(vocabulary=0), "a vocabulary of 1 to"),
                (lambda: self.link("predict/aqsgd"), "without state"),
                (lambda: link.transfer(x[:, :8], ids[:, :8], True), "expected messages of 1 x 16 x 128"),
                (lambda: link.transfer(x, ids[:3], True), "expected the ids of 4 x 16 tokens"),
                (lambda: link.transfer(x, ids + 1, True), "expected ids from 0 to 39, got"),
                (lambda: link.transfer(x, ids - 40, True), "expected ids from 0 to 39, got")]:
            with self.assertRaisesRegex((ValueError, RuntimeError), words):
                call()

    def test_errors_are_sentences(self):
        x = self.tensor(2, 3, 200)
        rubbish = torch.full((500,), 7, dtype=torch.uint8, device=self.device)
        broken = ops.encode(self.tensor(2, 3, 2000), "zip")
        broken[64:68] = 255
        newer = ops.encode(x, "tah")
        newer[4] = 9
        for call, kind, words in [
                (lambda: ops.encode(x.double(), "tah"), TypeError, "float32, float16 and bfloat16"),
                (lambda: ops.encode(x.int(), "tah"), TypeError, "float32, float16 and bfloat16"),
                (lambda: ops.encode(x[None], "tah"), ValueError, "1 to 3 dimensions"),
                (lambda: ops.encode(x, "tha"), ValueError, "did you mean 'tah'"),
                (lambda: ops.roundtrip(x, "tah", "fixed:bits=99"), ValueError, "'bits' is out of range"),
                (lambda: ops.decode(rubbish), ValueError, "does not start with 'LHBL'"),
                (lambda: ops.decode(x), TypeError, "a uint8 tensor of one dimension"),
                (lambda: ops.decode(ops.encode(x, "tah"), [3, 200]), ValueError, "expected a blob of shape"),
                (lambda: ops.decode(newer), NotImplementedError, "version 9"),
                (lambda: ops.decode(broken), ValueError, "expected .*blob")]:
            with self.assertRaisesRegex(kind, words):
                call()

    def test_the_gradient_passes_straight_through(self):
        x = self.tensor(2, 3, 200).requires_grad_()
        upstream = self.tensor(2, 3, 200, seed=1)
        for codec in CODECS:
            gradient, = torch.autograd.grad(ops.roundtrip(x, codec), x, upstream)
            self.assertSame(gradient, upstream)
            gradient, = torch.autograd.grad(ops.roundtrip(x, "tah", codec, seed=4), x, upstream)
            self.assertSame(gradient, ops.roundtrip(upstream, codec, seed=4, direction="backward"))
        # The gradient is expanded, and is encoded twice.
        ops.roundtrip(x, "tah", GRADIENTS).sum().backward()
        self.assertSame(x.grad, ops.roundtrip(torch.ones_like(x), GRADIENTS, direction="backward"))
        y = ops.roundtrip(x, "tah")
        gradient, = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        self.assertSame(gradient.detach(), (2 * y).detach())
        self.assertSame(torch.autograd.grad(gradient.sum(), x)[0], torch.full_like(x, 2))

    def test_gradcheck_where_the_codec_is_exact(self):
        x = self.tensor(2, 3, 8).double().requires_grad_()
        for backward_codec in [None, "none"]:
            self.assertTrue(torch.autograd.gradcheck(
                lambda v, b=backward_codec: ops.roundtrip(v.float(), "none", b).double() ** 2, x, eps=2.0**-10,
                atol=1e-2, rtol=1e-2))

    def test_training_through_it_is_the_formula(self):
        class Link(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, seed):
                ctx.seed = seed
                return ops.decode(ops.encode(x, "tah", seed=seed))

            @staticmethod
            def backward(ctx, gradient):
                return ops.decode(ops.encode(gradient, GRADIENTS, seed=ctx.seed, direction="backward")), None

        class Plain(Model):
            def forward(self, x, seed: int = 0):
                return self.second(Link.apply(torch.relu(self.first(x)), seed))

        x = self.tensor(2, 16, 64)
        for a, b in zip(step(Model().to(self.device), x, 5), step(Plain().to(self.device), x, 5)):
            self.assertSame(a, b)

    def test_opcheck(self):
        x, blob = self.tensor(2, 3, 200), ops.encode(self.tensor(2, 3, 200), "zip")
        for codec in ["none", "tah", "zip", GRADIENTS]:
            with self.subTest(codec):
                torch.library.opcheck(ops.encode.default, (x, codec), {"seed": 3})
                torch.library.opcheck(ops.encode_padded.default, (x, codec))
                torch.library.opcheck(ops.roundtrip.default, (x, codec, "fixed"))
                torch.library.opcheck(ops.roundtrip.default, (x.detach().requires_grad_(), codec, "fixed"), {"seed": 3})
                torch.library.opcheck(ops.roundtrip.default, (x.detach().requires_grad_(), codec))
        torch.library.opcheck(ops.decode.default, (blob, [2, 3, 200]), {"dtype": torch.float32})
        torch.library.opcheck(ops.decode.default, (blob,), {"dtype": torch.bfloat16, "codec": "zip"})
        torch.library.opcheck(ops.zip_encode.default, (x,))
        torch.library.opcheck(ops.zip_decode.default, (blob, [2, 3, 200]), {"dtype": torch.float32})

    def test_compiled_models_give_the_same_numbers(self):
        x = self.tensor(2, 16, 64)
        for codecs in [("tah", GRADIENTS), ("zip", "zip"), ("gauss", None)]:
            for backend in BACKENDS:
                with self.subTest(codecs=codecs, backend=backend):
                    torch._dynamo.reset()
                    model = Model(*codecs).to(self.device)
                    compiled = torch.compile(model, fullgraph=True, backend=backend)
                    for seed in range(6):
                        for a, b in zip(step(compiled, x, seed), step(model, x, seed)):
                            self.assertSame(a, b)
                    # Other shapes, the second of which makes them symbolic.
                    for tokens in [5, 9, 12]:
                        y = self.tensor(2, tokens, 64)
                        self.assertSame(compiled(y, 3), model(y, 3))

    def test_compiled_roundtrip_alone_is_exact(self):
        for backend in BACKENDS:
            for dynamic in [False, True]:
                torch._dynamo.reset()
                compiled = torch.compile(lambda x, seed: ops.roundtrip(x, "tah:rounding=stochastic", seed=seed),
                                         fullgraph=True, backend=backend, dynamic=dynamic)
                for seed, tokens in [(0, 4), (1, 7), (9, 9)]:
                    x = self.tensor(2, tokens, 96, dtype=torch.bfloat16)
                    self.assertSame(compiled(x, seed), ops.roundtrip(x, "tah:rounding=stochastic", seed=seed))

    def test_compiled_blobs(self):
        def fixed(x):
            return ops.decode(ops.tah_encode(x, "p=0.5"), x.shape, dtype=x.dtype)

        def padded(x):
            buffer, length = ops.encode_padded(x, "zip")
            return ops.zip_decode(buffer, x.shape, dtype=x.dtype, padded=True), length

        def exact(x):
            return ops.decode(ops.encode(x, "zip"), dtype=torch.float32)

        for backend in BACKENDS:
            for function in [fixed, padded]:
                torch._dynamo.reset()
                compiled = torch.compile(function, fullgraph=True, backend=backend)
                for tokens in [4, 7, 9]:
                    x = self.tensor(2, tokens, 200)
                    torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
            torch._dynamo.reset()
            with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
                for function in [exact, fixed]:
                    compiled = torch.compile(function, fullgraph=True, backend=backend)
                    for tokens in [4, 7, 9]:
                        x = self.tensor(2, tokens, 200)
                        self.assertSame(compiled(x), function(x))

    def test_exported_models(self):
        x = self.tensor(2, 16, 64)
        model = Model().to(self.device)
        program = torch.export.export(model, (x,), dynamic_shapes=({1: torch.export.Dim("tokens")},))
        self.assertIn("longhaul.roundtrip.default", str(program.graph))
        y = self.tensor(2, 21, 64)
        torch.testing.assert_close(program.module()(y), model(y), rtol=0, atol=0)

        class Sender(nn.Module):
            def forward(self, x):
                return ops.encode(x, "zip"), ops.encode(x, "tah")

        program = torch.export.export(Sender(), (x,), dynamic_shapes={"x": {1: torch.export.Dim("tokens")}})
        for a, b in zip(program.module()(y), Sender()(y)):
            self.assertSame(a, b)

    def test_tracing_refuses_what_running_refuses(self):
        logging.disable()  # PyTorch logs what a fake function raises
        self.addCleanup(logging.disable, logging.NOTSET)
        with FakeTensorMode():
            x = torch.empty(2, 3, 64)
            self.assertEqual(ops.encode(x, "bf16").shape, (64 + 2 * 3 * 64 * 2,))
            for call, kind, words in [
                    (lambda: ops.encode(x.double(), "tah"), TypeError, "float32"),
                    (lambda: ops.roundtrip(x[None], "tah"), ValueError, "1 to 3 dimensions"),
                    (lambda: ops.roundtrip(x, "tah", "tha"), ValueError, "did you mean 'tah'"),
                    (lambda: ops.decode(torch.empty(100, dtype=torch.uint8), [6]), ValueError, "expected dtype=")]:
                with self.assertRaisesRegex(kind, words):
                    call()

    def test_inputs_on_two_threads(self):
        tensors = [self.tensor(4, 64, 256, seed=k) for k in range(8)]
        wanted = [ops.roundtrip(x, "tah") for x in tensors]
        with ThreadPoolExecutor(2) as pool:
            for a, b in zip(pool.map(lambda x: ops.roundtrip(x, "tah"), tensors), wanted):
                self.assertSame(a, b)


@unittest.skipUnless(torch.cuda.is_available() or os.environ.get("LONGHAUL_REQUIRE_GPU"), "there is no GPU")
class GpuTest(OpsTest):
    """All of the above on a GPU, and what only a GPU has."""
    device = "cuda:0"

    def test_a_gpu_learns_what_the_cpu_learns(self):
        for codec in ("predict:pairs=64/gauss:bits=3", "predict:pairs=0/fixed:bits=4", "predict/zip"):
            here = torch.classes.longhaul.PredictLink(codec, 40, [2, 16, 128], "cpu")
            there = self.link(codec, samples=2)
            for seed in range(4):
                ids, x = self.text(seed)
                self.assertSame(there.transfer(x, ids, seed != 2).cpu(), here.transfer(x.cpu(), ids, seed != 2))
            there.check()

    def test_a_gpu_writes_what_the_cpu_writes(self):
        for codec in CODECS:
            for dtype in DTYPES:
                for shape in [(300,), (2, 3, 200), (4, 64, 1024)]:
                    with self.subTest(codec=codec, dtype=dtype, shape=shape):
                        x = tensor(*shape, dtype=dtype)
                        blob = ops.encode(x, codec, seed=3)
                        self.assertSame(ops.encode(x.cuda(), codec, seed=3).cpu(), blob)
                        self.assertSame(ops.decode(blob.cuda()).cpu(), ops.decode(blob))
                        self.assertSame(ops.roundtrip(x.cuda(), codec, seed=3).cpu(), ops.roundtrip(x, codec, seed=3))

    def test_work_is_queued_on_the_current_stream(self):
        x = self.tensor(8, 512, 1024)
        wanted = ops.roundtrip(x * 2, "tah")
        for stream in [torch.cuda.Stream(), torch.cuda.Stream(priority=-1), torch.cuda.default_stream()]:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(100_000_000)  # of the stream's own work: what overtakes it reads zeros
                y = torch.zeros_like(x).copy_(x).mul_(2)
                z = ops.roundtrip(y, "tah")
                blob = ops.encode(y, "zip")
                size, = blob.shape
            stream.synchronize()
            self.assertSame(z, wanted)
            self.assertSame(blob, ops.encode(x * 2, "zip"))
            self.assertEqual(size, blob.numel())

    def test_graphs_replay_it(self):
        """So it waits for nothing: a capture refuses that."""
        x = self.tensor(4, 64, 1024)
        warm = torch.cuda.Stream()
        with torch.cuda.stream(warm):  # loads kernels
            for codec in NAMES:
                ops.roundtrip(x, codec), ops.encode_padded(x, codec)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = [ops.roundtrip(x, codec) for codec in NAMES if codec not in ("aqsgd", "dither", "zip")]
            buffer, length = ops.encode_padded(x, "zip")
        for seed in range(3):
            x.copy_(tensor(4, 64, 1024, seed=seed))
            graph.replay()
            torch.cuda.synchronize()
            wanted = [ops.roundtrip(x, codec) for codec in NAMES if codec not in ("aqsgd", "dither", "zip")]
            for a, b in zip(results, wanted):
                self.assertSame(a, b)
            self.assertSame(buffer[:length.item()], ops.encode(x, "zip"))

    def test_blobs_in_the_middle_of_others(self):
        blobs = [ops.encode(self.tensor(3, 70, seed=k), "zip") for k in range(5)]
        for part, blob in zip(torch.cat(blobs).split([b.numel() for b in blobs]), blobs):
            self.assertSame(ops.decode(part), ops.decode(blob))
        with self.assertRaises(ValueError):
            ops.decode(torch.cat(blobs)[1:])

    @unittest.skipUnless(torch.cuda.device_count() > 1, "there is one GPU")
    def test_a_second_gpu(self):
        x = tensor(4, 64, 1024)
        for codec in CODECS:
            there = ops.roundtrip(x.to("cuda:1"), codec)
            self.assertEqual(there.device, torch.device("cuda:1"))
            self.assertSame(there.cpu(), ops.roundtrip(x, codec))
            self.assertSame(ops.decode(ops.encode(x.to("cuda:1"), codec)).cpu(), ops.roundtrip(x, codec))
        self.assertEqual(torch.cuda.current_device(), 0)
        self.assertSame(ops.roundtrip(x.cuda() + 1, "tah").cpu(), ops.roundtrip(x + 1, "tah"))


class FilesTest(unittest.TestCase):
    def test_blobs_are_files_of_longhaul_codec(self):
        if PROGRAM is None:
            self.skipTest("no longhaul-codec was named")
        x = tensor(2, 3, 200)
        header = str({"descr": "<f4", "fortran_order": False, "shape": tuple(x.shape)}).encode()
        header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            values = bytes(x.view(torch.uint8).flatten().tolist())
            (folder / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values)
            # Where tests/gpu.sh has put the program, its libraries are beside it.
            environment = {**os.environ, "LD_LIBRARY_PATH": str(pathlib.Path(PROGRAM).resolve().parents[1] / "lib")}
            for codec in CODECS:
                subprocess.run([PROGRAM, "encode", "--codec", codec, "--seed", "11", folder / "x.npy", "-o",
                                folder / "x.lh"], check=True, stdout=subprocess.DEVNULL, env=environment)
                self.assertEqual(bytes(ops.encode(x, codec, seed=11).tolist()), (folder / "x.lh").read_bytes(), codec)

    def test_the_readme_s_example(self):
        text = (PACKAGE / "README.md").read_text(encoding="utf-8")
        names, printed = {}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1), names)
        self.assertEqual(names["x"].grad.shape, names["x"].shape)
        self.assertRegex(printed.getvalue(), r"^4\.4\d* bits an element\n$")

    def test_a_library_that_is_not_there_is_named(self):
        done = subprocess.run([sys.executable, "-c", "import longhaul_codecs"], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE), "LONGHAUL_TORCH_OPS": "/nowhere/ops.so"})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("LONGHAUL_TORCH_OPS=/nowhere/ops.so: there is no such file", done.stderr)


def main():
    global PROGRAM
    arguments = sys.argv[1:]
    if arguments and not arguments[0].startswith("-") and os.path.isfile(arguments[0]):
        PROGRAM = arguments.pop(0)
    unittest.main(argv=[sys.argv[0], *arguments])


if __name__ == "__main__":
    main()
