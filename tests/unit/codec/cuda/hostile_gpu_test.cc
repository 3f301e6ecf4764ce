// What nobody sends who means well: payloads of any bits, and pointers into the middle of a buffer.
#include <gmock/gmock.h>

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/tah/format.h"
#include "tests/unit/codec/cuda/gpu_contents.h"

namespace longhaul::codec::cuda {
namespace {

// A blob of zeros with the codec's own header, on the CPU.
std::vector<std::byte> BlobOfZeros(const CudaCodec& codec, const Shape& shape) {
  std::vector<std::byte> blob(codec.MaxEncodedBytes(shape));
  std::vector<std::byte> scratch = Scratch(codec, shape);
  EncodeResult result;
  const std::vector<float> zeros(shape.elements());
  EXPECT_TRUE(codec.cpu()
                  .Encode({zeros.data(), Dtype::kF32, shape}, {}, Aligned(codec, shape, &scratch),
                          blob, &result)
                  .ok());
  return blob;
}

// Every bit of a NaN is nobody's promise where it comes of arithmetic on damaged bytes.
void MakeNansEqual(Dtype dtype, std::span<std::byte> bytes) {
  const size_t step = BytesPerElement(dtype);
  const uint32_t sign = dtype == Dtype::kF32 ? 0x80000000 : 0x8000;
  const uint32_t infinity = dtype == Dtype::kF32    ? 0x7f800000
                            : dtype == Dtype::kBf16 ? 0x7f80
                                                    : 0x7c00;
  for (size_t k = 0; k + step <= bytes.size(); k += step) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + k, step);
    if ((bits & ~sign) > infinity) std::memset(bytes.data() + k, 0xff, step);
  }
}

// Decodes on both: the same bytes or both refuse, and no byte behind the output.
void CompareHostile(const CudaCodec& codec, const std::vector<std::byte>& blob, const Shape& shape,
                    Dtype dtype, Stream* stream) {
  std::vector<std::byte> scratch = Scratch(codec, shape);
  std::vector<std::byte> expected(shape.elements() * BytesPerElement(dtype));
  const Status on_cpu = codec.cpu().Decode(blob, {}, Aligned(codec, shape, &scratch),
                                           {expected.data(), dtype, shape});
  DeviceBuffer blob_dev = Upload(blob, stream);
  DeviceBuffer out_dev = Upload(std::vector<std::byte>(expected.size() + kGuard, kPoison), stream);
  DeviceBuffer fault = Upload(std::vector<std::byte>(4), stream);
  DeviceBuffer workspace =
      Upload(std::vector<std::byte>(codec.WorkspaceBytes(shape), kPoison), stream);
  const Status on_gpu =
      codec.Decode(std::span(blob).first(kBlobHeaderBytes), {blob_dev.data_dev(), blob.size()},
                   {workspace.data_dev(), workspace.size()}, {out_dev.data_dev(), dtype, shape},
                   static_cast<uint32_t*>(fault.data_dev()), *stream);
  ASSERT_TRUE(on_gpu.ok()) << on_gpu;  // it has seen the header alone
  const bool faulty = FirstDifference(Download(fault, 4, stream), std::vector<std::byte>(4)) != -1;
  EXPECT_EQ(faulty, !on_cpu.ok()) << on_cpu;
  std::vector<std::byte> out = Download(out_dev, expected.size() + kGuard, stream);
  EXPECT_EQ(FirstDifference(std::span(out).last(kGuard), std::vector<std::byte>(kGuard, kPoison)),
            -1);
  if (!on_cpu.ok()) return;
  out.resize(expected.size());
  MakeNansEqual(dtype, out);
  MakeNansEqual(dtype, expected);
  EXPECT_EQ(FirstDifference(out, expected), -1);
}

