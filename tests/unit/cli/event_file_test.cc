#include "cli/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;

constexpr size_t kAround = 16;  // length, and two checksums

uint64_t LengthOf(const std::string& record) {
  uint64_t length = 0;
  std::memcpy(&length, record.data(), sizeof(length));
  return length;
}

v1::StepRecord Step(uint64_t number, double loss, double norm) {
  v1::StepRecord step;
  step.set_step(number);
  step.set_loss(loss);
  step.set_gradient_norm(norm);
  return step;
}

// The other writer is TensorBoard's own (golden/make_event_file.py).
TEST(EventFile, HasTheBytesOfTensorBoardsWriter) {
  std::ifstream file(GOLDEN_DIR "/events.tfevents", std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(golden.size(), kAround);
  v1::StepRecord before;
  before.set_has_validation(true);
  before.set_validation_loss(4.5);
  before.set_clean_validation_loss(4.25);
  v1::StepRecord first = Step(1, 4.125, 1.5);
  first.set_learning_rate(1e-3);
  first.set_seconds(1.25);
  first.set_link_bytes(70000);
  first.set_payload_bytes(65536);
  std::vector<Scalar> broken = ScalarsOf(Step(300, std::nan(""), INFINITY));
  broken.resize(2);
  const std::string written = EventRecord(1700000000.25, 0, ScalarsOf(before)) +
                              EventRecord(1700000001.5, 1, ScalarsOf(first)) +
                              EventRecord(1700000303.0, 300, broken);
  // The first record names its writer.
  EXPECT_EQ(golden.substr(LengthOf(golden) + kAround), written);
}

TEST(EventFile, BeginsWithItsVersion) {
  const std::string record = FirstRecord(1700000000);
  EXPECT_EQ(record.size(), LengthOf(record) + kAround);
  EXPECT_THAT(record, HasSubstr("\x1a\x0d"
                                "brain.Event:2"));
}

TEST(EventFile, SaysOfAStepWhatIsKnown) {
  std::vector<std::string> tags;
  for (const Scalar& scalar : ScalarsOf(Step(7, 1, 2))) tags.push_back(scalar.tag);
  EXPECT_THAT(tags, ::testing::ElementsAre("loss/training", "optimizer/gradient_norm",
                                           "optimizer/learning_rate", "step/seconds",
                                           "step/link_bytes", "step/payload_bytes"));
  v1::StepRecord preferring = Step(7, 1, 2);
  preferring.set_preference_accuracy(0.75);
  preferring.set_preference_margin(0.5);
  EXPECT_EQ(ScalarsOf(preferring)[1].tag, "preferences/accuracy");
  EXPECT_EQ(ScalarsOf(preferring)[1].value, 0.75f);
  EXPECT_EQ(ScalarsOf(preferring)[2].tag, "preferences/margin");
  v1::StepRecord replayed;  // has no losses
  replayed.set_step(8);
  EXPECT_EQ(ScalarsOf(replayed).front().tag, "step/seconds");
}

}  // namespace
}  // namespace longhaul::cli
