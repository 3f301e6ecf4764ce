// What every codec promises in codec.h, run over every codec.
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "codec/blob.h"
#include "python_too.h"

namespace longhaul::codec {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class CodecConformance : public ::testing::TestWithParam<std::string> {
 protected:
  // Without tables, predict is the codec behind its '/'.
  std::string family() const { return GetParam().substr(GetParam().find('/') + 1); }
  bool tiled() const {
    return family().find(':') != std::string::npos || family() == "tah" || family() == "gauss" ||
           taco();
  }
  bool taco() const { return family().rfind("taco", 0) == 0; }
  // Elements of a tile that runs over the whole tensor; 0 where tiles end with the tokens.
  size_t flat_block() const {
    if (!taco()) return 0;
    const size_t at = family().find("block=");
    return at == std::string::npos ? 256 : std::stoul(family().substr(at + 6));
  }
  bool gauss() const { return family().rfind("gauss", 0) == 0; }
  bool dither() const { return family().rfind("dither", 0) == 0; }
  // What the coarsest setting of the family keeps of Activations().
  double tolerance() const {
    if (family() == "none") return 0;
    if (!tiled()) return 0.005;
    if (family().rfind("fixed:bits=3", 0) == 0) return 0.7;
    if (family().rfind("gauss:bits=2", 0) == 0 || dither()) return 0.7;
    return family().find("stochastic") != std::string::npos ? 0.6 : 0.35;
  }
  std::shared_ptr<const Codec> codec_ = MustMakeReady(GetParam());
};

TEST_P(CodecConformance, NameParsesToTheSameCodec) {
  const auto again = MustMakeReady(codec_->name());
  EXPECT_EQ(again->name(), codec_->name());
  const Tensor in(Dtype::kF32, {1, 3, 130}, Activations(390, 7));
  EXPECT_EQ(MustEncode(*codec_, in.view()), MustEncode(*again, in.view()));
}

TEST_P(CodecConformance, RoundTripsEveryChannelCountAndDtype) {
  for (const uint32_t channels : {1u, 5u, 31u, 32u, 63u, 64u, 65u, 100u, 128u, 200u, 257u}) {
    const Shape shape{2, 3, channels};
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
      const Tensor in(dtype, shape, Activations(shape.elements(), channels));
      for (const Dtype out : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
        const double slack = out == Dtype::kBf16 ? 0.005 : out == Dtype::kF16 ? 0.001 : 0;
        EXPECT_LE(RelativeL2(in.values(), RoundTrip(*codec_, in, out)), tolerance() + slack)
            << channels << " channels, " << ToString(dtype) << " to " << ToString(out);
      }
    }
  }
}

TEST_P(CodecConformance, WritesTheAnnouncedSizeAndNothingBehindIt) {
  const Shape shape{2, 3, 100};
  const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 1));
  const size_t bytes = codec_->MaxEncodedBytes(shape);
  std::vector<std::byte> out(bytes + 32, std::byte{0x77});
  const AlignedBytes workspace(codec_->WorkspaceBytes(shape));
  EncodeResult result;
  ASSERT_TRUE(codec_->Encode(in.view(), {}, workspace.span(), out, &result).ok());
  EXPECT_EQ(codec_->fixed_size(), codec_->MinEncodedBytes(shape) == bytes);
  if (codec_->fixed_size()) {
    EXPECT_EQ(result.bytes, bytes);
  }
  ASSERT_LE(result.bytes, bytes);
  for (size_t k = bytes; k < out.size(); ++k) EXPECT_EQ(out[k], std::byte{0x77});
}

TEST_P(CodecConformance, OutputDependsOnTheInputAlone) {
  const Shape shape{2, 3, 100};
  const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 1));
  std::vector<std::vector<std::byte>> blobs;
  for (const int fill : {0x00, 0xff}) {
    std::vector<std::byte> out(codec_->MaxEncodedBytes(shape), static_cast<std::byte>(fill));
    const AlignedBytes workspace(codec_->WorkspaceBytes(shape));
    std::memset(workspace.span().data(), fill, workspace.span().size());
    EncodeResult result;
    ASSERT_TRUE(codec_->Encode(in.view(), {}, workspace.span(), out, &result).ok());
    out.resize(result.bytes);
    blobs.push_back(out);
  }
  EXPECT_EQ(blobs[0], blobs[1]);
}

