// Digests, evidence and judgements of training messages, and rehearsed faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/pipeline/boundary_port_harness.h"
#include "worker/pipeline/message_digests.h"
#include "worker/pipeline/message_keeper.h"
#include "worker/pipeline/plausibility.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/step_digests.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::byte> BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(MessageDigestsTest, Sha256IsThatOfEverybody) {
  // The first 8 bytes of SHA-256 of "abc".
  EXPECT_EQ(DigestOf(DigestKind::kSha256, BytesOf("abc")), 0xba7816bf8f01cfea);
  EXPECT_EQ(DigestOf(DigestKind::kXxh3, BytesOf("abc")), Checksum64(BytesOf("abc")));
}

TEST(MessageDigestsTest, StepsAreTakenInOrderAndOnce) {
  MessageDigests digests(DigestKind::kXxh3);
  digests.AddSent(Step(1), BytesOf("a"));
  digests.AddSent(Step(2), BytesOf("b"));
  digests.AddSent(Step(1), BytesOf("c"));
  digests.AddReceived(Step(1), BytesOf("d"));
  const auto first = digests.TakeSent(Step(1));
  EXPECT_EQ(first.messages, 2u);
  EXPECT_THAT(first.digests, ElementsAre(Checksum64(BytesOf("a")), Checksum64(BytesOf("c"))));
  EXPECT_EQ(digests.TakeSent(Step(1)).messages, 0u);
  EXPECT_EQ(digests.TakeSent(Step(2)).messages, 1u);
  EXPECT_EQ(digests.TakeReceived(Step(1)).messages, 1u);
}

TEST(MessageDigestsTest, ManyMessagesHaveDigestsInGroups) {
  MessageDigests digests(DigestKind::kXxh3), other(DigestKind::kXxh3);
  for (uint32_t message = 0; message < 600; ++message) {
    digests.AddSent(Step(1), BytesOf(fmt::format("{}", message)));
    other.AddSent(Step(1), BytesOf(fmt::format("{}", message == 599 ? 0 : message)));
  }
  const auto one = digests.TakeSent(Step(1)), two = other.TakeSent(Step(1));
  ASSERT_THAT(one.digests, SizeIs(200));
  EXPECT_EQ(one.messages, 600u);
  EXPECT_NE(one.digests.back(), two.digests.back());
  EXPECT_TRUE(std::equal(one.digests.begin(), one.digests.end() - 1, two.digests.begin()));
}

TEST(MessageKeeperTest, KeepsTheNewestAndWritesThoseThatAreAskedFor) {
  const TempDir folder;
  MessageKeeper keeper;
  keeper.BeginRun(RunId("tiny-1"));
  for (uint32_t step = 1; step <= 4; ++step) {
    const auto bytes =
        std::make_shared<const std::vector<std::byte>>(BytesOf(fmt::format("message {}", step)));
    KeptMessage message{.epoch = Epoch(2),
                        .edge = EdgeId(1),
                        .sent = true,
                        .step = Step(step),
                        .slice = Microbatch(3),
                        .bytes = *bytes,
                        .owner = bytes};
    if (step % 2 == 0) {
      keeper.Keep(message, 30);
    } else {
      keeper.KeepCopy(message, 30);
    }
  }
  EXPECT_EQ(keeper.bytes(), 27u);
  const auto write = [&](const char* run, uint64_t step, uint32_t edge) {
    return keeper.Write(RunId(run), Step(step), EdgeId(edge), folder.path() + "/evidence").value();
  };
  EXPECT_EQ(write("tiny-1", 1, 1), 0u) << "it had no room any more";
  EXPECT_EQ(write("tiny-1", 3, 0), 0u);
  EXPECT_EQ(write("other-1", 3, 1), 0u);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/evidence"));
  EXPECT_EQ(write("tiny-1", 3, 1), 1u);
  const std::string path =
      folder.path() + "/evidence/epoch2-step3-edge1-forward-sent-microbatch3-slice0.blob";
  EXPECT_EQ(ReadFile(path).value(), "message 3");
  keeper.BeginRun(RunId("other-1"));
  EXPECT_EQ(keeper.bytes(), 0u);
}

