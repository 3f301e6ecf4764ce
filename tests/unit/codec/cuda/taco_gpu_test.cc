// taco's kernels against the CPU's: the same bytes, whatever the contents, as a codec and as a
// collective uses them.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cuda/graph.h"
#include "codec/cuda/cuda_taco.h"
#include "codec/taco/flat.h"
#include "tests/unit/codec/cuda/gpu_contents.h"

namespace longhaul::codec::cuda {
namespace {

using ::longhaul::cuda::Graph;
using Bytes = std::vector<std::byte>;

taco::Params AnyTaco(std::mt19937_64* random) {
  // The usual block every other time: it has kernels of its own.
  const uint32_t block = (*random)() % 2 == 0 ? 256u : 32u << (*random)() % 5;
  return {static_cast<taco::Format>(1 + (*random)() % 3), block};
}

uint64_t AnyCount(std::mt19937_64* random) {
  const uint64_t kind = (*random)() % 8;
  if (kind == 0) return 1 + (*random)() % 40;
  if (kind == 1) return 512 * (1 + (*random)() % 64);
  return 1 + (*random)() % 6000;
}

// As Contents, and numbers at both ends of the format.
Bytes AnyContents(std::mt19937_64* random, Dtype dtype, uint64_t elements) {
  Bytes bytes = Contents(random, dtype, elements);
  const uint64_t kind = (*random)() % 6;
  if (kind > 1) return bytes;
  const size_t step = BytesPerElement(dtype);
  const int exponent = kind == 0 ? 118 : -140;
  std::normal_distribution<float> normal;
  for (uint64_t k = 0; k < elements; ++k) {
    const uint32_t bits = Bits(std::ldexp(normal(*random), exponent), dtype);
    std::memcpy(bytes.data() + k * step, &bits, step);
  }
  return bytes;
}

std::string Describe(const taco::Params& params, uint64_t elements, Dtype dtype) {
  return taco::CodecString(params) + ", " + std::to_string(elements) + " of " +
         std::string(ToString(dtype));
}

// Memory that a test's bytes lie in, behind `shift` others.
class Placed {
 public:
  Placed(const Bytes& bytes, size_t shift, Stream* stream) : shift_(shift), size_(bytes.size()) {
    Bytes all(shift, kPoison);
    all.insert(all.end(), bytes.begin(), bytes.end());
    all.insert(all.end(), kGuard, kPoison);
    buffer_ = std::make_unique<DeviceBuffer>(Upload(all, stream));
  }
  static Placed OfSize(size_t size, size_t shift, Stream* stream) {
    return Placed(Bytes(size, kPoison), shift, stream);
  }
  std::byte* data() { return static_cast<std::byte*>(buffer_->data_dev()) + shift_; }
  DeviceSpan span() { return {data(), size_}; }
  // The bytes, after a look at those before and behind.
  Bytes Get(Stream* stream) {
    const Bytes all = Download(*buffer_, shift_ + size_ + kGuard, stream);
    EXPECT_EQ(FirstDifference(std::span(all).first(shift_), Bytes(shift_, kPoison)), -1);
    EXPECT_EQ(FirstDifference(std::span(all).last(kGuard), Bytes(kGuard, kPoison)), -1);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(shift_);
    return {first, first + static_cast<std::ptrdiff_t>(size_)};
  }

 private:
  size_t shift_, size_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

// A multiple of the element below 16; 0 most of the time.
size_t AnyShift(std::mt19937_64* random, Dtype dtype) {
  if ((*random)() % 3 != 0) return 0;
  return (*random)() % 16 / BytesPerElement(dtype) * BytesPerElement(dtype);
}

// On the host; aligned as payloads must be.
struct alignas(16) Sixteen {
  std::array<std::byte, 16> bytes;
};
class HostPayload {
 public:
  HostPayload(uint64_t elements, const taco::Params& params)
      : memory_(TacoPayloadBytes(elements, params) / 16) {}
  std::span<std::byte> span() { return std::as_writable_bytes(std::span(memory_)); }
  Bytes bytes() { return {span().begin(), span().end()}; }

