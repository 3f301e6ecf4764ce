// dither writes and restores what its reference does, in the bits that its tables promise, and
// refuses what no encoder writes.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codec/blob.h"
#include "codec/dither/factory.h"
#include "codec/dither/reference.h"
#include "tests/property/codec/random_codecs.h"

namespace longhaul::codec {
namespace {

constexpr uint32_t kHalfBits[] = {2, 3, 4, 6};

dither::Params AnyDither(std::mt19937* generator) {
  return {.half_bits = kHalfBits[Below(generator, 4)], .block = 64u << Below(generator, 3)};
}

std::span<const std::byte> PayloadOf(const std::vector<std::byte>& blob) {
  return std::span(blob).subspan(kBlobHeaderBytes);
}

// Bits, with NaNs of any kind alike.
bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float one, float other) {
    return std::isnan(one) ? std::isnan(other)
                           : std::bit_cast<uint32_t>(one) == std::bit_cast<uint32_t>(other);
  });
}

TEST(Dither, HasTheBytesAndValuesOfTheReference) {
  std::mt19937 generator(48);
  for (int round = 0; round < 400; ++round) {
    const dither::Params params = AnyDither(&generator);
    Shape shape = RandomShape(&generator);
    if (round % 8 == 0) shape.tokens += 150;  // several groups
    const std::vector<float> values = RandomContents(shape.elements(), &generator);
    const Context context = RandomContext(&generator);
    SCOPED_TRACE(fmt::format("round {}: {}, {} x {} x {}", round, dither::CodecString(params),
                             shape.samples, shape.tokens, shape.channels));
    const auto codec = dither::Create(params);
    const std::vector<std::byte> blob =
        MustEncode(*codec, Tensor(Dtype::kF32, shape, values).view(), context);
    const std::vector<std::byte> expected =
        dither::ReferencePayload(values, shape, params, context);
    ASSERT_TRUE(std::ranges::equal(PayloadOf(blob), expected));
    Tensor out(Dtype::kF32, shape);
    ASSERT_TRUE(Decode(*codec, blob, &out).ok());
    ASSERT_TRUE(Same(out.values(), dither::ReferenceValues(expected, shape, params)));
  }
}

// One large element in a block, or all alike, and whatever lies between: values that are not
// normal.
TEST(Dither, NoContentsTakeMoreThanTheMost) {
  std::mt19937 generator(49);
  for (int round = 0; round < 300; ++round) {
    const dither::Params params = AnyDither(&generator);
    const Shape shape{1, 70, params.block};
    std::vector<float> values(shape.elements());
    const uint32_t spikes = 1u << Below(&generator, 8);
    for (size_t first = 0; first < values.size(); first += params.block) {
      for (uint32_t k = 0; k < spikes; ++k) {
        values[first + Below(&generator, params.block)] += Below(&generator, 2) == 0 ? 1.0f : -1.0f;
      }
    }
    const auto codec = dither::Create(params);
    // The encoder itself checks each group.
    MustEncode(*codec, Tensor(Dtype::kF32, shape, values).view(), RandomContext(&generator));
  }
}

TEST(Dither, TakesItsBits) {
  const Shape shape{1, 1024, 1600};
  const std::pair<const char*, double> expected[] = {
      {"dither:bits=1", 1.45}, {"dither:bits=1.5", 1.78}, {"dither", 2.2}, {"dither:bits=3", 3.15}};
  std::mt19937 generator(50);
  std::vector<float> values(shape.elements());
  for (float& value : values) {
    // Sums of 12 uniform numbers, with a scale for every token.
    double sum = -6;
    for (int k = 0; k < 12; ++k) sum += generator() * 0x1p-32;
    value = static_cast<float>(sum);
  }
  for (const auto& [text, bits] : expected) {
    const auto codec = MustParse(text);
    const auto size =
        static_cast<double>(MustEncode(*codec, Tensor(Dtype::kBf16, shape, values).view()).size());
    EXPECT_LE(size * 8 / static_cast<double>(shape.elements()), bits) << text;
    EXPECT_NEAR(static_cast<double>(codec->UsualEncodedBytes(shape)) / size, 1, 0.02) << text;
  }
}