TEST_P(CodecConformance, RefusesBuffersThatDoNotFit) {
  const Shape shape{2, 3, 100};
  Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 1));
  std::vector<std::byte> blob = MustEncode(*codec_, in.view());
  const AlignedBytes workspace(codec_->WorkspaceBytes(shape));
  const auto invalid = [](const Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  };
  EncodeResult result;
  const std::span<std::byte> whole(blob);
  std::vector<std::byte> all(codec_->MaxEncodedBytes(shape));
  invalid(codec_->Encode(in.view(), {}, workspace.span(), std::span(all).first(all.size() - 1),
                         &result));
  invalid(codec_->Encode(in.view(), {}, workspace.span(), {}, &result));
  invalid(codec_->Encode(in.view(), {}, workspace.span(), all, nullptr));
  TensorView view = in.view();
  view.data = nullptr;
  invalid(codec_->Encode(view, {}, workspace.span(), all, &result));
  view.data = static_cast<const char*>(in.view().data) + 1;
  invalid(codec_->Encode(view, {}, workspace.span(), all, &result));
  view = in.view();
  view.dtype = static_cast<Dtype>(9);
  invalid(codec_->Encode(view, {}, workspace.span(), all, &result));
  view = in.view();
  view.shape = {0xffffffff, 0xffffffff, 0xffffffff};
  invalid(codec_->Encode(view, {}, workspace.span(), all, &result));
  if (const size_t needed = codec_->WorkspaceBytes(shape); needed > 0) {
    const AlignedBytes larger(needed + 64);
    invalid(codec_->Encode(in.view(), {}, workspace.span().first(needed - 1), all, &result));
    invalid(codec_->Encode(in.view(), {}, larger.span().subspan(8, needed), all, &result));
  }

  Tensor out(Dtype::kF32, shape);
  invalid(codec_->Decode(whole.first(whole.size() - 1), {}, workspace.span(), out.mutable_view()));
  invalid(codec_->Decode({}, {}, workspace.span(), out.mutable_view()));
  MutableTensorView target = out.mutable_view();
  target.data = nullptr;
  invalid(codec_->Decode(whole, {}, workspace.span(), target));
  target.data = static_cast<char*>(out.mutable_view().data) + 2;
  invalid(codec_->Decode(whole, {}, workspace.span(), target));
  target = out.mutable_view();
  target.shape.channels = 99;
  invalid(codec_->Decode(whole, {}, workspace.span(), target));
}

TEST_P(CodecConformance, EmptyTensorsAreAHeader) {
  for (const Shape shape : {Shape{0, 3, 4}, Shape{3, 0, 4}, Shape{3, 4, 0}, Shape{0, 0, 0}}) {
    EXPECT_EQ(codec_->MaxEncodedBytes(shape), kBlobHeaderBytes);
    const TensorView in{nullptr, Dtype::kF32, shape};
    const std::vector<std::byte> blob = MustEncode(*codec_, in);
    const AlignedBytes workspace(codec_->WorkspaceBytes(shape));
    EXPECT_TRUE(codec_->Decode(blob, {}, workspace.span(), {nullptr, Dtype::kF32, shape}).ok());
  }
}

TEST_P(CodecConformance, NonFiniteInputNeverBecomesNumbers) {
  const Shape shape{2, 3, 130};
  for (const float bad : {kNan, kInf, -kInf}) {
    std::vector<float> values = Activations(shape.elements(), 3);
    const std::vector<size_t> places = {0, 129, 130, 500};
    for (const size_t place : places) values[place] = bad;
    const Tensor in(Dtype::kF32, shape, values);
    uint64_t nonfinite = 0;
    const std::vector<float> out = RoundTrip(*codec_, in, Dtype::kF32, &nonfinite);
    // A block of 256 or more holds the first two.
    const bool wide = family().find("block=256") != std::string::npos ||
                      family().find("block=512") != std::string::npos;
    std::set<size_t> flat_blocks;
    const size_t flat = flat_block();
    for (const size_t place : places) {
      if (flat > 0) flat_blocks.insert(place / flat);
    }
    EXPECT_EQ(nonfinite, taco() ? flat_blocks.size() : places.size() - (wide ? 1 : 0));
    for (const size_t place : places) {
      if (tiled())
        EXPECT_TRUE(std::isnan(out[place]));
      else
        EXPECT_FALSE(std::isfinite(out[place]));
    }
    // Other tiles are numbers: token 2 of sample 0 holds none of the places.
    for (size_t k = 260; k < 390; ++k) {
      if (flat > 0 && flat_blocks.contains(k / flat)) continue;
      EXPECT_TRUE(std::isfinite(out[k])) << k;
    }
    if (taco()) {
      EXPECT_TRUE(std::isfinite(out.back()));
    }
  }
}

TEST_P(CodecConformance, AllNonFiniteIsCountedInFull) {
  const Shape shape{1, 2, 128};
  const Tensor in(Dtype::kBf16, shape, std::vector<float>(256, kNan));
  uint64_t nonfinite = 0;
  for (const float value : RoundTrip(*codec_, in, Dtype::kF32, &nonfinite)) {
    EXPECT_TRUE(std::isnan(value));
  }
  EXPECT_GE(nonfinite, flat_block() >= 256 ? 1u : 2u);
}

TEST_P(CodecConformance, ZerosStayZeros) {
  const Shape shape{1, 2, 100};
  const Tensor in(Dtype::kF32, shape, std::vector<float>(200, 0.0f));
  for (const float value : RoundTrip(*codec_, in, Dtype::kF32)) EXPECT_EQ(value, 0.0f);
}

