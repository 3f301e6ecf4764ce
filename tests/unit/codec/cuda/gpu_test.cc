// The codecs' kernels against the CPU's: the same bytes, whatever the contents.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/cuda/graph.h"
#include "codec/gauss/format.h"
#include "tests/unit/codec/cuda/gpu_contents.h"

namespace longhaul::codec::cuda {
namespace {

using ::longhaul::cuda::Graph;

Context AnyContext(std::mt19937_64* random) {
  Context context;
  context.seed = (*random)();
  context.step = Step((*random)() % 1000000);
  context.replica = static_cast<uint32_t>((*random)() % 8);
  context.edge = EdgeId(static_cast<uint32_t>((*random)() % 8));
  context.direction = (*random)() % 2 == 0 ? Direction::kForward : Direction::kBackward;
  context.microbatch = Microbatch(static_cast<uint32_t>((*random)() % 64));
  return context;
}

std::string AnyCodec(std::mt19937_64* random) {
  constexpr const char* kPlain[] = {"none", "bf16", "fp16"};
  constexpr const char* kShares[] = {"0.8", "0", "1", "0.5", "0.03"};
  constexpr const char* kTaus[] = {"2", "0", "1", "1.3", "7", "inf"};
  const uint64_t kind = (*random)() % 16;
  if (kind < 3) return kPlain[kind];
  if (kind < 11) {
    const uint64_t tile = 32 << ((*random)() % 3);
    const uint64_t alloc = (*random)() % 4;
    return std::string("tah:p=") + kShares[(*random)() % 5] + ",tile=" + std::to_string(tile) +
           ",alloc=" + (alloc == 0 ? "token" : std::to_string(alloc * tile)) +
           ",tau=" + kTaus[(*random)() % 6] +
           ",rounding=" + ((*random)() % 3 == 0 ? "stochastic" : "nearest");
  }
  return "fixed:bits=" + std::to_string(3 + (*random)() % 8) +
         ",tile=" + std::to_string(32 << ((*random)() % 3)) +
         ",rounding=" + ((*random)() % 2 == 0 ? "nearest" : "stochastic");
}

std::string AnyGauss(std::mt19937_64* random) {
  return fmt::format("gauss:bits={},block={}", 2 + (*random)() % 5, 64u << (*random)() % 4);
}

std::string AnyDither(std::mt19937_64* random) {
  constexpr const char* kBits[] = {"1", "1.5", "2", "3"};
  return fmt::format("dither:bits={},block={}", kBits[(*random)() % 4], 64u << (*random)() % 3);
}

struct OneCase {
  std::string codec;
  Shape shape;
  Dtype in_dtype, out_dtype;
};

// Decodes on both.
void CompareDecoding(const CudaCodec& codec, const std::vector<std::byte>& blob, const OneCase& c,
                     Stream* stream) {
  std::vector<std::byte> scratch = Scratch(codec, c.shape);
  std::vector<std::byte> out(c.shape.elements() * BytesPerElement(c.out_dtype));
  ASSERT_TRUE(
      codec.cpu()
          .Decode(blob, {}, Aligned(codec, c.shape, &scratch), {out.data(), c.out_dtype, c.shape})
          .ok());
  out.insert(out.end(), kGuard, kPoison);
  DeviceBuffer blob_dev = Upload(blob, stream);
  DeviceBuffer out_dev = Upload(std::vector<std::byte>(out.size(), kPoison), stream);
  DeviceBuffer fault = Upload(std::vector<std::byte>(4), stream);
  DeviceBuffer workspace =
      Upload(std::vector<std::byte>(codec.WorkspaceBytes(c.shape), kPoison), stream);
  const Status status = codec.Decode(
      std::span(blob).first(kBlobHeaderBytes), {blob_dev.data_dev(), blob.size()},
      {workspace.data_dev(), workspace.size()}, {out_dev.data_dev(), c.out_dtype, c.shape},
      static_cast<uint32_t*>(fault.data_dev()), *stream);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(FirstDifference(Download(out_dev, out.size(), stream), out), -1);
  ASSERT_EQ(FirstDifference(Download(fault, 4, stream), std::vector<std::byte>(4)), -1);
}

// Encodes `in` on both and decodes on both what the CPU encoded.
void Compare(const OneCase& c, const std::vector<std::byte>& in, std::mt19937_64* random,
             Stream* stream) {
  SCOPED_TRACE(c.codec + " " + std::to_string(c.shape.samples) + " x " +
               std::to_string(c.shape.tokens) + " x " + std::to_string(c.shape.channels) + " " +
               std::string(ToString(c.in_dtype)) + " to " + std::string(ToString(c.out_dtype)));
  const CudaCodec codec = Must(CudaCodec::Create(c.codec));
  const Context context = AnyContext(random);
  std::vector<std::byte> blob(codec.MaxEncodedBytes(c.shape));
  std::vector<std::byte> scratch = Scratch(codec, c.shape);
  EncodeResult result;
  ASSERT_TRUE(codec.cpu()
                  .Encode({in.data(), c.in_dtype, c.shape}, context,
                          Aligned(codec, c.shape, &scratch), blob, &result)
                  .ok());
  const size_t most = blob.size();
  blob.resize(result.bytes);

  const DeviceBuffer in_dev = Upload(in, stream);
  const std::vector<std::byte> poison(most + kGuard, kPoison);
  DeviceBuffer blob_dev = Upload(poison, stream);
  const std::vector<std::byte> dirt(codec.WorkspaceBytes(c.shape), kPoison);
  DeviceBuffer workspace = Upload(dirt, stream);
  const DeviceSpan workspace_span{workspace.data_dev(), dirt.size()};
  Status status = codec.Encode({in_dev.data_dev(), c.in_dtype, c.shape}, context, workspace_span,
                               {blob_dev.data_dev(), most}, *stream);
  ASSERT_TRUE(status.ok()) << status;
  std::vector<std::byte> expected = blob;
  expected.resize(most + kGuard, kPoison);
  ASSERT_EQ(FirstDifference(Download(blob_dev, expected.size(), stream), expected), -1);

  CompareDecoding(codec, blob, c, stream);
}
void Compare(const OneCase& c, std::mt19937_64* random, Stream* stream) {
  Compare(c, Contents(random, c.in_dtype, c.shape.elements()), random, stream);
}

TEST(CodecsOnGpu, WriteAndReadTheBytesOfTheCpu) {
  std::mt19937_64 random(20260301);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 6000 && !::testing::Test::HasFailure(); ++k) {
    Compare({AnyCodec(&random), AnyShape(&random), AnyDtype(&random), AnyDtype(&random)}, &random,
            &stream);
  }
}

// What the kernels for whole tiles take, and what is nearly that.
TEST(CodecsOnGpu, WriteAndReadTheBytesOfTheCpuOfWholeTiles) {
  constexpr const char* kCodecs[] = {"tah",         "tah:p=0.5,tau=1.3",
                                     "tah:p=1",     "tah:tau=inf,p=0.1",
                                     "fixed:bits=", "fixed:rounding=stochastic,bits="};
  std::mt19937_64 random(20260302);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 4000 && !::testing::Test::HasFailure(); ++k) {
    std::string codec = kCodecs[random() % 6];
    const bool either = codec.find("stochastic") != std::string::npos;  // bf16 and fp32
    if (codec.ends_with('=')) codec += std::to_string(3 + random() % 8);
    Shape shape = AnyShape(&random);
    shape.channels = (shape.channels + 63) / 64 * 64;
    if (random() % 4 == 0) shape.tokens *= 10;
    Dtype in = random() % 8 == 0 ? AnyDtype(&random) : Dtype::kBf16;
    if (either && random() % 2 == 0) in = Dtype::kF32;
    Compare({codec, shape, in, random() % 8 == 0 ? AnyDtype(&random) : Dtype::kBf16}, &random,
            &stream);
  }
}