// Frequencies are those of a normal variable, found here by adding up its density.
TEST(Dither, TablesAreThoseOfNormalValues) {
  for (const uint32_t half_bits : kHalfBits) {
    const double step = std::exp2(2.047 - half_bits / 2.0);
    for (const bool outer : {false, true}) {
      const std::vector<uint32_t> table = dither::FrequenciesOf(half_bits, outer);
      const int reach = static_cast<int>(table.size() / 2);
      std::vector<double> shares(table.size());
      double all = 0;
      for (int part = 0; part < 8; ++part) {
        const double sigma = std::exp2((part + 0.5) / 32 - 0.125) / step;
        for (int hundredth = outer ? 25 : 0; hundredth < (outer ? 50 : 25); ++hundredth) {
          const double u = (hundredth + 0.5) / 100;
          for (int place = -4000; place < 4000; ++place) {
            const double t = place * sigma / 500;
            const double density = std::exp(-t * t / (2 * sigma * sigma)) / sigma * (sigma / 500);
            const auto m = static_cast<int>(std::floor(t + u));
            const bool escapes = m < -reach || m >= reach;
            shares[escapes ? table.size() - 1 : static_cast<size_t>(m + reach)] += density;
            all += density;
          }
        }
      }
      uint32_t sum = 0;
      for (size_t k = 0; k < table.size(); ++k) {
        sum += table[k];
        EXPECT_NEAR(table[k] / 4096.0, shares[k] / all, 0.004) << half_bits << " " << k;
      }
      EXPECT_EQ(sum, 4096u);
    }
  }
}

TEST(Dither, BlobsThatNobodyWroteAreRefused) {
  const Shape shape{1, 100, 128};
  const dither::Params params;
  const auto codec = dither::Create(params);
  const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 51));
  const std::vector<std::byte> good = MustEncode(*codec, in.view());
  const dither::Layout layout = dither::MakeLayout(shape, params);
  ASSERT_EQ(layout.groups, 2u);
  Tensor out(Dtype::kF32, shape);
  ASSERT_TRUE(Decode(*codec, good, &out).ok());
  const auto refused = [&](const std::vector<std::byte>& blob) {
    return Decode(*codec, blob, &out).code() == absl::StatusCode::kInvalidArgument;
  };
  const auto with = [&](uint64_t at, std::vector<uint8_t> bytes) {
    std::vector<std::byte> blob = good;
    std::memcpy(&blob[kBlobHeaderBytes + at], bytes.data(), bytes.size());
    return blob;
  };
  EXPECT_TRUE(refused(with(0, {1, 2, 3, 4}))) << "other noise has other tables";
  EXPECT_TRUE(refused(with(layout.ends, {0, 0}))) << "the first group has no words";
  EXPECT_TRUE(refused(with(layout.ends + 7, {0xff}))) << "very many words";
  EXPECT_TRUE(refused(with(layout.ends + 8, {0, 0}))) << "no words at all";
  EXPECT_TRUE(refused(with(layout.ends + 15, {0x80}))) << "sizes that overflow";
  EXPECT_TRUE(refused(with(layout.exponents + 2, {0xe8, 0x03}))) << "an exponent of 1000";
  EXPECT_TRUE(refused(with(layout.states, {0xff, 0xff, 0, 0}))) << "a state below the least";
  EXPECT_TRUE(refused(with(layout.states + 4 * 31, {1, 0, 1, 0}))) << "another state";
  EXPECT_TRUE(refused(with(layout.words, {0x5a, 0x5a, 0x5a}))) << "other words";
  // A header that counts as many bytes as there are.
  const auto resized = [&](size_t payload) {
    std::vector<std::byte> blob = good;
    blob.resize(kBlobHeaderBytes + payload);
    const uint64_t bytes = payload;
    std::memcpy(&blob[kPayloadBytesOffset], &bytes, sizeof(bytes));
    return blob;
  };
  EXPECT_TRUE(refused(resized(layout.words - 1)));
  EXPECT_TRUE(refused(resized(layout.words)));
  EXPECT_TRUE(refused(resized(good.size() - kBlobHeaderBytes - 16)));
  EXPECT_TRUE(refused(resized(good.size() - kBlobHeaderBytes + 16)));
}

}  // namespace
}  // namespace longhaul::codec
