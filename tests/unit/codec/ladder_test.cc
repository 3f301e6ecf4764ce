#include "codec/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codec/registry.h"
#include "tests/conformance/codec/codec_fixture.h"

namespace longhaul::codec {
namespace {

// |x' - x| / |x| of normal values, as many as a boundary has.
double MeasuredError(const Codec& codec) {
  const Shape shape{.samples = 4, .tokens = 128, .channels = 512};
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(shape.elements());
  for (float& value : values) value = normal(random);
  const std::vector<float> decoded =
      RoundTrip(codec, Tensor(Dtype::kF32, shape, values), Dtype::kF32);
  double lost = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    lost += std::pow(double{decoded[i]} - double{values[i]}, 2);
    all += std::pow(double{values[i]}, 2);
  }
  return std::sqrt(lost / all);
}

TEST(Ladder, SaysWhatItsCodecsLose) {
  for (const auto ladder :
       {LadderOfActivations(true), LadderOfActivations(false), LadderOfGradients()}) {
    for (const Rung& rung : ladder) {
      const auto& codec = rung.codec.Get();
      ASSERT_TRUE(codec.ok()) << codec.status();
      EXPECT_EQ((*codec)->name(), ToString(rung.codec)) << "not canonical";
      const double error = MeasuredError(**codec);
      EXPECT_NEAR(error, rung.error, 0.02 * rung.error) << ToString(rung.codec);
    }
  }
}

TEST(Ladder, EachRungLosesMoreAndSendsLess) {
  const Shape shape{.samples = 1, .tokens = 1024, .channels = 1600};
  for (const auto ladder :
       {LadderOfActivations(true), LadderOfActivations(false), LadderOfGradients()}) {
    EXPECT_EQ(ladder.front().error, 0);
    for (size_t i = 1; i < ladder.size(); ++i) {
      EXPECT_GT(ladder[i].error, ladder[i - 1].error);
      const auto bytes = [&](const Rung& rung) {
        return rung.codec.Get().value()->UsualEncodedBytes(shape);
      };
      EXPECT_LT(bytes(ladder[i]), bytes(ladder[i - 1])) << ToString(ladder[i].codec);
    }
  }
}

TEST(Ladder, EndsWhereCodecsLoseTooMuch) {
  const auto names = [](double error) {
    return ToString(RungsWithin(LadderOfActivations(/*by_tokens=*/false), error).back().codec);
  };
  EXPECT_EQ(names(0), "none");
  EXPECT_EQ(names(0.01), "fixed:bits=8,tile=64,rounding=nearest");
  EXPECT_EQ(names(0.16), "gauss:bits=4,block=128");
  EXPECT_EQ(names(1), "gauss:bits=2,block=128");
  EXPECT_EQ(RungsWithin(LadderOfActivations(/*by_tokens=*/true), 0.05).back().codec,
            "predict:pairs=0,rate=0.05,prior=4/gauss:bits=5,block=128");
  EXPECT_EQ(RungsWithin(LadderOfGradients(), 0.16).back().codec, "dither:bits=3,block=128");
}

}  // namespace
}  // namespace longhaul::codec
