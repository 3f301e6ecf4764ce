// taco's functions for collectives: the codec's own bytes without a header, and a reduction that is
// what its steps are one by one.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codec/blob.h"
#include "codec/taco/flat.h"
#include "codec/thread_pool.h"
#include "random_codecs.h"

namespace longhaul::codec {
namespace {

taco::Params AnyParams(std::mt19937* random) {
  return {static_cast<taco::Format>(1 + Below(random, 3)), 32u << Below(random, 5)};
}

Dtype AnyFlatDtype(std::mt19937* random) {
  return static_cast<Dtype>(1 + Below(random, 3));
}

std::vector<std::byte> BytesOf(const TensorView& view) {
  const auto* from = static_cast<const std::byte*>(view.data);
  return {from, from + view.size_bytes()};
}

Shape Flat(uint64_t elements) {
  return {1, 1, static_cast<uint32_t>(elements)};
}

TEST(TacoFlat, IsTheCodecWithoutAHeader) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const taco::Params params = AnyParams(&random);
    const uint64_t elements = 1 + Below(&random, 3000);
    const Tensor in(AnyFlatDtype(&random), Flat(elements), RandomContents(elements, &random));
    const auto codec = MustParse(taco::CodecString(params));
    uint64_t nonfinite = 0;
    const std::vector<std::byte> blob = MustEncode(*codec, in.view(), {}, &nonfinite);
    ASSERT_EQ(TacoPayloadBytes(elements, params), blob.size() - kBlobHeaderBytes);
    const AlignedBytes payload(blob.size() - kBlobHeaderBytes);
    uint64_t counted = 0;
    ASSERT_TRUE(TacoEncodeFlat(in.view().data, in.view().dtype, elements, params, payload.span(),
                               nullptr, &counted)
                    .ok());
    ASSERT_EQ(
        std::memcmp(payload.span().data(), blob.data() + kBlobHeaderBytes, payload.span().size()),
        0);
    ASSERT_EQ(counted, nonfinite);
    const Dtype dtype = AnyFlatDtype(&random);
    Tensor of_codec(dtype, Flat(elements));
    ASSERT_TRUE(Decode(*codec, blob, &of_codec).ok());
    Tensor flat(dtype, Flat(elements));
    ASSERT_TRUE(
        TacoDecodeFlat(payload.span(), params, flat.mutable_view().data, dtype, elements).ok());
    ASSERT_EQ(BytesOf(flat.view()), BytesOf(of_codec.view()));
  }
}

// What a rank has of a reduction.
struct Parts {
  Parts(std::mt19937* random, size_t count, uint64_t elements, Dtype of, const taco::Params& with)
      : dtype(of),
        params(with),
        own(Below(random, 4) == 0 ? TacoReduceArgs::kNoneIsOwn
                                  : Below(random, static_cast<uint32_t>(count))) {
    // Equally large numbers, as the parts of a sum are, or wild ones.
    const bool wild = Below(random, 3) == 0;
    for (size_t k = 0; k < count; ++k) {
      const Tensor plain(dtype, Flat(elements),
                         wild ? RandomContents(elements, random)
                              : Activations(elements, static_cast<uint32_t>((*random)())));
      widened.push_back(plain.values());
      if (k == own) {
        own_part = std::make_unique<Tensor>(dtype, Flat(elements), plain.values());
        std::memcpy(own_part->mutable_view().data, plain.view().data, plain.view().size_bytes());
        pointers.push_back(own_part->view().data);
        continue;
      }
      payloads.push_back(std::make_unique<AlignedBytes>(TacoPayloadBytes(elements, params)));
      pointers.push_back(payloads.back()->span().data());
      EXPECT_TRUE(
          TacoEncodeFlat(plain.view().data, dtype, elements, params, payloads.back()->span()).ok());
      Tensor decoded(Dtype::kF32, Flat(elements));
      EXPECT_TRUE(TacoDecodeFlat(payloads.back()->span(), params, decoded.mutable_view().data,
                                 Dtype::kF32, elements)
                      .ok());
      widened.back() = decoded.values();
    }
    sum = widened[0];
    for (size_t k = 1; k < count; ++k) {
      for (uint64_t i = 0; i < elements; ++i) sum[i] += widened[k][i];
    }
  }
  Dtype dtype;
  taco::Params params;
  size_t own;
  std::vector<std::vector<float>> widened;  // what is summed
  std::vector<float> sum;
  std::unique_ptr<Tensor> own_part;  // null: there is none
  std::vector<std::unique_ptr<AlignedBytes>> payloads;
  std::vector<const void*> pointers;
};

