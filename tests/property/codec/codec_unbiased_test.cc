// Stochastic rounding errs neither up or down nor towards zero or away from it. The errors of many
// draws are added up in two ways: as they are, and with the sign of the element. The first sum
// alone would miss a codec that makes every element smaller: tensors have as many of either sign.
#include <random>

#include "codec/fixed/factory.h"
#include "codec/fixed/reference.h"
#include "codec/rounding.h"
#include "tests/conformance/codec/codec_fixture.h"

namespace longhaul::codec {
namespace {

constexpr double kMostSigmas = 4.5;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kDraws = 4'000'000;  // the sanitizers look at other things
#else
constexpr uint64_t kDraws = 30'000'000;
#endif

// Sums of errors, in units of what chance makes of as many independent errors.
struct Drift {
  double upward = 0, outward = 0;
};

Drift MeasureDrift(const Codec& codec, uint64_t draws) {
  const Shape shape{1, 512, 1024};
  const std::vector<float> values = Activations(shape.elements(), 78);
  const Tensor in(Dtype::kF32, shape, values);
  double upward = 0, outward = 0, squares = 0;
  for (uint64_t round = 0; round * shape.elements() < draws; ++round) {
    Context context;
    context.step = Step(round);
    Tensor out(Dtype::kF32, shape);
    EXPECT_TRUE(Decode(codec, MustEncode(codec, in.view(), context), &out).ok());
    const auto* const got = static_cast<const float*>(out.view().data);
    const float* const wanted = values.data();
    for (size_t k = 0; k < shape.elements(); ++k) {
      const double error = double{got[k]} - double{wanted[k]};
      upward += error;
      outward += wanted[k] < 0 ? -error : error;
      squares += error * error;
    }
  }
  EXPECT_GT(squares, 0);
  return {.upward = upward / std::sqrt(squares), .outward = outward / std::sqrt(squares)};
}

// Decodes values that are off by `shift`, and a two-hundredth nearer to zero where `shrinks`.
class CrookedCodec final : public Codec {
 public:
  CrookedCodec(std::unique_ptr<const Codec> codec, float shift, bool shrinks)
      : codec_(std::move(codec)), shift_(shift), factor_(shrinks ? 0.995f : 1.0f) {}

  const std::string& name() const override { return codec_->name(); }
  CodecKind kind() const override { return codec_->kind(); }
  size_t MaxEncodedBytes(const Shape& shape) const override {
    return codec_->MaxEncodedBytes(shape);
  }
  bool fixed_size() const override { return codec_->fixed_size(); }
  size_t WorkspaceBytes(const Shape& shape) const override { return codec_->WorkspaceBytes(shape); }
  Status Encode(const TensorView& in, const Context& context, std::span<std::byte> workspace,
                std::span<std::byte> out, EncodeResult* result) const override {
    return codec_->Encode(in, context, workspace, out, result);
  }
  Status Decode(std::span<const std::byte> blob, const Context& context,
                std::span<std::byte> workspace, const MutableTensorView& out) const override {
    Status status = codec_->Decode(blob, context, workspace, out);
    auto* const values = static_cast<float*>(out.data);
    for (size_t k = 0; k < out.shape.elements(); ++k) values[k] = (values[k] + shift_) * factor_;
    return status;
  }