// Every number of bits, every kind of contents, runs that are whole and that are not: the kernels
// for whole tiles have one instance for some of the bits each.
TEST(CodecsOnGpu, StochasticRoundingOfWholeTiles) {
  std::mt19937_64 random(20261123);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int bits = 3; bits <= 10; ++bits) {
    const std::string codec = "fixed:rounding=stochastic,bits=" + std::to_string(bits);
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
      for (uint64_t kind = 0; kind < kKinds; ++kind) {
        for (const Shape& shape : {Shape{2, 32, 64}, Shape{3, 33, 192}, Shape{1, 1, 64}}) {
          Compare({codec, shape, dtype, dtype}, Contents(&random, dtype, shape.elements(), kind),
                  &random, &stream);
          ASSERT_FALSE(::testing::Test::HasFailure()) << "contents of kind " << kind;
        }
      }
    }
  }
}

TEST(CodecsOnGpu, GaussAndDitherWriteAndReadTheBytesOfTheCpu) {
  std::mt19937_64 random(20261121);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 14000 && !::testing::Test::HasFailure(); ++k) {
    Shape shape = AnyShape(&random);
    if (random() % 2 == 0) shape.channels = (shape.channels + 63) / 64 * 64;
    if (k % 64 == 0) shape.tokens *= 40;
    const std::string codec = k < 4000 ? AnyGauss(&random) : AnyDither(&random);
    Compare({codec, shape, AnyDtype(&random), AnyDtype(&random)}, &random, &stream);
  }
}