TEST(TacoReduce, IsDecodingSummingAndEncoding) {
  std::mt19937 random(2);
  ThreadPool pool(3);
  for (int round = 0; round < 120; ++round) {
    const taco::Params params = AnyParams(&random);
    const uint64_t elements = round % 60 == 0 ? 200'001 : 1 + Below(&random, 2000);
    const size_t count = round % 30 == 15 ? kMaxTacoParts : 2 + Below(&random, 7);
    Parts parts(&random, count, elements, AnyFlatDtype(&random), params);
    Parallel* const threads = round % 2 == 0 ? &pool : nullptr;

    const AlignedBytes expected(TacoPayloadBytes(elements, params));
    ASSERT_TRUE(
        TacoEncodeFlat(parts.sum.data(), Dtype::kF32, elements, params, expected.span()).ok());
    Tensor expected_out(parts.dtype, Flat(elements));
    ASSERT_TRUE(TacoDecodeFlat(expected.span(), params, expected_out.mutable_view().data,
                               parts.dtype, elements)
                    .ok());

    TacoReduceArgs args{.parts = parts.pointers,
                        .own = parts.own,
                        .dtype = parts.dtype,
                        .elements = elements,
                        .params = params};
    Tensor sum(parts.dtype, Flat(elements));
    args.out = sum.mutable_view().data;
    ASSERT_TRUE(TacoReduce(args, threads).ok());
    const std::vector<float> got = sum.values();
    for (uint64_t k = 0; k < elements; ++k) {
      const float wanted = Tensor(parts.dtype, Flat(1), {parts.sum[k]}).values()[0];
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(got[k])) << k;
      } else {
        ASSERT_EQ(got[k], wanted) << k;
      }
    }

    const AlignedBytes payload(expected.span().size());
    args.out_payload = payload.span();
    // In place, every other time.
    Tensor out(parts.dtype, Flat(elements));
    const bool in_place = round % 4 >= 2 && parts.own_part != nullptr;
    args.out = in_place ? parts.own_part->mutable_view().data : out.mutable_view().data;
    ASSERT_TRUE(TacoReduce(args, threads).ok());
    ASSERT_EQ(std::memcmp(payload.span().data(), expected.span().data(), payload.span().size()), 0);
    ASSERT_EQ(std::memcmp(args.out, expected_out.view().data, expected_out.view().size_bytes()), 0);
  }
}

TEST(TacoReduce, SumsThatAreTooLargeAreInfinitiesOrNan) {
  const taco::Params params;
  constexpr uint64_t kCount = 512;
  const std::vector<float> large(kCount, 3e38f);
  const AlignedBytes payload(TacoPayloadBytes(kCount, params));
  ASSERT_TRUE(TacoEncodeFlat(large.data(), Dtype::kF32, kCount, params, payload.span()).ok());
  const void* const parts[] = {payload.span().data(), large.data()};
  std::vector<float> out(kCount);
  TacoReduceArgs args{.parts = parts, .own = 1, .elements = kCount, .out = out.data()};
  ASSERT_TRUE(TacoReduce(args).ok());
  for (const float value : out) EXPECT_TRUE(std::isinf(value));
  const AlignedBytes sum(TacoPayloadBytes(kCount, params));
  args.out_payload = sum.span();
  ASSERT_TRUE(TacoReduce(args).ok());
  for (const float value : out) EXPECT_TRUE(std::isnan(value));
}