 private:
  std::vector<Sixteen> memory_;
};

TEST(TacoOnGpu, WritesAndReadsTheBytesOfTheCpu) {
  std::mt19937_64 random(20261201);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 10000 && !::testing::Test::HasFailure(); ++k) {
    const taco::Params params = AnyTaco(&random);
    const uint64_t elements = AnyCount(&random);
    const Dtype in_dtype = AnyDtype(&random), out_dtype = AnyDtype(&random);
    SCOPED_TRACE(Describe(params, elements, in_dtype) + " to " + std::string(ToString(out_dtype)));
    const Bytes in = AnyContents(&random, in_dtype, elements);
    HostPayload expected(elements, params);
    uint64_t nonfinite = 0;
    ASSERT_TRUE(codec::TacoEncodeFlat(in.data(), in_dtype, elements, params, expected.span(),
                                      nullptr, &nonfinite)
                    .ok());
    Bytes decoded(elements * BytesPerElement(out_dtype));
    ASSERT_TRUE(
        codec::TacoDecodeFlat(expected.span(), params, decoded.data(), out_dtype, elements).ok());

    Placed in_dev(in, AnyShift(&random, in_dtype), &stream);
    Placed payload = Placed::OfSize(expected.span().size(), 16, &stream);
    DeviceBuffer count = Upload(Bytes(8), &stream);
    Status status = TacoEncodeFlat(in_dev.data(), in_dtype, elements, params, payload.span(),
                                   stream, static_cast<uint64_t*>(count.data_dev()));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(FirstDifference(payload.Get(&stream), expected.bytes()), -1);
    uint64_t counted = 0;
    std::memcpy(&counted, Download(count, 8, &stream).data(), 8);
    ASSERT_EQ(counted, nonfinite);

    Placed out = Placed::OfSize(decoded.size(), AnyShift(&random, out_dtype), &stream);
    status = TacoDecodeFlat(payload.span(), params, out.data(), out_dtype, elements, stream);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(FirstDifference(out.Get(&stream), decoded), -1);
  }
}

// With a header, whose count of blocks that are not finite the encoder adds to.
TEST(TacoOnGpu, BlobsAreThoseOfTheCpu) {
  std::mt19937_64 random(20261202);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 1500 && !::testing::Test::HasFailure(); ++k) {
    const CudaCodec codec = Must(CudaCodec::Create(taco::CodecString(AnyTaco(&random))));
    Shape shape = AnyShape(&random);
    if (random() % 16 == 0) shape.tokens *= 40;
    const Dtype dtype = AnyDtype(&random);
    SCOPED_TRACE(codec.cpu().name() + " of " + std::to_string(shape.elements()));
    const Bytes in = AnyContents(&random, dtype, shape.elements());
    Bytes blob(codec.MaxEncodedBytes(shape));
    EncodeResult result;
    ASSERT_TRUE(codec.cpu().Encode({in.data(), dtype, shape}, {}, {}, blob, &result).ok());
    Bytes decoded(in.size());
    ASSERT_TRUE(codec.cpu().Decode(blob, {}, {}, {decoded.data(), dtype, shape}).ok());
    Placed in_dev(in, 0, &stream);
    Placed blob_dev = Placed::OfSize(blob.size(), 0, &stream);
    ASSERT_TRUE(codec.Encode({in_dev.data(), dtype, shape}, {}, {}, blob_dev.span(), stream).ok());
    ASSERT_EQ(FirstDifference(blob_dev.Get(&stream), blob), -1);
    Placed out = Placed::OfSize(in.size(), 0, &stream);
    DeviceBuffer fault = Upload(Bytes(4), &stream);
    ASSERT_TRUE(codec
                    .Decode(std::span(blob).first(kBlobHeaderBytes), blob_dev.span(), {},
                            {out.data(), dtype, shape}, static_cast<uint32_t*>(fault.data_dev()),
                            stream)
                    .ok());
    ASSERT_EQ(FirstDifference(out.Get(&stream), decoded), -1);
    ASSERT_EQ(FirstDifference(Download(fault, 4, &stream), Bytes(4)), -1);
  }
}

// What no encoder writes: codes of any bits, those that are no numbers too, and scales of any bits.
TEST(TacoOnGpu, AnyPayloadIsReadAsByTheCpu) {
  std::mt19937_64 random(20261203);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 1000 && !::testing::Test::HasFailure(); ++k) {
    const taco::Params params = AnyTaco(&random);
    const uint64_t elements = AnyCount(&random);
    const Dtype dtype = AnyDtype(&random);
    SCOPED_TRACE(Describe(params, elements, dtype));
    HostPayload payload(elements, params);
    const taco::Layout layout = taco::MakeLayout(elements, params);
    // Few enough NaNs that most blocks have none.
    const uint64_t wild = random() % 3;
    for (std::byte& byte : payload.span()) {
      byte = static_cast<std::byte>(random() & (wild == 0 ? 0xff : wild == 1 ? 0xf7 : 0xb7));
    }
    for (uint64_t block = 0; block < layout.blocks; ++block) {
      const auto any = static_cast<uint32_t>(random());
      std::memcpy(payload.span().data() + 4 * block, &any, 4);
    }
    Bytes expected(elements * BytesPerElement(dtype));
    ASSERT_TRUE(
        codec::TacoDecodeFlat(payload.span(), params, expected.data(), dtype, elements).ok());
    Placed payload_dev(payload.bytes(), 0, &stream);
    Placed out = Placed::OfSize(expected.size(), 0, &stream);
    ASSERT_TRUE(
        TacoDecodeFlat(payload_dev.span(), params, out.data(), dtype, elements, stream).ok());
    ASSERT_EQ(FirstDifference(out.Get(&stream), expected), -1);
  }
}

