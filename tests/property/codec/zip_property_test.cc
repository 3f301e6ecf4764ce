// zip restores every bit, keeps to its format, and takes the window that normal numbers want.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codec/blob.h"
#include "codec/tile.h"
#include "codec/zip/format.h"
#include "random_codecs.h"

namespace longhaul::codec {
namespace {

using Bits = std::vector<uint16_t>;

TensorView ViewOf(const Bits& bits) {
  return {bits.data(), Dtype::kBf16, {1, 1, static_cast<uint32_t>(bits.size())}};
}

Bits Unzipped(const std::vector<std::byte>& blob, size_t count) {
  Bits out(count);
  const Status status = MustParse("zip")->Decode(
      blob, {}, {}, {out.data(), Dtype::kBf16, {1, 1, static_cast<uint32_t>(count)}});
  EXPECT_EQ(status, absl::OkStatus());
  return out;
}

Bits Normal(size_t count, double sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, sigma);
  Bits bits(count);
  for (uint16_t& one : bits) one = F32ToBf16(static_cast<float>(normal(random)));
  return bits;
}

// The payload by the words of format.h, number by number.
std::vector<uint8_t> ByDefinition(const Bits& bits) {
  const size_t n = bits.size(), groups = (n + 1023) / 1024;
  std::vector<uint32_t> starts = {0};
  std::vector<uint8_t> lows, signs, escapes;
  std::array<std::vector<uint8_t>, 3> planes;
  for (auto& plane : planes) plane.resize((n + 7) / 8);
  const auto exponent = [&](size_t i) { return bits[i] / 128 % 256; };
  for (size_t g = 0; g < groups; ++g) {
    const size_t first = g * 1024, end = std::min(n, first + 1024);
    std::array<int, 32> of_lanes{};
    for (size_t i = first; i < end; ++i) {
      int& most = of_lanes[(i - first) % 256 / 8];
      most = std::max(most, exponent(i));
    }
    int top = 0;
    for (int t = 0; t < 256; ++t) {
      if (std::ranges::count_if(of_lanes, [t](int most) { return most >= t; }) >= 8) top = t;
    }
    const int low = std::max(top - 6, 0);
    lows.push_back(static_cast<uint8_t>(low));
    for (size_t i = first; i < end; ++i) {
      signs.push_back(static_cast<uint8_t>(bits[i] / 32768 * 128 + bits[i] % 128));
      const int code = exponent(i) - low + 1;
      if (code < 1 || code > 7) continue;
      for (int bit = 0; bit < 3; ++bit) {
        if ((code >> bit & 1) != 0)
          planes[static_cast<size_t>(bit)][i / 8] |= static_cast<uint8_t>(1u << i % 8);
      }
    }
    for (size_t lane = 0; lane < 32; ++lane) {
      for (size_t i = first; i < end; ++i) {
        if ((i - first) % 256 / 8 != lane) continue;
        const int code = exponent(i) - low + 1;
        if (code < 1 || code > 7) escapes.push_back(static_cast<uint8_t>(exponent(i)));
      }
    }
    starts.push_back(static_cast<uint32_t>(escapes.size()));
  }
  std::vector<uint8_t> payload;
  const auto add = [&](const void* data, size_t bytes) {
    const auto* from = static_cast<const uint8_t*>(data);
    payload.insert(payload.end(), from, from + bytes);
    payload.resize((payload.size() + 15) / 16 * 16);
  };
  add(starts.data(), starts.size() * 4);
  add(lows.data(), lows.size());
  add(signs.data(), signs.size());
  for (const auto& plane : planes) add(plane.data(), plane.size());
  add(escapes.data(), escapes.size());
  if (payload.size() < 2 * n) return payload;
  payload.resize(2 * n);
  std::memcpy(payload.data(), bits.data(), 2 * n);
  return payload;
}

void ExpectExact(const Bits& bits, const std::string& what) {
  const std::vector<std::byte> blob = MustEncode(*MustParse("zip"), ViewOf(bits));
  ASSERT_LE(blob.size(), 64 + 2 * bits.size()) << what;
  const std::vector<uint8_t> expected = ByDefinition(bits);
  ASSERT_EQ(blob.size(), 64 + expected.size()) << what;
  ASSERT_EQ(std::memcmp(blob.data() + 64, expected.data(), expected.size()), 0) << what;
  ASSERT_EQ(Unzipped(blob, bits.size()), bits) << what;
}

TEST(Zip, RestoresEveryPattern) {
  Bits all;
  for (int k = 0; k < 65536; ++k) all.push_back(static_cast<uint16_t>(k));
  ExpectExact(all, "in order");
  std::mt19937 random(1);
  std::ranges::shuffle(all, random);
  ExpectExact(all, "in any order");
  // Each among normal numbers, where it is an escape.
  Bits among = Normal(65536 * 16, 1, 2);
  for (size_t k = 0; k < all.size(); ++k) among[k * 16 + k % 16] = all[k];
  ExpectExact(among, "among others");
}

TEST(Zip, RestoresEveryLengthAndWhatIsMeantToBreakIt) {
  std::mt19937 random(3);
  for (uint32_t round = 0; round < 1500; ++round) {
    const size_t count = 1 + (round < 400 ? round * 7 : random() % 9000);
    Bits bits = Normal(count, std::ldexp(1.0, static_cast<int>(random() % 200) - 100), round);
    const uint32_t kind = random() % 8;
    for (size_t k = 0; k < count; ++k) {
      if (kind == 1) bits[k] = static_cast<uint16_t>(random());  // any bits
      if (kind == 2)
        bits[k] = static_cast<uint16_t>(k % 2 == 0 ? 0 : 0x7f80);  // no window has both
      if (kind == 3) bits[k] = 0;
      if (kind == 4 && random() % 3 == 0) bits[k] = 0;  // as behind a ReLU
      if (kind == 5 && random() % 500 == 0) bits[k] = static_cast<uint16_t>(random());
      if (kind == 6 && k % 1024 / 8 % 4 == 0) bits[k] = 0x7f00;  // in 8 lanes of each group
      if (kind == 7 && k / 1024 % 2 == 0) bits[k] = static_cast<uint16_t>(0x8000 + 128 * (k % 256));
    }
    ExpectExact(bits, fmt::format("round {}, {} of kind {}", round, count, kind));
    if (HasFatalFailure()) return;
  }
}

// Just below and just above what is left: escapes up to the last byte, and the elements themselves.
TEST(Zip, IsNeverLargerThanTheElements) {
  for (const size_t count : {size_t{300}, size_t{1024}, size_t{5000}}) {
    const zip::Layout layout = zip::MakeLayout(count);
    ASSERT_TRUE(layout.may_be_smaller);
    for (const uint64_t escapes :
         {layout.most_escapes - 1, layout.most_escapes, layout.most_escapes + 1, uint64_t{count}}) {
      Bits bits(count, 0x3f80);
      // In lanes of a group's later eights the window stays.
      uint64_t made = 0;
      for (size_t k = 0; k < count && made < escapes; ++k) {
        if (k % 8 == 0) continue;
        bits[k] = static_cast<uint16_t>(128 * (k % 50));
        ++made;
      }
      if (made < escapes) continue;
      ExpectExact(bits, fmt::format("{} with {} escapes", count, escapes));
      const std::vector<std::byte> blob = MustEncode(*MustParse("zip"), ViewOf(bits));
      EXPECT_EQ(blob.size() == 64 + 2 * count, escapes > layout.most_escapes);
    }
  }
}

TEST(Zip, NormalNumbersOfEverySizeTakeElevenBitsAndAQuarter) {
  constexpr size_t kCount = 1 << 18;
  for (int exponent = -100; exponent <= 100; exponent += 7) {
    for (const double fraction : {1.0, 1.25, 1.5, 1.75}) {
      const Bits bits = Normal(kCount, std::ldexp(fraction, exponent), 5);
      const std::vector<std::byte> blob = MustEncode(*MustParse("zip"), ViewOf(bits));
      EXPECT_GE(2.0 * kCount / static_cast<double>(blob.size()), 1.41)
          << fraction << " " << exponent;
      // Against the best window for all of them, which is known afterwards.
      std::array<uint64_t, 256> counts{};
      for (const uint16_t one : bits) ++counts[one >> 7 & 255];
      uint64_t best = 0;
      for (size_t low = 0; low + 7 <= 256; ++low) {
        uint64_t covered = 0;
        for (size_t k = low; k < low + 7; ++k) covered += counts[k];
        best = std::max(best, covered);
      }
      const zip::Layout layout = zip::MakeLayout(kCount);
      uint32_t escapes = 0;
      std::memcpy(&escapes, blob.data() + 64 + 4 * layout.groups, sizeof(escapes));
      EXPECT_LE(escapes, kCount - best + kCount / 100) << fraction << " " << exponent;
    }
  }
}

TEST(Zip, ChannelsOfOtherSizesAndOutliersDoNotSpoilTheRest) {
  constexpr size_t kCount = 1 << 18;
  Bits bits = Normal(kCount, 1, 6);
  for (size_t k = 0; k < kCount; k += 997) bits[k] = F32ToBf16(1e6f);
  const size_t with_outliers = MustEncode(*MustParse("zip"), ViewOf(bits)).size();
  EXPECT_GE(2.0 * kCount / static_cast<double>(with_outliers), 1.40);
  // Rows of which each has a size of its own: a window of the whole tensor would not do.
  for (size_t k = 0; k < kCount; ++k) {
    const auto value = std::bit_cast<float>(uint32_t{bits[k]} << 16);
    bits[k] = F32ToBf16(std::ldexp(value, static_cast<int>(k / 1024 % 64) - 32));
  }
  const size_t of_rows = MustEncode(*MustParse("zip"), ViewOf(bits)).size();
  EXPECT_GE(2.0 * kCount / static_cast<double>(of_rows), 1.40);
}

TEST(Zip, OtherFormatsAreRoundedToBf16) {
  std::mt19937 random(7);
  const std::vector<float> values = RandomContents(5000, &random);
  Bits rounded;
  for (const float value : values) rounded.push_back(F32ToBf16(value));
  const TensorView view{values.data(), Dtype::kF32, {1, 1, 5000}};
  const std::vector<std::byte> blob = MustEncode(*MustParse("zip"), view);
  EXPECT_EQ(Unzipped(blob, 5000), rounded);
}

TEST(Zip, BlobsThatNobodyWroteAreRefused) {
  const Bits bits = Normal(5000, 1, 8);
  const std::vector<std::byte> good = MustEncode(*MustParse("zip"), ViewOf(bits));
  const zip::Layout layout = zip::MakeLayout(bits.size());
  const auto decode = [&](const std::vector<std::byte>& blob) {
    Bits out(bits.size());
    return MustParse("zip")->Decode(blob, {}, {}, {out.data(), Dtype::kBf16, {1, 1, 5000}});
  };
  ASSERT_EQ(decode(good), absl::OkStatus());
  const auto with = [&](uint64_t at, std::byte value) {
    std::vector<std::byte> blob = good;
    blob[64 + at] = value;
    return blob;
  };
  EXPECT_FALSE(decode(with(0, std::byte{1})).ok()) << "the first start";
  EXPECT_FALSE(decode(with(4, std::byte{0xff})).ok()) << "a start";
  EXPECT_FALSE(decode(with(4 * layout.groups, std::byte{0})).ok()) << "all escapes";
  EXPECT_FALSE(decode(with(4 * layout.groups + 3, std::byte{0xff})).ok()) << "very many escapes";
  // Eight elements lose their codes.
  std::vector<std::byte> blob = good;
  for (uint64_t plane = 0; plane < zip::kPlanes; ++plane) {
    blob[64 + layout.codes + plane * layout.plane_bytes] = std::byte{0};
  }
  EXPECT_FALSE(decode(blob).ok());
}

}  // namespace
}  // namespace longhaul::codec
