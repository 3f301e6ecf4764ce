// What a worker does with commands about runs, by what it has at hand.
#include "worker/agent/desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

v1::WorkerCommand About(const std::string& run, uint64_t epoch, uint64_t stamp) {
  v1::WorkerCommand command;
  command.set_run_id(run);
  command.set_epoch(epoch);
  command.set_stamp(stamp);
  return command;
}

v1::WorkerCommand AssignAbout(const std::string& run, uint64_t epoch, uint64_t stamp) {
  v1::WorkerCommand command = About(run, epoch, stamp);
  command.mutable_assign();
  return command;
}

v1::WorkerCommand ProbeAbout(uint64_t epoch, uint64_t stamp, uint64_t number) {
  v1::WorkerCommand command = About("run", epoch, stamp);
  command.mutable_probe_link()->set_probe(number);
  return command;
}

// A stage of epoch 4.
Desk AtWork() {
  Desk desk;
  desk.stage = {.run = "run", .epoch = 4, .stamp = 40};
  return desk;
}

TEST(Desk, AFreeWorkerTakesWhateverComes) {
  EXPECT_EQ(NewWorkOf({}, AssignAbout("run", 1, 10)), NewWork::kBegin);
  EXPECT_EQ(NewWorkOf({}, ProbeAbout(1, 10, 7)), NewWork::kBegin);
}

TEST(Desk, AnAuditEndsNoStageAndIsMadeOnce) {
  v1::WorkerCommand audit = About("run", 4, 40);
  audit.mutable_audit()->set_audit(9);
  EXPECT_EQ(NewWorkOf({}, audit), NewWork::kBegin);
  EXPECT_EQ(NewWorkOf(AtWork(), audit), NewWork::kUnderWay);
  Desk leaving = AtWork();
  leaving.stage_leaves = true;
  EXPECT_EQ(NewWorkOf(leaving, audit), NewWork::kBegin);
  Desk auditing;
  auditing.audit = 9;
  EXPECT_EQ(NewWorkOf(auditing, audit), NewWork::kUnderWay);
  auditing.audit = 8;
  EXPECT_EQ(NewWorkOf(auditing, audit), NewWork::kBegin);
}

TEST(Desk, OnlyTheSameAssignmentIsARepeat) {
  EXPECT_EQ(NewWorkOf(AtWork(), AssignAbout("run", 4, 40)), NewWork::kSayReady);
  EXPECT_EQ(NewWorkOf(AtWork(), AssignAbout("run", 4, 41)), NewWork::kRefuse);
}

TEST(Desk, AnotherRunAndAHigherEpochTakeTheWorker) {
  EXPECT_EQ(NewWorkOf(AtWork(), AssignAbout("run", 5, 50)), NewWork::kBegin);
  EXPECT_EQ(NewWorkOf(AtWork(), AssignAbout("other", 1, 10)), NewWork::kBegin);
}

TEST(Desk, ALowerEpochIsRefusedWithTheOneThatIsCarriedOut) {
  const v1::WorkerCommand command = AssignAbout("run", 3, 30);
  ASSERT_EQ(NewWorkOf(AtWork(), command), NewWork::kRefuse);
  const v1::WorkerMessage refusal = RefusalOf(AtWork(), command);
  EXPECT_EQ(refusal.run_id(), "run");
  EXPECT_EQ(refusal.epoch(), 3u);
  EXPECT_EQ(refusal.stamp(), 30u);
  EXPECT_EQ(refusal.error().newest_epoch(), 4u);
  EXPECT_EQ(refusal.error().code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_THAT(refusal.error().message(), HasSubstr("carries out epoch 4"));
}

TEST(Desk, AStageThatLeavesMakesRoom) {
  Desk desk = AtWork();
  desk.stage_leaves = true;
  EXPECT_EQ(NewWorkOf(desk, AssignAbout("run", 4, 40)), NewWork::kBegin) << "not a repeat";
  EXPECT_EQ(NewWorkOf(desk, AssignAbout("run", 4, 41)), NewWork::kBegin);
  EXPECT_EQ(NewWorkOf(desk, AssignAbout("run", 3, 30)), NewWork::kBegin);
}

TEST(Desk, MeasurementsAreRepeatedAsTheirTopicSays) {
  Desk desk;
  desk.measuring = {.run = "run", .epoch = 2, .stamp = 20};
  v1::WorkerCommand measure = About("run", 2, 20);
  measure.mutable_measure();
  EXPECT_EQ(NewWorkOf(desk, measure), NewWork::kUnderWay);
  measure.set_stamp(21);
  EXPECT_EQ(NewWorkOf(desk, measure), NewWork::kBegin);
}

TEST(Desk, AProbeIsAnsweredOnce) {
  Desk desk;
  desk.probe = {.topic = {.run = "run", .epoch = 2, .stamp = 20}, .number = 7, .answered = false};
  EXPECT_EQ(NewWorkOf(desk, ProbeAbout(2, 20, 7)), NewWork::kUnderWay);
  desk.probe->answered = true;
  EXPECT_EQ(NewWorkOf(desk, ProbeAbout(2, 20, 7)), NewWork::kSayProbed);
  EXPECT_EQ(NewWorkOf(desk, ProbeAbout(2, 20, 8)), NewWork::kBegin);
  EXPECT_EQ(NewWorkOf(desk, ProbeAbout(2, 21, 7)), NewWork::kBegin);
}

TEST(Desk, CommandsAreAboutTheAssignmentThatTheyName) {
  Desk desk = AtWork();
  desk.next = {.run = "run", .epoch = 5, .stamp = 50};
  desk.probe = {.topic = {.run = "run", .epoch = 3, .stamp = 30}, .number = 7, .answered = true};
  EXPECT_TRUE(WhatIsMeant(desk, About("run", 4, 40)).stage);
  EXPECT_TRUE(WhatIsMeant(desk, About("run", 5, 50)).next);
  EXPECT_TRUE(WhatIsMeant(desk, About("run", 3, 30)).probe);
  for (const auto& [epoch, stamp] : {std::pair{4, 41}, {5, 51}, {3, 31}, {6, 40}}) {
    const Meant meant = WhatIsMeant(desk, About("run", epoch, stamp));
    EXPECT_FALSE(meant.stage || meant.next || meant.probe) << epoch << " " << stamp;
  }
}

}  // namespace
}  // namespace longhaul::worker