TEST(TacoFlat, ThreadsChangeNothing) {
  std::mt19937 random(3);
  ThreadPool pool(4);
  constexpr uint64_t kCount = 1'000'003;
  const std::vector<float> values = RandomContents(kCount, &random);
  for (const uint32_t block : {32u, 256u}) {
    const taco::Params params{.block = block};
    const AlignedBytes alone(TacoPayloadBytes(kCount, params));
    const AlignedBytes together(TacoPayloadBytes(kCount, params));
    uint64_t bad = 0, also_bad = 0;
    ASSERT_TRUE(
        TacoEncodeFlat(values.data(), Dtype::kF32, kCount, params, alone.span(), nullptr, &bad)
            .ok());
    ASSERT_TRUE(TacoEncodeFlat(values.data(), Dtype::kF32, kCount, params, together.span(), &pool,
                               &also_bad)
                    .ok());
    EXPECT_EQ(bad, also_bad);
    EXPECT_EQ(std::memcmp(alone.span().data(), together.span().data(), alone.span().size()), 0);
    Tensor one(Dtype::kBf16, Flat(kCount)), other(Dtype::kBf16, Flat(kCount));
    ASSERT_TRUE(
        TacoDecodeFlat(alone.span(), params, one.mutable_view().data, Dtype::kBf16, kCount).ok());
    ASSERT_TRUE(
        TacoDecodeFlat(alone.span(), params, other.mutable_view().data, Dtype::kBf16, kCount, &pool)
            .ok());
    EXPECT_EQ(BytesOf(one.view()), BytesOf(other.view()));
  }
}

// Chunks that begin at a block have the same codes alone.
TEST(TacoFlat, ChunksAreWhatTheyAreInTheWhole) {
  const taco::Params params;
  const std::vector<float> values = Activations(1000, 4);
  const AlignedBytes whole(TacoPayloadBytes(1000, params));
  const AlignedBytes chunk(TacoPayloadBytes(1000 - 512, params));
  ASSERT_TRUE(TacoEncodeFlat(values.data(), Dtype::kF32, 1000, params, whole.span()).ok());
  ASSERT_TRUE(TacoEncodeFlat(values.data() + 512, Dtype::kF32, 488, params, chunk.span()).ok());
  EXPECT_EQ(std::memcmp(chunk.span().data(), whole.span().data() + 8, 8), 0);
  EXPECT_EQ(std::memcmp(chunk.span().data() + 16, whole.span().data() + 16 + 512, 512), 0);
}

TEST(TacoFlat, RefusesWhatDoesNotFit) {
  const taco::Params params;
  std::vector<float> values(300);
  const AlignedBytes payload(TacoPayloadBytes(300, params) + 16);
  const std::span<std::byte> right = payload.span().first(TacoPayloadBytes(300, params));
  const auto invalid = [](const Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  };
  ASSERT_TRUE(TacoEncodeFlat(values.data(), Dtype::kF32, 300, params, right).ok());
  invalid(TacoEncodeFlat(nullptr, Dtype::kF32, 300, params, right));
  invalid(TacoEncodeFlat(values.data(), static_cast<Dtype>(7), 300, params, right));
  invalid(TacoEncodeFlat(values.data(), Dtype::kF32, 300, {.block = 48}, right));
  invalid(TacoEncodeFlat(values.data(), Dtype::kF32, 300, params, right.first(right.size() - 1)));
  invalid(TacoEncodeFlat(values.data(), Dtype::kF32, 300, params, payload.span().subspan(8)));
  invalid(TacoEncodeFlat(values.data(), Dtype::kF32, kMaxElements + 1, params, right));
  invalid(TacoDecodeFlat(right.first(16), params, values.data(), Dtype::kF32, 300));
  invalid(
      TacoDecodeFlat(right, params, reinterpret_cast<char*>(values.data()) + 1, Dtype::kF32, 300));
  const void* parts[] = {right.data(), values.data()};
  TacoReduceArgs args{.parts = parts, .own = 1, .elements = 300, .out = values.data()};
  ASSERT_TRUE(TacoReduce(args).ok());
  TacoReduceArgs bad = args;
  bad.own = 2;
  invalid(TacoReduce(bad));
  bad = args;
  bad.parts = std::span(parts).first(1);
  bad.own = 0;
  invalid(TacoReduce(bad));
  bad = args;
  bad.out = nullptr;
  invalid(TacoReduce(bad));
  bad = args;
  bad.out_payload = right.first(right.size() - 1);
  invalid(TacoReduce(bad));
  parts[0] = nullptr;
  invalid(TacoReduce(args));
  EXPECT_TRUE(TacoEncodeFlat(nullptr, Dtype::kF32, 0, params, {}).ok());
  EXPECT_EQ(TacoPayloadBytes(0, params), 0u);
}

}  // namespace
}  // namespace longhaul::codec