// As many precision bits as there must be, at any places: others are refused, and then nothing is
// read behind them.
void MarkAnyFours(const tah::Layout& layout, uint32_t samples, std::mt19937_64* random,
                  std::byte* payload) {
  for (uint32_t sample = 0; sample < samples; ++sample) {
    std::byte* const bits = payload + layout.precision + sample * layout.precision_bytes;
    std::fill_n(bits, layout.precision_bytes, std::byte{0});
    uint64_t left = layout.fours;
    for (uint64_t k = 0; k < layout.allocs; ++k) {
      if ((*random)() % (layout.allocs - k) >= left) continue;
      bits[k / 8] |= static_cast<std::byte>(1 << k % 8);
      --left;
    }
  }
}

// Codes, pivots, scales and zeros of any bits, and any choice of tiles with 4 bits. Whole tiles of
// 64 to bf16 have a decoder of their own.
void AnyPayloadOfTah(bool whole_tiles, uint64_t seed) {
  std::mt19937_64 random(seed);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 500 && !::testing::Test::HasFailure(); ++k) {
    tah::Params params;
    params.tile = params.alloc = whole_tiles ? 64 : 32u << random() % 3;
    if (!whole_tiles && random() % 2 == 0) params.alloc = tah::kWholeToken;
    params.p_65536 = static_cast<uint32_t>(random() % 65537);
    const std::string name = tah::CodecString(params);
    const CudaCodec codec = Must(CudaCodec::Create(name));
    Shape shape = AnyShape(&random);
    if (whole_tiles) shape.channels = (shape.channels + 63) / 64 * 64;
    const Dtype dtype = whole_tiles ? Dtype::kBf16 : AnyDtype(&random);
    SCOPED_TRACE(name + " " + std::to_string(shape.samples) + " x " + std::to_string(shape.tokens) +
                 " x " + std::to_string(shape.channels) + " to " + std::string(ToString(dtype)));
    std::vector<std::byte> blob = BlobOfZeros(codec, shape);
    std::byte* const payload = blob.data() + kBlobHeaderBytes;
    for (size_t at = kBlobHeaderBytes; at < blob.size(); ++at) {
      blob[at] = static_cast<std::byte>(random());
    }
    // Else both refuse: random bits hardly ever are as many as they must be.
    if (random() % 8 != 0)
      MarkAnyFours(tah::MakeLayout(shape, params), shape.samples, &random, payload);
    if (random() % 8 != 0) {
      for (uint32_t sample = 0; sample < shape.samples; ++sample) {
        const auto exponent = static_cast<int16_t>(static_cast<int>(random() % 250) - 130);
        std::memcpy(payload + 2 * size_t{sample}, &exponent, 2);
      }
    }
    CompareHostile(codec, blob, shape, dtype, &stream);
  }
}

TEST(HostilePayloads, OfTahAreReadAsByTheCpu) {
  AnyPayloadOfTah(/*whole_tiles=*/false, 78);
}

TEST(HostilePayloads, OfTahInWholeTilesAreReadAsByTheCpu) {
  AnyPayloadOfTah(/*whole_tiles=*/true, 79);
}

// Bytes that an encoder wrote, and a few others among them.
TEST(HostilePayloads, DamagedOnesOfDitherAreRefusedAsByTheCpu) {
  std::mt19937_64 random(81);
  Stream stream = Must(Stream::Create(Gpu()));
  for (int k = 0; k < 1000 && !::testing::Test::HasFailure(); ++k) {
    const CudaCodec codec =
        Must(CudaCodec::Create(k % 2 == 0 ? "dither" : "dither:bits=1,block=64"));
    Shape shape = AnyShape(&random);
    if (k % 4 == 0) shape.tokens *= 10;
    const std::vector<std::byte> in = Contents(&random, Dtype::kF32, shape.elements());
    std::vector<std::byte> blob(codec.MaxEncodedBytes(shape));
    EncodeResult result;
    ASSERT_TRUE(codec.cpu().Encode({in.data(), Dtype::kF32, shape}, {}, {}, blob, &result).ok());
    blob.resize(result.bytes);
    for (uint64_t flips = random() % 4; flips > 0 && blob.size() > kBlobHeaderBytes; --flips) {
      const size_t place = kBlobHeaderBytes + random() % (blob.size() - kBlobHeaderBytes);
      blob[place] ^= static_cast<std::byte>(1 << random() % 8);
    }
    CompareHostile(codec, blob, shape, AnyDtype(&random), &stream);
  }
}