// The parts of a reduction, on both sides.
struct Parts {
  Parts(std::mt19937_64* random, size_t count, uint64_t elements, Dtype dtype,
        const taco::Params& params, Stream* stream)
      : own((*random)() % count) {
    // All of one kind as a rule: sums of huge and small parts show little of the latter.
    const uint64_t kind = (*random)() % 3 == 0 ? kKinds : 7;
    for (size_t k = 0; k < count; ++k) {
      const Bytes plain = kind == kKinds ? AnyContents(random, dtype, elements)
                                         : Contents(random, dtype, elements, kind);
      if (k == own) {
        own_part = plain;
        on_host.push_back(own_part.data());
        placed.emplace_back(plain, 0, stream);
      } else {
        payloads.push_back(std::make_unique<HostPayload>(elements, params));
        EXPECT_TRUE(
            codec::TacoEncodeFlat(plain.data(), dtype, elements, params, payloads.back()->span())
                .ok());
        on_host.push_back(payloads.back()->span().data());
        placed.emplace_back(payloads.back()->bytes(), 0, stream);
      }
      on_device.push_back(placed.back().data());
    }
  }
  size_t own;
  Bytes own_part;
  std::vector<std::unique_ptr<HostPayload>> payloads;
  std::vector<Placed> placed;
  std::vector<const void*> on_host, on_device;
};