// Contents of which all is escapes, much, little or nothing, over many groups and few.
TEST(CodecsOnGpu, ZipWritesAndReadsTheBytesOfTheCpu) {
  std::mt19937_64 random(20261124);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 10000 && !::testing::Test::HasFailure(); ++k) {
    Shape shape = AnyShape(&random);
    if (random() % 16 == 0) shape.tokens *= 40;
    const Dtype in = random() % 3 == 0 ? AnyDtype(&random) : Dtype::kBf16;
    const Dtype out = random() % 3 == 0 ? AnyDtype(&random) : Dtype::kBf16;
    std::vector<std::byte> contents = Contents(&random, in, shape.elements());
    // So many in 256 elements have any bits.
    const uint64_t wild = random() % 4 == 0 ? random() % 257 : random() % 12;
    const size_t element = BytesPerElement(in);
    for (size_t at = 0; at + element <= contents.size(); at += element) {
      if (random() % 256 >= wild) continue;
      const uint64_t bits = random();
      std::memcpy(&contents[at], &bits, element);
    }
    Compare({"zip", shape, in, out}, contents, &random, &stream);
  }
}

// What no encoder writes: codes and scales of any bits, exponents from one end to the other.
TEST(CodecsOnGpu, AnyPayloadOfGaussIsReadAsByTheCpu) {
  std::mt19937_64 random(77);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 500 && !::testing::Test::HasFailure(); ++k) {
    const CudaCodec codec = Must(CudaCodec::Create(AnyGauss(&random)));
    const Shape shape = AnyShape(&random);
    const Dtype dtype = AnyDtype(&random);
    std::vector<std::byte> blob(codec.MaxEncodedBytes(shape));
    std::vector<std::byte> scratch = Scratch(codec, shape);
    EncodeResult result;
    const std::vector<float> zeros(shape.elements());
    ASSERT_TRUE(codec.cpu()
                    .Encode({zeros.data(), Dtype::kF32, shape}, {}, Aligned(codec, shape, &scratch),
                            blob, &result)
                    .ok());
    for (size_t at = kBlobHeaderBytes; at < blob.size(); ++at) {
      blob[at] = static_cast<std::byte>(random());
    }
    for (uint32_t sample = 0; sample < shape.samples; ++sample) {
      const auto exponent = static_cast<int16_t>(static_cast<int>(random() % 283) - 154);
      std::memcpy(blob.data() + kBlobHeaderBytes + 2 * size_t{sample}, &exponent, 2);
    }
    CompareDecoding(codec, blob,
                    {.codec = "", .shape = shape, .in_dtype = dtype, .out_dtype = dtype}, &stream);
  }
}