// Rows of a sender: a direction of its own, with noise.
std::vector<float> RowsOf(std::mt19937& random, double scale, double noise, size_t channels = 16) {
  std::normal_distribution<double> normal;
  std::vector<float> values;
  for (size_t row = 0; row < Plausibility::kRows; ++row) {
    for (size_t channel = 0; channel < channels; ++channel) {
      const double mean = std::sin(static_cast<double>(channel));
      values.push_back(static_cast<float>(scale * (mean + noise * normal(random))));
    }
  }
  return values;
}

class PlausibilityTest : public ::testing::Test {
 protected:
  // An ordinary sender, whose norms drift by a factor of 2 in 600 tensors.
  void Learn(int tensors, double noise = 1) {
    for (int i = 0; i < tensors; ++i) {
      scale_ *= 0.9985;
      const auto what = judge_.Judge(RowsOf(random_, scale_, noise), 16);
      ASSERT_FALSE(what) << "tensor " << i << ": " << *what;
    }
  }
  std::string Judge(std::vector<float> values) { return judge_.Judge(values, 16).value_or(""); }

  std::mt19937 random_{5};
  Plausibility judge_{7};
  double scale_ = 1;
};

TEST_F(PlausibilityTest, AnHonestSenderIsNeverDoubted) {
  Learn(600);
}

TEST_F(PlausibilityTest, WhatOnlyIsNoiseIsNoReasonForDoubt) {
  Learn(600, /*noise=*/1000);
}

TEST_F(PlausibilityTest, ScaledTensorsAreDoubtedAgainAndAgain) {
  Learn(100);
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(Judge(RowsOf(random_, 100 * scale_, 1)), HasSubstr("times the usual")) << i;
  }
  EXPECT_EQ(Judge(RowsOf(random_, scale_, 1)), "");
}

TEST_F(PlausibilityTest, ANegatedTensorIsDoubtedByItsCosine) {
  Learn(200);
  EXPECT_THAT(Judge(RowsOf(random_, -scale_, 1)), HasSubstr("its cosine to the mean is -"));
}

TEST_F(PlausibilityTest, ValuesThatAreNotFiniteAreDoubted) {
  Learn(100);
  std::vector<float> values = RowsOf(random_, scale_, 1);
  for (size_t i = 0; i < values.size() / 10; ++i) {
    values[i] = std::numeric_limits<float>::quiet_NaN();
  }
  EXPECT_THAT(Judge(values), HasSubstr("of its values are not finite"));
}

TEST_F(PlausibilityTest, OddTensorsDoNoHarm) {
  EXPECT_EQ(judge_.Judge({}, 16), std::nullopt);
  const std::vector<float> zeros(640), infinite(640, std::numeric_limits<float>::infinity());
  for (int i = 0; i < 200; ++i) {
    judge_.Judge(zeros, 16);
    judge_.Judge(infinite, 16);
  }
}

TEST_F(PlausibilityTest, DrawsRowsOfTheWholeTensor) {
  std::vector<bool> drawn(1000);
  for (int i = 0; i < 1000; ++i) {
    size_t last = 0;
    const std::vector<size_t> rows = judge_.DrawRows(1000);
    ASSERT_THAT(rows, SizeIs(Plausibility::kRows));
    for (size_t at = 0; at < rows.size(); ++at) {
      ASSERT_TRUE(at == 0 || rows[at] > last);
      last = rows[at];
      drawn.at(last) = true;
    }
  }
  EXPECT_THAT(drawn, ::testing::Each(true));
  EXPECT_THAT(judge_.DrawRows(2), ElementsAre(0, 1));
  EXPECT_THAT(judge_.DrawRows(0), IsEmpty());
}

