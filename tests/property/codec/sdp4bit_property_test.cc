// Sections of sdp4bit against the reference in double, and on every instruction set.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codec/sdp4bit/cpu/kernels.h"
#include "codec/sdp4bit/format.h"
#include "codec/sdp4bit/reference.h"
#include "codec/simd/targets.h"
#include "random_codecs.h"

namespace longhaul::codec::sdp4bit {
namespace {

std::vector<float> Heavy(std::mt19937* random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = std::pow(normal(*random), 3.0f);
  return values;
}

std::vector<std::byte> Section(std::span<const float> values, uint32_t group,
                               const RoundingNoise* noise) {
  std::vector<std::byte> section(SectionBytes(values.size(), group), std::byte{0xa5});
  cpu::Encode(values, group, noise, 64, section.data());
  return section;
}

TEST(Sdp4bit, IsOfTheNeighboursThatTheReferenceNames) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> values = Heavy(&random, 1 + Below(&random, 5000));
    const uint32_t group = round % 2 == 0 ? kGradientGroup : kDifferenceGroup;
    const RoundingNoise noise({.seed = static_cast<uint64_t>(round)});
    const auto section = Section(values, group, round % 3 == 0 ? nullptr : &noise);
    std::vector<float> decoded(values.size());
    cpu::Decode(section.data(), group, decoded);
    const auto expected = reference::Quantized(values, group);
    for (size_t k = 0; k < values.size(); ++k) {
      const double slack = expected[k].step * 1e-5;
      ASSERT_TRUE(std::fabs(decoded[k] - expected[k].below) <= slack ||
                  std::fabs(decoded[k] - expected[k].above) <= slack)
          << decoded[k] << " of " << values[k];
      if (round % 3 == 0) {
        ASSERT_LE(std::fabs(decoded[k] - values[k]), expected[k].step / 2 + slack);
      }
    }
  }
}

TEST(Sdp4bit, IsTheSameSectionInParts) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const std::vector<float> values = Heavy(&random, 1 + Below(&random, 20'000));
    const uint32_t group = round % 2 == 0 ? kGradientGroup : kDifferenceGroup;
    const RoundingNoise drawn({.seed = static_cast<uint64_t>(round)});
    const RoundingNoise* const noise = round % 3 == 0 ? nullptr : &drawn;
    const std::vector<std::byte> whole = Section(values, group, noise);
    std::vector<std::byte> section(whole.size(), std::byte{0xa5});
    std::vector<float> expected(values.size()), decoded(values.size());
    cpu::Decode(whole.data(), group, expected);
    const size_t of_part = kDifferenceGroup * (1 + Below(&random, 3));
    // From the last part to the first: none needs another.
    for (size_t first = (values.size() - 1) / of_part * of_part;; first -= of_part) {
      const size_t count = std::min(of_part, values.size() - first);
      const cpu::Part part{.first = first, .of = values.size(), .group = group};
      cpu::Encode(std::span(values).subspan(first, count), part, noise, 64 + first, section.data());
      cpu::Decode(whole.data(), part, std::span(decoded).subspan(first, count));
      if (first == 0) break;
    }
    ASSERT_EQ(section, whole) << values.size() << " in groups of " << group;
    ASSERT_EQ(decoded, expected);
  }
}

TEST(Sdp4bit, TransformsAsTheReferenceDoesAndBack) {
  std::mt19937 random(2);
  const std::vector<float> values = Heavy(&random, 32 * 50);
  std::vector<float> transformed = values;
  cpu::Transform(transformed);
  const std::vector<double> expected = reference::Transform(values);
  for (size_t k = 0; k < values.size(); ++k) ASSERT_NEAR(transformed[k], expected[k], 1e-4);
  cpu::TransformBack(transformed);
  for (size_t k = 0; k < values.size(); ++k) ASSERT_NEAR(transformed[k], values[k], 1e-5);
}

TEST(Sdp4bit, HasTheSizesOfThePaper) {
  constexpr uint64_t kMany = uint64_t{1} << 20;
  EXPECT_EQ(SectionBytes(kMany, kGradientGroup) * 8, kMany * 17 / 4);            // 4.25 bits
  EXPECT_EQ(SectionBytes(kMany, kDifferenceGroup) * 8, kMany * 4 + kMany / 64);  // 4.016
}

TEST(Sdp4bit, GivesTheSameBytesOnEveryTarget) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> values = Heavy(&random, 1 + Below(&random, 9000));
    if (round % 4 == 0) values[Below(&random, static_cast<uint32_t>(values.size()))] = NAN;
    if (round % 5 == 0) values[0] = std::numeric_limits<float>::denorm_min();
    const uint32_t group = round % 2 == 0 ? kGradientGroup : kDifferenceGroup;
    const RoundingNoise noise({.seed = 9, .step = Step(static_cast<uint64_t>(round))});
    std::vector<std::byte> first_section;
    std::vector<float> first_decoded, first_transformed;
    for (const std::string& target : KernelTargets()) {
      ASSERT_TRUE(UseKernelTarget(target).ok());
      const auto section = Section(values, group, round % 3 == 0 ? nullptr : &noise);
      std::vector<float> decoded(values.size());
      cpu::Decode(section.data(), group, decoded);
      std::vector<float> transformed = values;
      transformed.resize(Transformed(values.size()));
      if (round % 4 != 0) cpu::Transform(transformed);
      if (first_section.empty()) {
        first_section = section;
        first_decoded = decoded;
        first_transformed = transformed;
      }
      ASSERT_TRUE(section == first_section) << target;
      ASSERT_EQ(std::memcmp(decoded.data(), first_decoded.data(), 4 * decoded.size()), 0) << target;
      ASSERT_EQ(std::memcmp(transformed.data(), first_transformed.data(), 4 * transformed.size()),
                0)
          << target;
    }
  }
  ASSERT_TRUE(UseKernelTarget("").ok());
}

TEST(Sdp4bit, AGroupThatIsNotFiniteIsNoNumber) {
  std::vector<float> values(300, 1.0f);
  values[130] = std::numeric_limits<float>::infinity();
  std::vector<float> decoded(300);
  cpu::Decode(Section(values, 128, nullptr).data(), 128, decoded);
  for (size_t k = 0; k < 300; ++k) EXPECT_EQ(std::isnan(decoded[k]), k / 128 == 1) << k;
}

}  // namespace
}  // namespace longhaul::codec::sdp4bit
