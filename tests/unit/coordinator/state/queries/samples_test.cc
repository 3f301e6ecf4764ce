// Samples of a run that trains: by the run file, and for a user who waits for them.
#include "coordinator/state/queries/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class SamplesOfARun : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
  }
  void Train() {
    RunSpec spec = SmallSpec("tiny", 2);
    spec.train.steps = 20;
    spec.samples.every = 1;
    spec.samples.prompts = {"a"};
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    c.Steps(kAb, "tiny-1", 1);
    c.Forget();
  }
  static v1::TakeSamples Wanted(uint32_t tokens = 4) {
    v1::TakeSamples wanted;
    wanted.add_prompts()->add_ids(97);
    wanted.set_tokens(tokens);
    wanted.set_top_p(1);
    return wanted;
  }
  void Ask(const v1::TakeSamples& wanted, uint64_t request = 9) {
    c.Tick(event::SamplesAsked{RequestId(request), "tiny", wanted});
  }
  void Say(const std::string& worker, const v1::SampleReport& report) {
    v1::WorkerMessage message = c.About("tiny-1");
    *message.mutable_samples() = report;
    c.Tick(c.Said(worker, std::move(message)));
  }
  static v1::SampleReport Report(uint64_t request, uint64_t step, const std::string& text = "bcd") {
    v1::SampleReport report;
    report.set_request(request);
    report.set_step(step);
    v1::Sample& sample = *report.add_samples();
    sample.set_prompt("a");
    sample.set_text(text);
    sample.add_ids(98);
    return report;
  }
  const command::Reply<v1::SampleReply>* Reply() const {
    return c.LastReply<command::Reply<v1::SampleReply>>();
  }
  std::string Refusal() const {
    return Reply() == nullptr ? "no reply" : std::string(Message(Reply()->reply.status()));
  }
  v1::RunStatus Status() { return c.views().RunOf("tiny").value(); }
  Coordinator c;
};

TEST_F(SamplesOfARun, TheFirstStageIsAskedAndItsAnswerIsTheReply) {
  Train();
  Ask(Wanted());
  const v1::WorkerCommand* asked = c.Last("a", v1::WorkerCommand::kTakeSamples);
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(c.Last("b", v1::WorkerCommand::kTakeSamples), nullptr);
  EXPECT_EQ(asked->take_samples().prompts(0).ids(0), 97u);
  EXPECT_EQ(Reply(), nullptr);
  const uint64_t request = asked->take_samples().request();
  Say("b", Report(request, 2));
  EXPECT_EQ(Reply(), nullptr) << "another stage has no say";
  Say("a", Report(request, 2));
  ASSERT_NE(Reply(), nullptr);
  ASSERT_TRUE(Reply()->reply.ok()) << Reply()->reply.status();
  EXPECT_EQ(Reply()->request, RequestId(9));
  EXPECT_EQ(Reply()->reply->round().step(), 2u);
  EXPECT_EQ(Reply()->reply->round().samples(0).text(), "bcd");
  EXPECT_EQ(Status().samples_size(), 0) << "what a user asked for is not kept";
}

// What was sent into a session that was broken already has not arrived.
TEST_F(SamplesOfARun, AWorkerThatHasComeBackIsAskedAgain) {
  Train();
  Ask(Wanted());
  const uint64_t request = c.Last("a", v1::WorkerCommand::kTakeSamples)->take_samples().request();
  c.Leave("a");
  c.Forget();
  c.Join(HelloAt("a", "tiny-1", 0));
  const v1::WorkerCommand* again = c.Last("a", v1::WorkerCommand::kTakeSamples);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->take_samples().request(), request);
  Say("a", Report(request, 3));
  ASSERT_NE(Reply(), nullptr);
  EXPECT_TRUE(Reply()->reply.ok()) << Reply()->reply.status();
}