TEST(CodecsOnGpu, SeveralLoopsOfTheGrid) {
  std::mt19937_64 random(7);
  Stream stream = Must(Stream::Create(Gpu()));
  for (const char* codec :
       {"bf16", "fixed:bits=6,tile=32", "fixed:bits=4,rounding=stochastic",
        "fixed:bits=9,rounding=stochastic", "tah", "tah:alloc=token,tile=128",
        "tah:rounding=stochastic", "gauss", "gauss:bits=3,block=64", "gauss:bits=6,block=512",
        "dither", "zip", "taco", "taco:format=e5m2,block=64"}) {
    for (const uint32_t channels : {1601, 1600}) {
      Compare({codec, {3, 1024, channels}, Dtype::kBf16, Dtype::kBf16}, &random, &stream);
      Compare({codec, {5, 1024, channels}, Dtype::kBf16, Dtype::kF32}, &random, &stream);
      Compare({codec, {2, 1024, channels}, Dtype::kF32, Dtype::kF16}, &random, &stream);
      Compare({codec, {3, 2048, channels}, Dtype::kF32, Dtype::kF32}, &random, &stream);
    }
  }
}

// Many tiles of the threshold's entropy: what is known of a sample from some of its tiles does not
// say on which side of the threshold they are.
TEST(CodecsOnGpu, TokensThatComeAgain) {
  std::mt19937_64 random(11);
  Stream stream = Must(Stream::Create(Gpu()));
  constexpr Shape kShape{3, 2048, 1600};
  constexpr size_t kTokenBytes = kShape.channels * 2;
  for (const uint32_t different : {1, 7, 500, 1900}) {
    std::vector<std::byte> in = Contents(&random, Dtype::kBf16, kShape.elements());
    for (size_t token = different; token < size_t{kShape.samples} * kShape.tokens; ++token) {
      const size_t of_sample = token % kShape.tokens;
      if (of_sample < different) continue;
      const size_t same = token - of_sample + of_sample % different;
      std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(same * kTokenBytes), kTokenBytes,
                  in.begin() + static_cast<std::ptrdiff_t>(token * kTokenBytes));
    }
    for (const char* codec : {"tah", "tah:p=0.5", "tah:p=0.97"}) {
      Compare({codec, kShape, Dtype::kBf16, Dtype::kBf16}, in, &random, &stream);
    }
  }
}

