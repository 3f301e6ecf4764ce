// Tensors, buffers and calls that the codec tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/convert.h"
#include "codec/registry.h"

namespace longhaul::codec {

// Every family with its defaults, and some with unusual parameters. Without the family python,
// which has no defaults (python_too.h).
inline std::vector<std::string> AllCodecs() {
  std::vector<std::string> codecs;
  for (const Family& family : Families()) {
    if (!family.names_class) codecs.push_back(ParseCodec(family.name).value()->name());
  }
  for (const char* const unusual : {"fixed:bits=3",
                                    "fixed:bits=4,rounding=stochastic",
                                    "fixed:bits=8,tile=32",
                                    "fixed:bits=10,tile=128,rounding=stochastic",
                                    "tah:rounding=stochastic",
                                    "tah:p=0,tile=32",
                                    "tah:p=1,tile=128",
                                    "tah:p=0.37,tile=32,alloc=96",
                                    "tah:p=0.5,alloc=token",
                                    "tah:p=0.5,tau=0",
                                    "tah:p=0.9,tau=inf",
                                    "gauss:bits=2,block=64",
                                    "gauss:bits=3,block=256",
                                    "gauss:bits=5,block=128",
                                    "gauss:bits=6,block=512",
                                    "dither:bits=1,block=256",
                                    "dither:bits=1.5,block=64",
                                    "dither:bits=3,block=128",
                                    "aqsgd:bits=2",
                                    "predict:pairs=0,rate=0.5/none",
                                    "predict:pairs=1024,prior=4/fixed:bits=4,rounding=stochastic",
                                    "predict:rate=0/zip",
                                    "taco:format=e4m3,block=32",
                                    "taco:format=e5m2,block=64",
                                    "taco:format=int8,block=128",
                                    "taco:format=e5m2,block=512"}) {
    codecs.emplace_back(unusual);
  }
  return codecs;
}

inline std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size)
      : size_(size), data_(static_cast<std::byte*>(std::aligned_alloc(64, (size / 64 + 1) * 64))) {
    std::memset(data_.get(), 0xa5, (size / 64 + 1) * 64);
  }
  std::span<std::byte> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

inline std::unique_ptr<const Codec> MustParse(const std::string& text) {
  auto codec = ParseCodec(text);
  EXPECT_TRUE(codec.ok()) << codec.status();
  return codec.ok() ? *std::move(codec) : nullptr;
}

// A tensor of any dtype, filled from fp32 values.
class Tensor {
 public:
  Tensor(Dtype dtype, Shape shape, const std::vector<float>& values)
      : dtype_(dtype), shape_(shape), bytes_(values.size() * BytesPerElement(dtype)) {
    for (size_t k = 0; k < values.size(); ++k) {
      if (dtype == Dtype::kF32) {
        std::memcpy(&bytes_.span()[4 * k], &values[k], 4);
      } else {
        const uint16_t raw = dtype == Dtype::kF16 ? F32ToF16(values[k]) : F32ToBf16(values[k]);
        std::memcpy(&bytes_.span()[2 * k], &raw, 2);
      }
    }
  }
  Tensor(Dtype dtype, Shape shape)
      : dtype_(dtype), shape_(shape), bytes_(shape.elements() * BytesPerElement(dtype)) {}

  TensorView view() const { return {bytes_.span().data(), dtype_, shape_}; }
  MutableTensorView mutable_view() { return {bytes_.span().data(), dtype_, shape_}; }
  std::vector<float> values() const {
    std::vector<float> result(shape_.elements());
    for (size_t k = 0; k < result.size(); ++k) {
      if (dtype_ == Dtype::kF32) {
        std::memcpy(&result[k], &bytes_.span()[4 * k], 4);
      } else {
        uint16_t raw = 0;
        std::memcpy(&raw, &bytes_.span()[2 * k], 2);
        result[k] = dtype_ == Dtype::kF16 ? F16ToF32(raw) : Bf16ToF32(raw);
      }
    }
    return result;
  }

 private:
  Dtype dtype_;
  Shape shape_;
  AlignedBytes bytes_;
};

inline std::vector<std::byte> MustEncode(const Codec& codec, const TensorView& in,
                                         const Context& context = {},
                                         uint64_t* nonfinite = nullptr) {
  std::vector<std::byte> blob(codec.MaxEncodedBytes(in.shape), std::byte{0x5a});
  const AlignedBytes workspace(codec.WorkspaceBytes(in.shape));
  EncodeResult result;
  const Status status = codec.Encode(in, context, workspace.span(), blob, &result);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(result.bytes, codec.MinEncodedBytes(in.shape));
  EXPECT_LE(result.bytes, codec.MaxEncodedBytes(in.shape));
  blob.resize(result.bytes);
  if (nonfinite != nullptr) *nonfinite = result.nonfinite_tiles;
  return blob;
}

inline Status Decode(const Codec& codec, std::span<const std::byte> blob, Tensor* out) {
  const AlignedBytes workspace(codec.WorkspaceBytes(out->view().shape));
  return codec.Decode(blob, {}, workspace.span(), out->mutable_view());
}

inline std::vector<float> RoundTrip(const Codec& codec, const Tensor& in, Dtype out_dtype,
                                    uint64_t* nonfinite = nullptr) {
  const std::vector<std::byte> blob = MustEncode(codec, in.view(), {}, nonfinite);
  Tensor out(out_dtype, in.view().shape);
  const Status status = Decode(codec, blob, &out);
  EXPECT_TRUE(status.ok()) << status;
  return out.values();
}

// Normal values with a large one here and there, as activations have them. The generator's own
// sums of uniform numbers, not std::normal_distribution, whose numbers depend on the library.
inline std::vector<float> Activations(size_t count, uint32_t seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    int32_t sum = 0;
    for (int k = 0; k < 4; ++k) sum += static_cast<int32_t>(generator() >> 16) - 32768;
    value = static_cast<float>(sum) * (scale / 32768);
    if (generator() % 97 == 0) value *= 25;
  }
  return values;
}

inline double RelativeL2(const std::vector<float>& expected, const std::vector<float>& got) {
  double error = 0;
  double norm = 0;
  for (size_t k = 0; k < expected.size(); ++k) {
    error += std::pow(double{got[k]} - double{expected[k]}, 2);
    norm += std::pow(double{expected[k]}, 2);
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

}  // namespace longhaul::codec