TEST_F(SamplesOfARun, TheNewestRoundsAreKept) {
  Train();
  for (uint64_t step = 1; step <= kKeptSampleRounds + 2; ++step) Say("a", Report(0, step));
  const v1::RunStatus status = Status();
  ASSERT_EQ(status.samples_size(), static_cast<int>(kKeptSampleRounds));
  EXPECT_EQ(status.samples(0).step(), 3u);
  EXPECT_EQ(status.samples().rbegin()->step(), kKeptSampleRounds + 2);
  // A step that is trained again replaces its round and what followed.
  Say("a", Report(0, 4, "again"));
  EXPECT_EQ(Status().samples().rbegin()->step(), 4u);
  EXPECT_EQ(Status().samples().rbegin()->samples(0).text(), "again");
}

TEST_F(SamplesOfARun, WhatNobodyAskedForIsNotKept) {
  Train();
  Say("a", Report(0, 21));
  Say("b", Report(0, 2));
  EXPECT_EQ(Status().samples_size(), 0);
}

TEST_F(SamplesOfARun, AWorkersTextIsCutAndPrintable) {
  Train();
  Say("a", Report(0, 1, "x\x1b[2J" + std::string(1 << 20, 'y')));
  const std::string text = Status().samples(0).samples(0).text();
  EXPECT_LT(text.size(), size_t{1} << 15);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(SamplesOfARun, WhatCannotBeIsRefused) {
  Ask(Wanted());
  EXPECT_THAT(Refusal(), HasSubstr("tiny"));
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  Ask(Wanted());
  EXPECT_THAT(Refusal(), HasSubstr("only a run that trains"));
  c.ToRunning(kAb, "tiny-1");
  Ask(v1::TakeSamples());
  EXPECT_THAT(Refusal(), HasSubstr("1 to 16 prompts, got 0"));
  Ask(Wanted(0));
  EXPECT_THAT(Refusal(), HasSubstr("1 to 256 new tokens, got 0"));
  v1::TakeSamples long_prompt = Wanted();
  for (int i = 0; i < 100'000; ++i) long_prompt.mutable_prompts(0)->add_ids(1);
  Ask(long_prompt);
  EXPECT_THAT(Refusal(), HasSubstr("fill the model's context"));
  v1::TakeSamples other_ids = Wanted();
  other_ids.mutable_prompts(0)->set_ids(0, 1u << 30);
  Ask(other_ids);
  EXPECT_THAT(Refusal(), HasSubstr("vocabulary"));
  v1::TakeSamples hot = Wanted();
  hot.set_temperature(-1);
  Ask(hot);
  EXPECT_THAT(Refusal(), HasSubstr("temperature"));
}

TEST_F(SamplesOfARun, SomeMayWaitAndALateOneIsGivenUp) {
  Train();
  for (uint64_t i = 0; i < kMostSampleRequests; ++i) Ask(Wanted(), 20 + i);
  EXPECT_EQ(Reply(), nullptr);
  Ask(Wanted(), 30);
  EXPECT_THAT(Refusal(), HasSubstr("wait already"));
  c.Forget();
  // It trains on, and says nothing of samples.
  for (uint64_t step = 2; step <= 17; ++step) {
    c.Pass(kSampleLimit / 15, kAb);
    c.Steps(kAb, "tiny-1", step);
  }
  EXPECT_THAT(Refusal(), HasSubstr("no samples within 15 minutes"));
}

TEST_F(SamplesOfARun, ARunThatIsInterruptedOrEndsAnswersNoMore) {
  Train();
  Ask(Wanted());
  for (const std::string& worker : kAb) c.Finished(worker, "tiny-1", 20);
  ASSERT_NE(Reply(), nullptr);
  EXPECT_EQ(Reply()->reply.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Refusal(), HasSubstr("tiny-1 is done now"));
}

TEST_F(SamplesOfARun, AProblemIsTheReply) {
  Train();
  Ask(Wanted());
  v1::SampleReport report;
  report.set_request(c.Last("a", v1::WorkerCommand::kTakeSamples)->take_samples().request());
  report.set_problem("training has diverged");
  Say("a", report);
  EXPECT_EQ(Refusal(), "training has diverged");
}

}  // namespace
}  // namespace longhaul::coordinator