// Samples do not depend on each other: those at the ends and around element 2^31 decode to what the
// CPU makes of each alone.
TEST(CodecsOnGpu, MoreThan2To31Elements) {
  constexpr uint32_t kSamples = 1312;
  constexpr uint32_t kChecked[] = {0, 655, 1310, 1311};
  const Shape one{1, 1024, 1600};
  const Shape all{kSamples, one.tokens, one.channels};
  const size_t bytes = one.elements() * 2;
  std::mt19937_64 random(10);
  Stream stream = Must(Stream::Create(Gpu()));
  DeviceBuffer in = Must(DeviceBuffer::Create(Gpu(), kSamples * bytes));
  const auto sample_of = [&](DeviceBuffer& buffer, uint32_t sample) {
    return static_cast<std::byte*>(buffer.data_dev()) + sample * bytes;
  };
  std::vector<std::vector<std::byte>> contents;
  for (size_t k = 0; k < 2; ++k) {
    contents.push_back(Contents(&random, Dtype::kBf16, one.elements()));
  }
  const auto kind_of = [&](uint32_t sample) {
    return std::ranges::find(kChecked, sample) == std::end(kChecked) ? 0 : 1;
  };
  for (uint32_t sample = 0; sample < kSamples; ++sample) {
    ASSERT_TRUE(stream.Copy(sample_of(in, sample), contents[kind_of(sample)].data(), bytes).ok());
  }
  for (const char* name : {"tah", "fixed"}) {
    const CudaCodec codec = Must(CudaCodec::Create(name));
    DeviceBuffer blob = Must(DeviceBuffer::Create(Gpu(), codec.MaxEncodedBytes(all)));
    DeviceBuffer workspace = Must(DeviceBuffer::Create(Gpu(), codec.WorkspaceBytes(all)));
    DeviceBuffer out = Must(DeviceBuffer::Create(Gpu(), kSamples * bytes));
    DeviceBuffer fault = Upload(std::vector<std::byte>(4), &stream);
    const DeviceSpan workspace_span{workspace.data_dev(), workspace.size()};
    const DeviceSpan blob_span{blob.data_dev(), codec.MaxEncodedBytes(all)};
    ASSERT_TRUE(
        codec.Encode({in.data_dev(), Dtype::kBf16, all}, {}, workspace_span, blob_span, stream)
            .ok());
    const std::vector<std::byte> header = Download(blob, kBlobHeaderBytes, &stream);
    ASSERT_TRUE(codec
                    .Decode(header, blob_span, workspace_span, {out.data_dev(), Dtype::kBf16, all},
                            static_cast<uint32_t*>(fault.data_dev()), stream)
                    .ok());
    std::vector<std::byte> one_blob(codec.MaxEncodedBytes(one));
    std::vector<std::byte> scratch(codec.cpu().WorkspaceBytes(one) + 64);
    const std::span<std::byte> aligned =
        std::span(scratch).subspan((64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64);
    EncodeResult result;
    for (const uint32_t sample : {0u, 1u, 655u, 1309u, 1310u, 1311u}) {
      SCOPED_TRACE(std::string(name) + " sample " + std::to_string(sample));
      ASSERT_TRUE(codec.cpu()
                      .Encode({contents[kind_of(sample)].data(), Dtype::kBf16, one}, {}, aligned,
                              one_blob, &result)
                      .ok());
      std::vector<std::byte> expected(bytes);
      ASSERT_TRUE(
          codec.cpu().Decode(one_blob, {}, aligned, {expected.data(), Dtype::kBf16, one}).ok());
      std::vector<std::byte> decoded(bytes);
      ASSERT_TRUE(stream.Copy(decoded.data(), sample_of(out, sample), bytes).ok());
      Await(stream);
      EXPECT_EQ(FirstDifference(decoded, expected), -1);
    }
  }
}

TEST(CodecsOnGpu, EmptyTensors) {
  std::mt19937_64 random(8);
  Stream stream = Must(Stream::Create(Gpu()));
  for (const char* codec : {"none", "fixed", "tah", "gauss", "dither", "zip", "taco"}) {
    Compare({codec, {0, 5, 7}, Dtype::kF16, Dtype::kF16}, &random, &stream);
  }
}

void ExpectFault(const char* text) {
  SCOPED_TRACE(text);
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec codec = Must(CudaCodec::Create(text));
  const Shape shape{2, 1, 64};
  const std::vector<float> in(shape.elements(), 1.0f);
  std::vector<std::byte> blob(codec.MaxEncodedBytes(shape));
  EncodeResult result;
  std::vector<std::byte> scratch = Scratch(codec, shape);
  ASSERT_TRUE(codec.cpu()
                  .Encode({in.data(), Dtype::kF32, shape}, {}, Aligned(codec, shape, &scratch),
                          blob, &result)
                  .ok());
  const int16_t impossible = 1000;
  std::memcpy(blob.data() + kBlobHeaderBytes, &impossible, sizeof(impossible));
  DeviceBuffer blob_dev = Upload(blob, &stream);
  DeviceBuffer out_dev = Upload(std::vector<std::byte>(in.size() * 4), &stream);
  DeviceBuffer fault = Upload(std::vector<std::byte>(4), &stream);
  DeviceBuffer workspace = Upload(std::vector<std::byte>(codec.WorkspaceBytes(shape)), &stream);
  const DeviceSpan workspace_span{workspace.data_dev(), workspace.size()};
  ASSERT_TRUE(codec
                  .Decode(std::span(blob).first(kBlobHeaderBytes),
                          {blob_dev.data_dev(), blob.size()}, workspace_span,
                          {out_dev.data_dev(), Dtype::kF32, shape},
                          static_cast<uint32_t*>(fault.data_dev()), stream)
                  .ok());
  EXPECT_NE(FirstDifference(Download(fault, 4, &stream), std::vector<std::byte>(4)), -1);
  std::vector<float> out(in.size());
  std::memcpy(out.data(), Download(out_dev, out.size() * 4, &stream).data(), out.size() * 4);
  EXPECT_TRUE(std::isnan(out.front()));
  EXPECT_FALSE(std::isnan(out.back()));
}

TEST(CodecsOnGpu, AnImpossibleExponentIsAFault) {
  ExpectFault("fixed");
  ExpectFault("gauss");
}

void ExpectGraph(const char* text) {
  SCOPED_TRACE(text);
  std::mt19937_64 random(9);
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec codec = Must(CudaCodec::Create(text));
  const Shape shape{3, 40, 320};
  const std::vector<std::byte> first = Contents(&random, Dtype::kBf16, shape.elements());
  DeviceBuffer in = Upload(first, &stream);
  DeviceBuffer blob = Upload(std::vector<std::byte>(codec.MaxEncodedBytes(shape)), &stream);
  DeviceBuffer workspace = Upload(std::vector<std::byte>(codec.WorkspaceBytes(shape)), &stream);
  const auto encode = [&] {
    return codec.Encode({in.data_dev(), Dtype::kBf16, shape}, {},
                        {workspace.data_dev(), workspace.size()}, {blob.data_dev(), blob.size()},
                        stream);
  };
  const Graph graph = Must(Graph::Capture(stream, encode));
  for (int k = 0; k < 3; ++k) {
    const std::vector<std::byte> bytes = Contents(&random, Dtype::kBf16, shape.elements());
    ASSERT_TRUE(stream.Copy(in.data_dev(), bytes.data(), bytes.size()).ok());
    ASSERT_TRUE(graph.Launch(stream).ok());
    std::vector<std::byte> launched = Download(blob, codec.MaxEncodedBytes(shape), &stream);
    launched.resize(BlobBytes(std::span(launched).first(kBlobHeaderBytes)));
    ASSERT_TRUE(encode().ok());
    EXPECT_EQ(FirstDifference(Download(blob, launched.size(), &stream), launched), -1);
  }
}

TEST(CodecsOnGpu, AGraphEncodesAnew) {
  ExpectGraph("tah");
  ExpectGraph("gauss");
  ExpectGraph("dither");
  ExpectGraph("zip");
  ExpectGraph("taco");
}

// Every sample the same, so that what is to come is known without encoding all of it.
TEST(CodecsOnGpu, MoreThanTwoToThe31Elements) {
  std::mt19937_64 random(10);
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec codec = Must(CudaCodec::Create("gauss"));
  const Shape one{1, 1024, 1056};
  const Shape shape{2000, 1024, 1056};
  const std::vector<std::byte> sample = Contents(&random, Dtype::kBf16, one.elements(), 0);
  const gauss::Layout layout = gauss::MakeLayout(one, {});
  const size_t sample_codes = layout.end - layout.codes;
  std::vector<std::byte> expected(codec.MaxEncodedBytes(one));
  std::vector<std::byte> scratch = Scratch(codec, one);
  EncodeResult result;
  ASSERT_TRUE(codec.cpu()
                  .Encode({sample.data(), Dtype::kBf16, one}, {}, Aligned(codec, one, &scratch),
                          expected, &result)
                  .ok());
  DeviceBuffer in = Must(DeviceBuffer::Create(Gpu(), shape.elements() * 2));
  ASSERT_TRUE(stream.Copy(in.data_dev(), sample.data(), sample.size()).ok());
  for (uint32_t k = 1; k < shape.samples; ++k) {
    std::byte* const to = static_cast<std::byte*>(in.data_dev()) + k * sample.size();
    ASSERT_TRUE(stream.Copy(to, in.data_dev(), sample.size()).ok());
  }
  DeviceBuffer blob = Must(DeviceBuffer::Create(Gpu(), codec.MaxEncodedBytes(shape)));
  DeviceBuffer workspace = Must(DeviceBuffer::Create(Gpu(), codec.WorkspaceBytes(shape)));
  const DeviceSpan workspace_span{workspace.data_dev(), workspace.size()};
  ASSERT_TRUE(codec
                  .Encode({in.data_dev(), Dtype::kBf16, shape}, {}, workspace_span,
                          {blob.data_dev(), blob.size()}, stream)
                  .ok());
  std::vector<std::byte> codes(sample_codes);
  std::byte* const last =
      static_cast<std::byte*>(blob.data_dev()) + codec.MaxEncodedBytes(shape) - sample_codes;
  ASSERT_TRUE(stream.Copy(codes.data(), last, sample_codes).ok());
  const std::vector<std::byte> header = Download(blob, kBlobHeaderBytes, &stream);
  EXPECT_EQ(FirstDifference(codes, std::span(expected).last(sample_codes)), -1);

  DeviceBuffer out = Must(DeviceBuffer::Create(Gpu(), shape.elements() * 2));
  DeviceBuffer fault = Upload(std::vector<std::byte>(4), &stream);
  ASSERT_TRUE(codec
                  .Decode(header, {blob.data_dev(), blob.size()}, workspace_span,
                          {out.data_dev(), Dtype::kBf16, shape},
                          static_cast<uint32_t*>(fault.data_dev()), stream)
                  .ok());
  std::vector<std::byte> first(sample.size());
  std::vector<std::byte> final(sample.size());
  ASSERT_TRUE(stream.Copy(first.data(), out.data_dev(), first.size()).ok());
  ASSERT_TRUE(
      stream
          .Copy(final.data(),
                static_cast<std::byte*>(out.data_dev()) + (shape.samples - 1) * sample.size(),
                final.size())
          .ok());
  Await(stream);
  std::vector<std::byte> decoded(sample.size());
  ASSERT_TRUE(
      codec.cpu()
          .Decode(expected, {}, Aligned(codec, one, &scratch), {decoded.data(), Dtype::kBf16, one})
          .ok());
  EXPECT_EQ(FirstDifference(first, decoded), -1);
  EXPECT_EQ(FirstDifference(final, decoded), -1);
}

TEST(CodecsOnGpu, WrongArgumentsAreRefusedAtOnce) {
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec codec = Must(CudaCodec::Create("fixed"));
  const Shape shape{1, 1, 64};
  DeviceBuffer memory = Upload({}, &stream);
  const TensorView in{memory.data_dev(), Dtype::kF32, shape};
  const DeviceSpan workspace{memory.data_dev(), memory.size()};
  EXPECT_TRUE(
      absl::IsInvalidArgument(codec.Encode(in, {}, workspace, {memory.data_dev(), 10}, stream)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      codec.Encode(in, {}, {nullptr, 0}, {memory.data_dev(), 1 << 20}, stream)));
  EXPECT_TRUE(absl::IsInvalidArgument(codec.Encode({nullptr, Dtype::kF32, shape}, {}, workspace,
                                                   {memory.data_dev(), 1 << 20}, stream)));
}

}  // namespace
}  // namespace longhaul::codec::cuda