 private:
  const std::unique_ptr<const Codec> codec_;
  const float shift_, factor_;
};

class Unbiased : public ::testing::TestWithParam<std::string> {};

TEST_P(Unbiased, ErrorsAddUpToZeroEitherWay) {
  const Drift drift = MeasureDrift(*MustParse(GetParam()), kDraws);
  RecordProperty("upward", std::to_string(drift.upward));
  RecordProperty("outward", std::to_string(drift.outward));
  EXPECT_LT(std::abs(drift.upward), kMostSigmas);
  EXPECT_LT(std::abs(drift.outward), kMostSigmas);
}

// The mean of many encodings of one tensor, each with its own step, comes as near to every element
// as chance allows; nearest rounding does not.
TEST_P(Unbiased, EveryElementIsItsMean) {
  const auto codec = MustParse(GetParam());
  constexpr int kRounds = 400;
  const Shape shape{1, 8, 200};
  const std::vector<float> values = Activations(shape.elements(), 77);
  const Tensor in(Dtype::kF32, shape, values);
  std::vector<double> sum(values.size());
  std::vector<double> squares(values.size());
  for (int round = 0; round < kRounds; ++round) {
    Context context;
    context.step = Step(static_cast<uint64_t>(round));
    Tensor out(Dtype::kF32, shape);
    ASSERT_TRUE(Decode(*codec, MustEncode(*codec, in.view(), context), &out).ok());
    const std::vector<float> decoded = out.values();
    for (size_t k = 0; k < values.size(); ++k) {
      const double error = double{decoded[k]} - double{values[k]};
      sum[k] += error;
      squares[k] += error * error;
    }
  }
  double bias = 0;
  double variance = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    bias += std::pow(sum[k] / kRounds, 2);
    variance += squares[k] / kRounds;
  }
  // An unbiased mean of n draws has variance / n left; its spread over 1,600 elements is small.
  EXPECT_GT(variance, 0);
  EXPECT_NEAR(bias / (variance / kRounds), 1.0, 0.25);
}

INSTANTIATE_TEST_SUITE_P(
    Stochastic, Unbiased,
    ::testing::Values("fixed:bits=3,rounding=stochastic", "fixed:bits=4,rounding=stochastic",
                      "fixed:bits=10,rounding=stochastic", "tah:rounding=stochastic",
                      "tah:rounding=stochastic,p=0,tau=inf", "dither:bits=1", "dither"),
    TestName);

// Draws have few bits, and so small a bias as theirs would need billions of draws. These two tests
// find it: codes are exactly those of the definition, and its mean over all draws is exact.

int FractionOf(uint32_t bits) {
  return std::min(16, 23 - static_cast<int>(bits));
}

// The code of `v` as fixed/format.h defines it.
int StochasticCode(float v, float scale, uint16_t number, uint32_t bits) {
  const int fraction = FractionOf(bits);
  const int top = (1 << (bits - 1)) - 1;
  const float one = std::ldexp(1.0f, fraction);
  const float limit = static_cast<float>(top) * one;
  const float w = scale == 0 ? 0 : std::clamp(v * (one / scale), -limit, limit);
  const float origin = 0x1p23f + static_cast<float>((top + 1) << fraction);
  const float sum = w + (origin + static_cast<float>(number >> (16 - fraction)));
  return (static_cast<int>(sum - 0x1p23f) >> fraction) - (top + 1);
}

TEST(StochasticRounding, CodesAreThoseOfTheDefinition) {
  for (uint32_t bits = fixed::kMinBits; bits <= fixed::kMaxBits; ++bits) {
    for (const uint32_t tile : {32u, 64u, 128u}) {
      const fixed::Params params{bits, tile, Rounding::kStochastic};
      const Shape shape{2, 40, 3 * tile};
      Context context;
      context.seed = bits + tile;
      const std::vector<float> values = Activations(shape.elements(), bits * tile);
      const std::vector<std::byte> blob =
          MustEncode(*fixed::Create(params), Tensor(Dtype::kF32, shape, values).view(), context);
      const fixed::ReferenceResult got = fixed::Unpack(blob, shape, params);
      const RoundingNoise noise(context);
      std::vector<uint16_t> numbers(shape.elements());
      noise.Fill(0, static_cast<int>(numbers.size()), numbers.data());
      for (size_t k = 0; k < values.size(); ++k) {
        const size_t sample = k / (shape.elements() / shape.samples);
        const float v = std::ldexp(values[k], got.exponents[sample]);
        const auto scale = static_cast<float>(got.tiles[k / tile].scale);
        ASSERT_EQ(got.tiles[k / tile].codes[k % tile], StochasticCode(v, scale, numbers[k], bits))
            << bits << " bits, tile " << tile << ", element " << k;
      }
    }
  }
}

// Errors of the mean code over all draws, summed over some quotients as above, in units of the
// bound of formats.md.
template <class Code>
Drift ErrorsOverAllDraws(uint32_t bits, Code&& code) {
  constexpr int kQuotients = 200;
  constexpr float kScale = 0.3017578125f;  // of fp16
  std::mt19937 generator(bits);
  const auto top = static_cast<float>((1 << (bits - 1)) - 1);
  const double bound = std::ldexp(1.0, -FractionOf(bits) - 1);
  Drift drift;
  for (int round = 0; round < kQuotients; ++round) {
    const float v = std::uniform_real_distribution<float>(-top, top)(generator) * kScale;
    const double quotient = double{v} / kScale;
    int64_t sum = 0;
    for (int number = 0; number < 1 << 16; ++number) {
      sum += code(v, kScale, static_cast<uint16_t>(number), bits);
    }
    const double error = static_cast<double>(sum) / 65536 - quotient;
    EXPECT_LE(std::abs(error), 2 * bound) << bits << " bits " << quotient;
    drift.upward += error / bound / kQuotients;
    drift.outward += (v < 0 ? -error : error) / bound / kQuotients;
  }
  return drift;
}

// Middles of two multiples of 2^-n count as the upper one: from 7 bits on some of the quotients
// are, which is a quarter of the bound.
constexpr double kMostOfBound = 0.5;

TEST(StochasticRounding, MeanOverAllDrawsIsTheQuotient) {
  for (uint32_t bits = fixed::kMinBits; bits <= fixed::kMaxBits; ++bits) {
    const Drift drift = ErrorsOverAllDraws(bits, StochasticCode);
    EXPECT_LT(std::abs(drift.upward), kMostOfBound) << bits << " bits";
    EXPECT_LT(std::abs(drift.outward), kMostOfBound) << bits << " bits";
  }
}

TEST(UnbiasedCanary, DrawsThatAreNotInTheMiddleAreFound) {
  const auto cut_off = [](float v, float scale, uint16_t number, uint32_t /*bits*/) {
    return static_cast<int>(std::floor(double{v} / scale + number / 65536.0));
  };
  EXPECT_GT(std::abs(ErrorsOverAllDraws(4, cut_off).upward), kMostOfBound);
  const auto towards_zero = [&](float v, float scale, uint16_t number, uint32_t bits) {
    const int code = cut_off(std::abs(v), scale, number, bits);
    return v < 0 ? -code : code;
  };
  EXPECT_LT(ErrorsOverAllDraws(4, towards_zero).outward, -kMostOfBound);
}

// What tah adds to its quotients.
TEST(StochasticRounding, MiddlesRoundAsManyUpAsTheFractionSays) {
  std::mt19937 generator(5);
  for (int round = 0; round < 200; ++round) {
    const double fraction = std::uniform_real_distribution<double>(0, 1)(generator);
    int up = 0;
    for (int number = 0; number < 1 << 16; ++number) {
      up += fraction + RoundingNoise::Middle(static_cast<uint16_t>(number)) >= 1 ? 1 : 0;
    }
    EXPECT_NEAR(up / 65536.0, fraction, 0x1p-17);
  }
}

TEST(UnbiasedCanary, ABiasTowardsZeroIsFound) {
  const CrookedCodec codec(MustParse("fixed:bits=4,rounding=stochastic"), 0, /*shrinks=*/true);
  const Drift drift = MeasureDrift(codec, 4'000'000);
  EXPECT_LT(drift.outward, -kMostSigmas);
  // Which the sum of plain errors does not see.
  EXPECT_LT(std::abs(drift.upward), kMostSigmas);
}

TEST(UnbiasedCanary, AShiftIsFound) {
  const CrookedCodec codec(MustParse("fixed:bits=4,rounding=stochastic"), 0.005f,
                           /*shrinks=*/false);
  EXPECT_GT(MeasureDrift(codec, 4'000'000).upward, kMostSigmas);
}

TEST(UnbiasedCanary, NearestRoundingIsFound) {
  const Drift drift = MeasureDrift(*MustParse("fixed:bits=4"), kDraws);
  EXPECT_GT(std::max(std::abs(drift.upward), std::abs(drift.outward)), kMostSigmas);
}

}  // namespace
}  // namespace longhaul::codec