TEST(TacoOnGpu, ReducesToTheBytesOfTheCpu) {
  std::mt19937_64 random(20261204);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 2000 && !::testing::Test::HasFailure(); ++k) {
    const taco::Params params = AnyTaco(&random);
    const uint64_t elements = AnyCount(&random);
    const Dtype dtype = AnyDtype(&random);
    const size_t count = k % 100 == 0 ? kMaxTacoParts : 2 + random() % 7;
    SCOPED_TRACE(Describe(params, elements, dtype) + ", " + std::to_string(count) + " parts");
    Parts parts(&random, count, elements, dtype, params, &stream);
    HostPayload payload(elements, params);
    Bytes out(elements * BytesPerElement(dtype));
    TacoReduceArgs args{.parts = parts.on_host,
                        .own = parts.own,
                        .dtype = dtype,
                        .elements = elements,
                        .params = params,
                        .out = out.data()};
    Placed sum = Placed::OfSize(out.size(), AnyShift(&random, dtype), &stream);
    TacoReduceArgs on_device = args;
    on_device.parts = parts.on_device;
    on_device.out = sum.data();
    ASSERT_TRUE(codec::TacoReduce(args).ok());
    Status status = TacoReduce(on_device, stream);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(FirstDifference(sum.Get(&stream), out), -1);

    // Encoded, in place every other time.
    args.out_payload = payload.span();
    Placed payload_dev = Placed::OfSize(payload.span().size(), 0, &stream);
    on_device.out_payload = {payload_dev.data(), payload.span().size()};
    const bool in_place = k % 2 == 0;
    if (in_place) on_device.out = parts.placed[parts.own].data();
    ASSERT_TRUE(codec::TacoReduce(args).ok());
    status = TacoReduce(on_device, stream);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(FirstDifference(payload_dev.Get(&stream), payload.bytes()), -1);
    ASSERT_EQ(FirstDifference((in_place ? parts.placed[parts.own] : sum).Get(&stream), out), -1);
  }
}

// A rank's work of an all-reduce, captured once and launched on other contents.
TEST(TacoOnGpu, AGraphRunsAnew) {
  std::mt19937_64 random(20261205);
  Stream stream = Must(Stream::Create(Gpu()));
  const taco::Params params;
  constexpr uint64_t kElements = 256 * 100 + 7;
  constexpr size_t kSize = kElements * 2;
  Placed mine = Placed::OfSize(kSize, 0, &stream), theirs = Placed::OfSize(kSize, 0, &stream);
  const size_t payload_bytes = TacoPayloadBytes(kElements, params);
  Placed sent = Placed::OfSize(payload_bytes, 0, &stream);
  Placed reduced = Placed::OfSize(payload_bytes, 0, &stream);
  Placed out = Placed::OfSize(kSize, 0, &stream), far_out = Placed::OfSize(kSize, 0, &stream);
  const std::array<const void*, 2> parts = {mine.data(), sent.data()};
  const auto all = [&]() -> Status {
    LH_RETURN_IF_ERROR(
        TacoEncodeFlat(theirs.data(), Dtype::kBf16, kElements, params, sent.span(), stream));
    LH_RETURN_IF_ERROR(TacoReduce({.parts = parts,
                                   .own = 0,
                                   .dtype = Dtype::kBf16,
                                   .elements = kElements,
                                   .params = params,
                                   .out_payload = {reduced.data(), payload_bytes},
                                   .out = out.data()},
                                  stream));
    return TacoDecodeFlat(reduced.span(), params, far_out.data(), Dtype::kBf16, kElements, stream);
  };
  const Graph graph = Must(Graph::Capture(stream, all));
  Bytes before;
  for (int k = 0; k < 3; ++k) {
    for (Placed* const one : {&mine, &theirs}) {
      const Bytes bytes = Contents(&random, Dtype::kBf16, kElements, 7);
      ASSERT_TRUE(stream.Copy(one->data(), bytes.data(), bytes.size()).ok());
    }
    ASSERT_TRUE(graph.Launch(stream).ok());
    const Bytes launched = out.Get(&stream);
    EXPECT_NE(launched, before);
    // The owner's values are what everybody else decodes.
    EXPECT_EQ(FirstDifference(far_out.Get(&stream), launched), -1);
    ASSERT_TRUE(all().ok());
    EXPECT_EQ(FirstDifference(out.Get(&stream), launched), -1);
    before = launched;
  }
}

