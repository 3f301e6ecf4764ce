// A stage and codecs that sleep for what others compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "codec/blob.h"
#include "codec/registry.h"
#include "worker/pipeline/replay_codec.h"
#include "worker/stage/noise.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

constexpr codec::Shape kReplayedShape{2, 16, 64};

StageOptions ReplayOptions(uint32_t first_layer, uint32_t layers) {
  StageOptions options;
  options.model = {.layers = 4, .hidden = 64, .heads = 4, .context = 16};
  options.train.microbatches = 2;
  options.train.microbatch_size = 2;
  options.first_layer = first_layer;
  options.layers = layers;
  options.first = first_layer == 0;
  options.last = first_layer + layers == 4;
  options.replay = ReplaySpec{.source = "a test",
                              .embedding_forward = absl::Milliseconds(1),
                              .block_forward = absl::Milliseconds(2),
                              .block_backward = absl::Milliseconds(3),
                              .head_backward = absl::Milliseconds(4),
                              .optimizer = absl::Milliseconds(8)};
  return options;
}

// It takes at least that; how much longer is the machine's affair.
template <class Call>
auto ExpectTakes(absl::Duration least, Call call) {
  const MonoTime begin = Now();
  auto result = call();
  EXPECT_GE(Now() - begin, least);
  return result;
}

TEST(ReplayStage, SleepsForItsLayers) {
  auto stage = *Stage::Create(ReplayOptions(0, 2));
  const auto out =
      ExpectTakes(absl::Milliseconds(5), [&] { return stage->Forward(Microbatch(0), {}); });
  ASSERT_TRUE(out.ok() && out->has_value());
  EXPECT_EQ((*out)->view.shape, kReplayedShape);
  const auto up = ExpectTakes(absl::Milliseconds(6),
                              [&] { return stage->Backward(Microbatch(0), (*out)->view); });
  ASSERT_TRUE(up.ok());
  EXPECT_FALSE(up->has_value());
  EXPECT_TRUE(ExpectTakes(absl::Milliseconds(4), [&] {
                return stage->OptimizerStep(Step(1), 1e-3, 1);
              }).ok());
  EXPECT_EQ(stage->AddSquaredGradientNorm(0).value().sum, 0);
  EXPECT_EQ(stage->parameter_count(), 0u);
}

TEST(ReplayStage, TheLastOneHasTheHead) {
  auto stage = *Stage::Create(ReplayOptions(2, 2));
  EXPECT_FALSE(stage->Forward(Microbatch(0), {})->has_value());
  const auto up =
      ExpectTakes(absl::Milliseconds(10), [&] { return stage->Backward(Microbatch(0), {}); });
  EXPECT_TRUE(up->has_value());
}

TEST(ReplayStage, RecomputationGoesForwardAgain) {
  StageOptions options = ReplayOptions(2, 1);
  options.last = false;
  options.recompute = Recompute::kStage;
  auto stage = *Stage::Create(options);
  ASSERT_TRUE(stage->Forward(Microbatch(0), {}).ok());
  (void)ExpectTakes(absl::Milliseconds(5), [&] { return stage->Backward(Microbatch(0), {}); });
}

TEST(ReplayStage, RefusesWhatTheScheduleCannotAskFor) {
  auto stage = *Stage::Create(ReplayOptions(0, 2));
  EXPECT_FALSE(stage->Backward(Microbatch(0), {}).ok());
  ASSERT_TRUE(stage->Forward(Microbatch(0), {}).ok());
  EXPECT_FALSE(stage->Forward(Microbatch(0), {}).ok());
}

TEST(ReplayStage, GoesOnFromItsSnapshot) {
  auto stage = *Stage::Create(ReplayOptions(0, 2));
  ASSERT_TRUE(stage->OptimizerStep(Step(7), 1e-3, 1).ok());
  const StageSnapshot snapshot = stage->Snapshot().value();
  EXPECT_EQ(snapshot.step, 7u);
  EXPECT_TRUE(snapshot.parameters.empty());
  EXPECT_TRUE((*Stage::Create(ReplayOptions(0, 2)))->Restore(snapshot).ok());
}

class ReplayCodecTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ReplayCodecTest, ResendsOneRealBlob) {
  const std::shared_ptr<const codec::Codec> real = *codec::ParseCodec(GetParam());
  const ReplaySpec::CodecTimes times{"x", absl::Milliseconds(2), absl::Milliseconds(3)};
  const auto replayed = MakeReplayCodec(real, times, kReplayedShape);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ((*replayed)->name(), real->name());
  AlignedBuffer blob((*replayed)->MaxEncodedBytes(kReplayedShape));
  codec::EncodeResult result;
  EXPECT_TRUE(ExpectTakes(times.encode, [&] {
                return (*replayed)->Encode({}, {}, {}, blob.span(), &result);
              }).ok());
  // What the real codec makes of the same noise.
  const BoundaryTensor noise = NoiseTensor(kReplayedShape);
  AlignedBuffer workspace(real->WorkspaceBytes(kReplayedShape)),
      wanted(real->MaxEncodedBytes(kReplayedShape));
  codec::EncodeResult real_result;
  ASSERT_TRUE(real->Encode(noise.view, {}, workspace.span(), wanted.span(), &real_result).ok());
  ASSERT_EQ(result.bytes, real_result.bytes);
  EXPECT_EQ(std::memcmp(blob.span().data(), wanted.span().data(), result.bytes), 0);

  const auto sent = blob.span().first(result.bytes);
  EXPECT_TRUE(
      ExpectTakes(times.decode, [&] { return (*replayed)->Decode(sent, {}, {}, {}); }).ok());
  EXPECT_FALSE((*replayed)->Decode(sent.first(sent.size() - 1), {}, {}, {}).ok());
  blob.span()[0] ^= std::byte{1};
  EXPECT_FALSE((*replayed)->Decode(sent, {}, {}, {}).ok());
}
INSTANTIATE_TEST_SUITE_P(Codecs, ReplayCodecTest,
                         ::testing::Values("none", "bf16", "tah", "fixed:bits=6", "gauss"));

TEST(ReplayCodec, AClassOfPythonNeedNotExist) {
  const std::shared_ptr<const codec::Codec> real =
      *codec::ParseCodec("python:no_such_module:Codec,bits=3");
  const ReplaySpec::CodecTimes times{"python", absl::Milliseconds(2), absl::Milliseconds(3)};
  const auto replayed = MakeReplayCodec(real, times, kReplayedShape);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  AlignedBuffer blob((*replayed)->MaxEncodedBytes(kReplayedShape));
  codec::EncodeResult result;
  ASSERT_TRUE((*replayed)->Encode({}, {}, {}, blob.span(), &result).ok());
  // 3 bits an element, and what its format has besides.
  EXPECT_EQ(result.bytes, real->MaxEncodedBytes(kReplayedShape));
  EXPECT_GE(result.bytes, kReplayedShape.elements() * 3 / 8);
  const auto sent = blob.span().first(result.bytes);
  EXPECT_TRUE(
      ExpectTakes(times.decode, [&] { return (*replayed)->Decode(sent, {}, {}, {}); }).ok());
  EXPECT_EQ(codec::ParseBlobHeader(sent)->codec, real->kind().id);
}

TEST(ReplayCodec, RefusesACodecWithState) {
  const auto replayed =
      MakeReplayCodec(*codec::ParseCodec("aqsgd"), {"aqsgd", {}, {}}, kReplayedShape);
  EXPECT_EQ(replayed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(replayed.status())), HasSubstr("replay.codecs to real"));
}

TEST(Noise, LooksLikeActivations) {
  const BoundaryTensor noise = NoiseTensor({4, 64, 64});
  const auto* values = static_cast<const float*>(noise.view.data);
  double sum = 0, squares = 0;
  const size_t count = noise.view.shape.elements();
  for (size_t i = 0; i < count; ++i) {
    sum += values[i];
    squares += double{values[i]} * values[i];
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0, 0.03);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 0.577, 0.02);
}

}  // namespace
}  // namespace longhaul::worker
