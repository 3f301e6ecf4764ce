// Recordings: what is in them, and what a hostile one is refused for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/unit/worker/tiny_run.h"
#include "worker/audit/audit_run.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

class RecordingTest : public ::testing::Test {
 protected:
  // What stage 1 of two receives in the steps after `from`.
  static std::vector<std::byte> Record(Step from, Step to) {
    InputRecorder recorder(from);
    for (Step step = from.Next(); step <= to; step = step.Next()) {
      for (uint32_t microbatch = 0; microbatch < 2; ++microbatch) {
        recorder.Add(HeaderOf(wire::TensorKind::kChunk, step, microbatch), kBody);
      }
      recorder.Add(HeaderOf(wire::TensorKind::kStepControl, step), kBody);
    }
    return recorder.Cut(to).bytes;
  }
  static wire::TensorHeader HeaderOf(wire::TensorKind kind, Step step, uint32_t microbatch = 0) {
    wire::TensorHeader header;
    header.kind = kind;
    header.step = step;
    header.microbatch = Microbatch(microbatch);
    header.edge = EdgeId(0);
    return header;
  }
  Status Check(const std::vector<std::byte>& bytes, Step from, Step to) const {
    const auto recording = ReadRecording(bytes);
    if (!recording.ok()) return recording.status();
    return CheckRecording(*recording, TinyAssignment(spec_, 1, "", {"a", "b"}), {.stage = 1}, spec_,
                          from, to);
  }

  static constexpr std::array<std::byte, 3> kBody = {};
  const RunSpec spec_ = TinySpec();
};

TEST_F(RecordingTest, IsCutAtSteps) {
  InputRecorder recorder(Step(4));
  recorder.Add(HeaderOf(wire::TensorKind::kChunk, Step(6)), kBody);  // early
  recorder.Add(HeaderOf(wire::TensorKind::kChunk, Step(5)), kBody);
  const InputRecorder::Recording first = recorder.Cut(Step(5)), second = recorder.Cut(Step(6));
  EXPECT_EQ(first.from, Step(4));
  EXPECT_EQ(second.from, Step(5));
  const auto messages = ReadRecording(second.bytes);
  ASSERT_TRUE(messages.ok()) << messages.status();
  ASSERT_EQ(messages->size(), 1u);
  EXPECT_EQ(messages->front().header.step, Step(6));
  EXPECT_EQ(messages->front().body.size(), kBody.size());
}

TEST_F(RecordingTest, AWholeOneIsTaken) {
  EXPECT_EQ(Check(Record(Step(2), Step(4)), Step(2), Step(4)), absl::OkStatus());
}

TEST_F(RecordingTest, WhatIsMissingIsNamed) {
  const Status status = Check(Record(Step(2), Step(3)), Step(2), Step(4));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expected 2 tensors and one message of step 4 over edge 0"));
}

TEST_F(RecordingTest, WhatDoesNotBelongIsRefused) {
  EXPECT_THAT(std::string(Check(Record(Step(2), Step(5)), Step(2), Step(4)).message()),
              HasSubstr("does not receive in steps 3 to 4"));
  InputRecorder recorder(Step(0));
  recorder.Add(HeaderOf(wire::TensorKind::kNormUp, Step(1)), kBody);  // comes from below
  EXPECT_THAT(std::string(Check(recorder.Cut(Step(1)).bytes, Step(0), Step(1)).message()),
              HasSubstr("a message of kind 2"));
}

TEST_F(RecordingTest, CutAndOtherBytesAreRefused) {
  const std::vector<std::byte> whole = Record(Step(0), Step(1));
  for (const size_t bytes : {size_t{5}, whole.size() - 1}) {
    EXPECT_EQ(ReadRecording(std::span(whole).first(bytes)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(ReadRecording(std::vector<std::byte>(200, std::byte{7})).ok());
}

}  // namespace
}  // namespace longhaul::worker