// The same contents over and over, so that what is to come is known without encoding all of it.
TEST(TacoOnGpu, MoreThan2To31Elements) {
  std::mt19937_64 random(20261206);
  Stream stream = Must(Stream::Create(Gpu()));
  const taco::Params params;
  constexpr uint64_t kPiece = uint64_t{1} << 20, kPieces = 2049;
  constexpr uint64_t kElements = kPiece * kPieces;
  const Bytes piece = Contents(&random, Dtype::kBf16, kPiece, 7);
  HostPayload expected(kPiece, params);
  ASSERT_TRUE(
      codec::TacoEncodeFlat(piece.data(), Dtype::kBf16, kPiece, params, expected.span()).ok());
  Bytes decoded(piece.size());
  ASSERT_TRUE(
      codec::TacoDecodeFlat(expected.span(), params, decoded.data(), Dtype::kBf16, kPiece).ok());
  DeviceBuffer in = Must(DeviceBuffer::Create(Gpu(), kElements * 2));
  const auto piece_of = [&](DeviceBuffer& buffer, uint64_t k) {
    return static_cast<std::byte*>(buffer.data_dev()) + k * piece.size();
  };
  for (uint64_t k = 0; k < kPieces; ++k) {
    ASSERT_TRUE(stream.Copy(piece_of(in, k), piece.data(), piece.size()).ok());
  }
  const taco::Layout layout = taco::MakeLayout(kElements, params);
  DeviceBuffer payload = Must(DeviceBuffer::Create(Gpu(), layout.end));
  const DeviceSpan span{payload.data_dev(), layout.end};
  ASSERT_TRUE(TacoEncodeFlat(in.data_dev(), Dtype::kBf16, kElements, params, span, stream).ok());
  Bytes codes(kPiece);
  const auto* const last = static_cast<const std::byte*>(payload.data_dev()) + layout.end - kPiece;
  ASSERT_TRUE(stream.Copy(codes.data(), last, kPiece).ok());
  Await(stream);
  EXPECT_EQ(FirstDifference(codes, std::span(expected.span()).last(kPiece)), -1);
  // Over the elements themselves: there are as many.
  ASSERT_TRUE(TacoDecodeFlat(span, params, in.data_dev(), Dtype::kBf16, kElements, stream).ok());
  for (const uint64_t k : {uint64_t{0}, uint64_t{1023}, uint64_t{1024}, kPieces - 1}) {
    Bytes got(piece.size());
    ASSERT_TRUE(stream.Copy(got.data(), piece_of(in, k), got.size()).ok());
    Await(stream);
    EXPECT_EQ(FirstDifference(got, decoded), -1) << k;
  }
}

TEST(TacoOnGpu, WrongArgumentsAreRefusedAtOnce) {
  Stream stream = Must(Stream::Create(Gpu()));
  const taco::Params params;
  DeviceBuffer memory = Upload(Bytes(1 << 16), &stream);
  std::byte* const data = static_cast<std::byte*>(memory.data_dev());
  const auto invalid = [](const Status& status) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  };
  const DeviceSpan right{data + 4096, TacoPayloadBytes(300, params)};
  ASSERT_TRUE(TacoEncodeFlat(data, Dtype::kF32, 300, params, right, stream).ok());
  invalid(TacoEncodeFlat(nullptr, Dtype::kF32, 300, params, right, stream));
  invalid(TacoEncodeFlat(data, Dtype::kF32, 300, params, {data + 4096, right.bytes - 1}, stream));
  invalid(TacoEncodeFlat(data, Dtype::kF32, 300, params, {data + 4104, right.bytes}, stream));
  invalid(TacoDecodeFlat(right, {.block = 100}, data, Dtype::kF32, 300, stream));
  const std::array<const void*, 2> parts = {data, right.data_dev};
  TacoReduceArgs args{.parts = parts, .own = 2, .elements = 300, .out = data};
  invalid(TacoReduce(args, stream));
  args.own = 0;
  EXPECT_TRUE(TacoReduce(args, stream).ok());
  Await(stream);
}

}  // namespace
}  // namespace longhaul::codec::cuda
