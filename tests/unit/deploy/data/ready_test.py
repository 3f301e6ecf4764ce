"""Token files of others: linked, copied, rewritten, refused."""
import errno
import os
import struct
import unittest
import unittest.mock

import support
from support import DataTest, encoded


def llm_c(magic, version, tokens, code):
    return struct.pack("<256i", magic, version, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}{code}", *tokens)


def megatron(documents, code, number):
    """(.bin, .idx) of documents, which are lists of sequences."""
    import numpy

    sequences = [sequence for document in documents for sequence in document]
    lengths = [len(sequence) for sequence in sequences]
    size = numpy.dtype(code).itemsize
    places = [size * sum(lengths[:at]) for at in range(len(lengths))]
    borders = [sum(len(document) for document in documents[:at]) for at in range(len(documents) + 1)]
    index = (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, number, len(sequences), len(borders))
             + numpy.array(lengths, "<i4").tobytes() + numpy.array(places, "<i8").tobytes()
             + numpy.array(borders, "<i8").tobytes())
    return numpy.array([token for sequence in sequences for token in sequence], code).tobytes(), index


class ReadyTest(DataTest):
    TOKENS = [5, 6, 0, 7, 8, 9, 0, 65535 - 36, 1, 0]

    def array(self, code, tokens=None):
        import numpy

        return numpy.array(tokens or self.TOKENS, dtype=code)

    def npy(self, name, array):
        import numpy

        path = self.folder / name
        numpy.save(path, array)
        return str(path)

    def taken(self, path, *arguments, offset=0, width=2, vocabulary=65500):
        self.prepare("--force", "--vocabulary", str(vocabulary), "--end-token", "0", *arguments, path)
        made = self.manifest()
        self.assertEqual(made["training"][0]["file"], "training-00000.bin")
        self.assertEqual(made["training"][0]["offset"], offset)
        self.assertEqual((made["bytes_per_token"], made["documents"], made["tokenizer"], made["end_token"]),
                         (width, 3, None, 0))
        self.assertEqual(sorted(self.files()), ["dataset.json", "training-00000.bin"])
        self.assertEqual(os.stat(path).st_nlink, 2)
        self.assertEqual(self.ids(), self.TOKENS)

    def test_a_file_that_cannot_be_linked_is_named(self):
        path = self.write("a.bin", self.array("<u2").tobytes())
        with unittest.mock.patch("os.link", side_effect=OSError(errno.EXDEV, "another disk")):
            said = self.prepare("--vocabulary", "65500", path, code=1)
        self.assertIn("a.bin: cannot be linked", said)
        self.assertIn("--copy", said)

    def test_files_are_linked(self):
        self.taken(self.write("a.bin", self.array("<u2").tobytes()))
        self.taken(self.write("b.bin", self.array("<u4").tobytes()), "--dtype", "uint32", width=4)
        self.taken(self.write("c.bin", llm_c(20240520, 1, self.TOKENS, "H")), offset=1024)
        self.taken(self.write("d.bin", llm_c(20240801, 7, self.TOKENS, "I")), offset=1024, width=4)
        self.taken(self.npy("e.npy", self.array("<u2")), offset=128)
        self.taken(self.npy("f.npy", self.array("<u4")), offset=128, width=4)
        self.taken(self.npy("g.npy", self.array("<i4")), offset=128, width=4)
        for code, number, width in (("<u2", 8, 2), ("<i4", 4, 4)):
            tokens, index = megatron([[[5, 6, 0]], [[7, 8], [9, 0]], [[65499, 1, 0]]], code, number)
            self.write("h.idx", index)
            self.taken(self.write("h.bin", tokens), width=width)

    def test_copies(self):
        lying = self.write("a.bin", llm_c(20240520, 1, self.TOKENS, "H"))
        wide = self.npy("b.npy", self.array("<u4"))
        self.prepare("--vocabulary", "65500", "--copy", "--shard-size", "12", lying, "--validation", wide)
        self.assertEqual([entry["file"] for entry in self.manifest()["training"]],
                         ["training-00000.bin", "training-00001.bin"])
        self.assertEqual((self.ids(), self.ids("validation")), (self.TOKENS, self.TOKENS))
        self.assertEqual(self.manifest()["bytes_per_token"], 2)

    def test_rewriting(self):
        big = self.npy("a.npy", self.array(">i8"))
        self.assertIn("its tokens are >i8; --rewrite", self.prepare("--vocabulary", "65500", big, code=1))
        self.prepare("--vocabulary", "65500", "--rewrite", big)
        self.assertEqual(self.ids(), self.TOKENS)

    def test_megatron_without_end_tokens(self):
        documents = [[[5, 6]], [[7], [8, 0]], [[9]], [[1, 2, 3]]]
        tokens, index = megatron(documents, "<u2", 8)
        path = self.write("a.bin", tokens)
        self.write("a.idx", index)
        flags = ("--vocabulary", "100", "--end-token", "0")
        self.assertIn("expected --end-token ID", self.prepare("--vocabulary", "100", path, code=1))
        self.assertIn("a.bin: 3 of its 4 documents do not end with the end token 0; document 1 ends with 6; --rewrite",
                      self.prepare(*flags, path, code=1))
        self.prepare(*flags, "--rewrite", path)
        self.assertEqual(self.ids(), [5, 6, 0, 7, 8, 0, 9, 0, 1, 2, 3, 0])
        self.assertEqual(self.manifest()["documents"], 4)

    def test_many_of_megatrons_documents(self):
        from longhaul_data import ready

        documents = [[list(range(1, at % 7 + 2)) + [0] * (at % 3 == 0)] for at in range(500)]
        tokens, index = megatron(documents, "<u2", 8)
        self.write("a.idx", index)
        whole, ready.CHUNK_BYTES = ready.CHUNK_BYTES, 64
        self.addCleanup(setattr, ready, "CHUNK_BYTES", whole)
        self.prepare("--vocabulary", "100", "--end-token", "0", "--rewrite", self.write("a.bin", tokens))
        self.assertEqual(self.ids(), [token for document in documents
                                      for token in [*document[0], *([0] * (document[0][-1] != 0))]])

    def test_with_a_tokenizer(self):
        ids = [*encoded("The text, which says"), 0]
        path = self.write("a.bin", struct.pack(f"<{len(ids)}H", *ids))
        self.prepare("--tokenizer", self.tokenizer(), path)
        self.assertEqual((self.manifest()["vocabulary"], self.manifest()["documents"]), (500, 1))
        self.assertIn("The text, which says<|endoftext|>", self.command("show", self.out, "--check")[1])

    def test_refusals(self):
        good = self.write("a.bin", self.array("<u2").tobytes())
        for arguments, problem in (
                ((good,), "--vocabulary: expected the number that all ids are below, or --tokenizer"),
                (("--vocabulary", "100", good), "a.bin: expected ids below 100, the vocabulary, got 65499 as token 7"),
                (("--vocabulary", "9", "--end-token", "9", good), "--end-token: expected an id below 9"),
                (("--vocabulary", "9", "--pack", "4", "--field", "a", good), "--field is for texts"),
                (("--vocabulary", "65500", good, self.npy("w.npy", self.array("<u4"))), "got both 2 and 4 bytes"),
                (("--vocabulary", "65500", self.npy("m.npy", self.array("<u4").reshape(2, 5))), "of one dimension"),
                (("--vocabulary", "65500", self.npy("f.npy", self.array("<f4"))), "expected uint16, uint32, int32 or"),
                (("--vocabulary", "9", self.npy("n.npy", self.array("<i4", [1, -3]))),
                 "below 9, the vocabulary, got -3 as token 1"),
                (("--vocabulary", "9", "--dtype", "uint32", self.write("o.bin", b"12345678ab")),
                 "tokens of 4 bytes, got 10"),
                (("--vocabulary", "9", self.write("e.bin", b"")), "the file is empty"),
                (("--vocabulary", "9", self.write("l.bin", llm_c(20240520, 1, [1, 2], "H")[:-2])),
                 "says 2 tokens, which makes"),
                (("--vocabulary", "9", self.write("v.bin", llm_c(20240520, 3, [1, 2], "H"))), "got 3"),
                (("--vocabulary", "9", self.write("b.npy", b"no array")), "expected a .npy file"),
                (("--vocabulary", "9", good, self.write("t.txt", "text")), "expected texts or token files, got both")):
            self.assertIn(problem, self.prepare(*arguments, code=1), arguments)
            self.assertFalse(self.out.exists())
        self.write("a.idx", b"MMIDIDX\0\0")
        self.assertIn("a.idx: expected Megatron's index", self.prepare("--vocabulary", "9", good, code=1))


if __name__ == "__main__":
    support.main()