// Kernels read several elements at once where they may: a tensor need only be aligned to its
// element, whatever lies before it.
TEST(ShiftedPointers, GiveTheSameBytes) {
  std::mt19937_64 random(80);
  Stream stream = Must(Stream::Create(Gpu()));
  for (const char* name :
       {"none", "bf16", "fp16", "fixed:bits=4", "fixed:bits=4,rounding=stochastic",
        "fixed:bits=9,rounding=stochastic", "fixed:bits=9,tile=32", "tah",
        "tah:tile=32,alloc=token", "tah:rounding=stochastic", "gauss", "gauss:bits=3,block=64",
        "dither", "zip", "taco", "taco:format=int8,block=32"}) {
    const CudaCodec codec = Must(CudaCodec::Create(name));
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
      for (const uint32_t channels : {64u * 3, 200u}) {
        const Shape shape{2, 5, channels};
        const size_t element = BytesPerElement(dtype);
        const std::vector<std::byte> in = Contents(&random, dtype, shape.elements(), 7);
        std::vector<std::byte> blob(codec.MaxEncodedBytes(shape));
        std::vector<std::byte> scratch = Scratch(codec, shape);
        EncodeResult result;
        ASSERT_TRUE(codec.cpu()
                        .Encode({in.data(), dtype, shape}, {}, Aligned(codec, shape, &scratch),
                                blob, &result)
                        .ok());
        const size_t most = blob.size();
        blob.resize(result.bytes);
        std::vector<std::byte> decoded(in.size());
        ASSERT_TRUE(
            codec.cpu()
                .Decode(blob, {}, Aligned(codec, shape, &scratch), {decoded.data(), dtype, shape})
                .ok());
        for (const size_t shift : {element, 3 * element, 16 - element}) {
          SCOPED_TRACE(std::string(name) + " of " + std::string(ToString(dtype)) + ", " +
                       std::to_string(channels) + " channels, " + std::to_string(shift) + " bytes");
          std::vector<std::byte> shifted(shift, kPoison);
          shifted.insert(shifted.end(), in.begin(), in.end());
          const DeviceBuffer in_dev = Upload(shifted, &stream);
          DeviceBuffer blob_dev = Upload(std::vector<std::byte>(most + kGuard, kPoison), &stream);
          DeviceBuffer workspace =
              Upload(std::vector<std::byte>(codec.WorkspaceBytes(shape), kPoison), &stream);
          const auto* first = static_cast<const std::byte*>(in_dev.data_dev()) + shift;
          const Status encoded =
              codec.Encode({first, dtype, shape}, {}, {workspace.data_dev(), workspace.size()},
                           {blob_dev.data_dev(), most}, stream);
          ASSERT_TRUE(encoded.ok()) << encoded;
          ASSERT_EQ(FirstDifference(Download(blob_dev, blob.size(), &stream), blob), -1);

          const size_t whole = shift + decoded.size() + kGuard;
          DeviceBuffer out_dev = Upload(std::vector<std::byte>(whole, kPoison), &stream);
          DeviceBuffer fault = Upload(std::vector<std::byte>(4), &stream);
          const Status status = codec.Decode(
              std::span(blob).first(kBlobHeaderBytes), {blob_dev.data_dev(), blob.size()},
              {workspace.data_dev(), workspace.size()},
              {static_cast<std::byte*>(out_dev.data_dev()) + shift, dtype, shape},
              static_cast<uint32_t*>(fault.data_dev()), stream);
          ASSERT_TRUE(status.ok()) << status;
          std::vector<std::byte> expected(whole, kPoison);
          std::ranges::copy(decoded, expected.begin() + static_cast<std::ptrdiff_t>(shift));
          ASSERT_EQ(FirstDifference(Download(out_dev, whole, &stream), expected), -1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::codec::cuda