TEST(RehearsalTest, FaultsAreThoseThatWereAskedFor) {
  const auto rehearsal =
      Rehearsal::Parse({"flip-sent:step=3,until=4,times=1,direction=backward"}).value();
  std::vector<std::byte> blob(8);
  rehearsal->OnBlob(Step(2), Direction::kBackward, blob);
  rehearsal->OnBlob(Step(3), Direction::kForward, blob);
  rehearsal->OnBlob(Step(5), Direction::kBackward, blob);
  EXPECT_EQ(blob, std::vector<std::byte>(8));
  rehearsal->OnBlob(Step(3), Direction::kBackward, blob);
  EXPECT_NE(blob, std::vector<std::byte>(8));
  const std::vector<std::byte> flipped = blob;
  rehearsal->OnBlob(Step(3), Direction::kBackward, blob);
  EXPECT_EQ(blob, flipped);
  EXPECT_EQ(Rehearsal::Parse({}).value(), nullptr);
  for (const char* wrong : {"", "flip", "flip-sent:", "flip-sent:step", "flip-sent:step=x",
                            "flip-sent:step=3x", "flip-sent:steps=3", "flip-sent:direction=up"}) {
    const auto parsed = Rehearsal::Parse({wrong});
    if (std::string_view(wrong) == "flip-sent:") {
      EXPECT_TRUE(parsed.ok());
      continue;
    }
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(Message(parsed.status())), HasSubstr("malformed-digests"));
  }
}

// Both ends of an edge have the same digests, whatever the codec loses or remembers.
TEST_F(BoundaryPortTest, BothEndsHaveTheSameDigests) {
  for (const char* codec : {"none", "bf16", "tah", "fixed:bits=4,rounding=stochastic"}) {
    BoundaryPortOptions from = Options(/*upstream=*/false, codec),
                        to = Options(/*upstream=*/true, codec);
    from.digests = std::make_shared<MessageDigests>(DigestKind::kSha256);
    to.digests = std::make_shared<MessageDigests>(DigestKind::kSha256);
    const auto sender = BoundaryPort::Create(from, &codec_thread_, events_);
    const auto receiver = BoundaryPort::Create(to, &codec_thread_, events_);
    const auto link = std::make_shared<RecordingLink>();
    sender->Attach(link);
    for (uint32_t microbatch = 0; microbatch < 2; ++microbatch) {
      auto values = std::make_shared<std::vector<float>>(shape_.elements());
      for (size_t i = 0; i < values->size(); ++i) (*values)[i] = std::sin(static_cast<float>(i));
      sender->SendTensor({Step(1)}, Microbatch(microbatch),
                         {{values->data(), codec::Dtype::kF32, shape_}, values});
    }
    Drain();
    for (const auto& [lane, bytes] : link->Take()) receiver->OnFrame(lane, bytes);
    Drain();
    const auto sent = sender->TakeDigests(Step(1)), received = receiver->TakeDigests(Step(1));
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_TRUE(sent[0].sent() && sent[0].forward());
    EXPECT_TRUE(!received[1].sent() && received[1].forward());
    EXPECT_EQ(sent[0].messages(), 2u);
    EXPECT_THAT(std::vector(sent[0].digests().begin(), sent[0].digests().end()),
                ::testing::ElementsAreArray(received[1].digests()))
        << codec;
    EXPECT_EQ(sent[1].messages(), 0u);
    for (const PipelineEvent& event : events_->TakeAll()) {
      EXPECT_TRUE(std::holds_alternative<TensorArrived>(event)) << codec;
    }
  }
}

TEST(StepDigestsTest, WhatIsSignedIsTheWholeBody) {
  std::string signed_text;
  const DigestSigner signer(RunId("tiny-1"), Epoch(2), Stamp(3), {.replica = 0, .stage = 1},
                            [&](std::string_view body) {
                              signed_text = body;
                              return std::string("signature");
                            });
  const v1::StepDigests digests =
      signer.Sign(Step(4),
                  {EdgeDigestsOf(EdgeId(1), Direction::kForward, /*sent=*/true,
                                 {.messages = 1, .digests = {9}})},
                  std::nullopt, 8);
  EXPECT_EQ(digests.signature(), "signature");
  EXPECT_EQ(digests.body(), signed_text);
  v1::DigestBody body;
  ASSERT_TRUE(body.ParseFromString(digests.body()));
  EXPECT_EQ(body.run_id(), "tiny-1");
  EXPECT_EQ(body.step(), 4u);
  EXPECT_EQ(body.edges(0).digests(0), 9u);
  EXPECT_FALSE(body.has_state_before());
  EXPECT_EQ(body.state_after(), 8u);
}

}  // namespace
}  // namespace longhaul::worker