TEST_P(CodecConformance, ConstantTilesKeepTheirValue) {
  for (const float constant : {1.0f, -3.25f, 1e-30f, -1e30f, 0x1p-126f}) {
    if (family() == "fp16" && std::fabs(constant) != 1.0f && constant != -3.25f) continue;
    const Shape shape{1, 2, 128};
    const Tensor in(Dtype::kF32, shape, std::vector<float>(256, constant));
    if (gauss() || dither()) {
      EXPECT_LE(RelativeL2(in.values(), RoundTrip(*codec_, in, Dtype::kF32)), tolerance());
      continue;
    }
    // One step of the coarsest grid where the value is not on it.
    const bool coarse = family().find("tau=0") != std::string::npos ||
                        family().find("stochastic") != std::string::npos;
    for (const float value : RoundTrip(*codec_, in, Dtype::kF32)) {
      EXPECT_NEAR(value / constant, 1.0f, coarse ? 0.4f : 0.004f);
    }
  }
}

TEST_P(CodecConformance, KeepsDenormals) {
  const Shape shape{1, 1, 64};
  std::vector<float> values(64);
  for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k) * 0x1p-149f;
  const Tensor in(Dtype::kF32, shape, values);
  const std::vector<float> out = RoundTrip(*codec_, in, Dtype::kF32);
  if (family() == "fp16" || family() == "bf16" || family() == "zip") {
    for (const float value : out) EXPECT_LE(std::fabs(value), 0x1p-133f);
  } else {
    EXPECT_GT(*std::max_element(out.begin(), out.end()), 32 * 0x1p-149f);
  }
}

TEST_P(CodecConformance, OneHugeOutlierStaysFinite) {
  const Shape shape{1, 2, 128};
  for (const float huge : {1e30f, -3.3e38f, 60000.0f}) {
    std::vector<float> values = Activations(shape.elements(), 3);
    values[70] = huge;
    const Tensor in(Dtype::kF32, shape, values);
    const std::vector<float> out = RoundTrip(*codec_, in, Dtype::kF32);
    if (family() == "fp16" && huge != 60000.0f) continue;
    for (const float value : out) EXPECT_TRUE(std::isfinite(value));
    // Two bits have levels of 0.45 and 1.5 for what is all of magnitude one.
    const bool coarse = family().rfind("gauss:bits=2", 0) == 0;
    EXPECT_NEAR(out[70] / huge, 1.0f, coarse ? 0.6f : 0.3f);
  }
}

TEST_P(CodecConformance, LossyCodecsMakeNoInfinitiesOfNumbers) {
  if (!tiled()) GTEST_SKIP() << "IEEE 754 conversions overflow to infinity";
  const Shape shape{1, 1, 128};
  std::vector<float> values = Activations(128, 5, 60000);
  for (float& value : values) value = std::clamp(value, -65504.0f, 65504.0f);
  const Tensor half(Dtype::kF16, shape, values);
  for (const float value : RoundTrip(*codec_, half, Dtype::kF16)) {
    EXPECT_TRUE(std::isfinite(value));
  }
  for (float& value : values) value *= 5.19e33f;
  const Tensor wide(Dtype::kF32, shape, values);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    for (const float value : RoundTrip(*codec_, wide, dtype)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(CodecConformance, ThreadsShareACodec) {
  const Shape shape{2, 8, 200};
  const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 11));
  const std::vector<std::byte> expected = MustEncode(*codec_, in.view());
  std::vector<std::vector<std::byte>> blobs(4);
  {
    std::vector<std::jthread> threads;
    for (auto& blob : blobs) {
      threads.emplace_back([&] {
        for (int k = 0; k < 5; ++k) blob = MustEncode(*codec_, in.view());
      });
    }
  }
  for (const auto& blob : blobs) EXPECT_EQ(blob, expected);
}

TEST_P(CodecConformance, StochasticRoundingFollowsTheContext) {
  const Shape shape{1, 8, 200};
  const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 11));
  const std::vector<std::byte> base = MustEncode(*codec_, in.view(), {});
  const bool stochastic = dither() || family().find("stochastic") != std::string::npos;
  std::vector<Context> others(6);
  others[0].seed = 1;
  others[1].step = Step(1);
  others[2].replica = 1;
  others[3].edge = EdgeId(1);
  others[4].direction = Direction::kBackward;
  others[5].microbatch = Microbatch(1);
  for (const Context& context : others) {
    const std::vector<std::byte> blob = MustEncode(*codec_, in.view(), context);
    EXPECT_EQ(blob != base, stochastic);
    Tensor out(Dtype::kF32, shape);
    EXPECT_TRUE(Decode(*codec_, blob, &out).ok());  // without the context
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformance, ::testing::ValuesIn(AllCodecsAndPython()),
                         TestName);

}  // namespace
}  // namespace longhaul::codec
