// What a worker does on commands, without a coordinator: in order, twice, too late, of an old
// epoch, and cut short at any point.
#include "base/cuda/device_lost.h"
#include "tests/unit/worker/agent/agent_harness.h"

namespace longhaul::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(AgentTest, AssignStartFinishAbort) {
  worker_->Handle(Alone(1));
  ExpectReady(1);
  v1::Hello hello;
  worker_->FillHello(&hello);
  EXPECT_EQ(hello.run_id(), "tiny");
  EXPECT_EQ(hello.epoch(), 1u);
  worker_->Handle(StartOf(1));
  EXPECT_TRUE(worker_.Hear().has_stage_started());
  for (uint64_t step = 1; step <= 3; ++step) {
    const v1::WorkerMessage report = worker_.HearUntil(v1::WorkerMessage::kStep);
    EXPECT_EQ(report.step().step(), step);
    EXPECT_GT(report.step().loss(), 0);
  }
  // The last step's checkpoint comes first: the run may end when all have finished.
  EXPECT_EQ(worker_.Hear().shard().step(), 3u);
  const v1::WorkerMessage finished = worker_.Hear();
  EXPECT_EQ(finished.finished().step(), 3u);
  EXPECT_FALSE(finished.finished().stopped());
  // Still at hand, for its neighbours' sake.
  worker_->FillHello(&hello);
  EXPECT_EQ(hello.run_id(), "tiny");
  worker_->Handle(AbortOf(1));
  worker_.ExpectFree();
}

TEST_F(AgentTest, CommandsOutOfOrderDoNothing) {
  for (const v1::WorkerCommand& command :
       {StartOf(1), StopOf(1), AbortOf(1), CommandTo("tiny", 1)}) {
    worker_->Handle(command);
  }
  worker_->Handle(Alone(1));
  ExpectReady(1);
  // None of them was kept: the run is not aborted, not started and not stopped.
  worker_->Handle(Alone(1));
  ExpectReady(1);
  worker_->Handle(StartOf(1));
  worker_->Handle(StartOf(1));
  const v1::WorkerMessage finished = worker_.HearUntil(v1::WorkerMessage::kFinished);
  EXPECT_EQ(finished.finished().step(), 3u);
}

TEST_F(AgentTest, CommandsOfAnotherEpochOrRunDoNothing) {
  worker_->Handle(Alone(2));
  ExpectReady(2);
  for (const uint64_t epoch : {1, 3}) {
    worker_->Handle(StartOf(epoch));
    worker_->Handle(StopOf(epoch));
    worker_->Handle(AbortOf(epoch));
  }
  v1::WorkerCommand abort = AbortOf(2);
  abort.set_run_id("another");
  worker_->Handle(abort);
  // An older epoch's assignment, from a coordinator that does not know of this one.
  worker_->Handle(Alone(1));
  const v1::WorkerMessage refusal = worker_.Hear();
  EXPECT_EQ(refusal.error().newest_epoch(), 2u);
  EXPECT_EQ(refusal.epoch(), 1u);
  // Another assignment of this epoch.
  v1::WorkerCommand other = Alone(2);
  other.set_stamp(other.stamp() + 1);
  worker_->Handle(other);
  EXPECT_EQ(worker_.Hear().error().newest_epoch(), 2u);
  worker_->Handle(Alone(2));
  ExpectReady(2);  // and not StageStarted
  worker_->Handle(StartOf(2));
  EXPECT_TRUE(worker_.Hear().has_stage_started());
  EXPECT_EQ(worker_.HearUntil(v1::WorkerMessage::kFinished).finished().step(), 3u);
}

TEST_F(AgentTest, ANewerEpochTakesTheOldOnesPlace) {
  worker_->Handle(Alone(1, kEndless));
  ExpectReady(1);
  worker_->Handle(StartOf(1));
  EXPECT_EQ(worker_.HearUntil(v1::WorkerMessage::kStep).epoch(), 1u);
  worker_->Handle(Alone(2));
  const v1::WorkerMessage ready = worker_.HearUntil(v1::WorkerMessage::kStageReady);
  EXPECT_EQ(ready.epoch(), 2u);
  worker_->Handle(StartOf(2));
  const v1::WorkerMessage finished = worker_.HearUntil(v1::WorkerMessage::kFinished);
  EXPECT_EQ(finished.epoch(), 2u);
  EXPECT_EQ(finished.finished().step(), 3u);
}

TEST_F(AgentTest, StopEndsWithACheckpoint) {
  worker_->Handle(Alone(1, kEndless));
  ExpectReady(1);
  worker_->Handle(StartOf(1));
  worker_.HearUntil(v1::WorkerMessage::kStep);
  worker_->Handle(StopOf(1));
  const uint64_t step = worker_.HearUntil(v1::WorkerMessage::kShard).shard().step();
  const v1::WorkerMessage finished = worker_.HearUntil(v1::WorkerMessage::kFinished);
  EXPECT_EQ(finished.finished().step(), step);
  EXPECT_TRUE(finished.finished().stopped());
}

TEST(AgentGroup, EveryRankOfACellHasADevice) {
  Worker worker(absl::Minutes(10), /*devices=*/3);
  const auto assign = [&](uint64_t epoch, const RunSpec& spec, uint32_t ranks) {
    Assignment assignment = TinyAssignment(spec, epoch, worker.tokens(), {worker.address()});
    Cell& cell = assignment.cells[0];
    cell.group.tensor = ranks;
    cell.devices.clear();
    for (uint32_t rank = 0; rank < ranks; ++rank) cell.devices.push_back(ranks - rank);
    worker->Handle(AssignOf(assignment, cell.id));
    return worker.Hear();
  };
  EXPECT_TRUE(assign(1, TinySpec({"group.tensor=2"}), 2).has_stage_ready());
  EXPECT_EQ(worker.ranks(), 2u);
  worker->Handle(AbortOf(1));
  EXPECT_TRUE(assign(2, TinySpec(), 1).has_stage_ready());
  EXPECT_EQ(worker.models_made(), 2) << "a model of two ranks is another one";
  EXPECT_EQ(worker.ranks(), 0u);
  worker->Handle(AbortOf(2));
  EXPECT_THAT(assign(3, TinySpec({"group.tensor=2"}), 1).error().message(),
              HasSubstr("the run file's group.tensor 2 and group.expert 1, got 1 and 1"));
}

TEST_F(AgentTest, AnAssignmentThatMakesNoSenseIsAnErrorAndTheNextOneIsCarriedOut) {
  uint64_t epoch = 0;
  const auto refused = [&](const std::function<void(v1::Assign&)>& spoil) {
    v1::WorkerCommand command = Alone(++epoch);
    spoil(*command.mutable_assign());
    worker_->Handle(command);
    const v1::WorkerMessage error = worker_.Hear();
    EXPECT_EQ(error.epoch(), epoch);
    EXPECT_EQ(error.error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument))
        << error.ShortDebugString();
    EXPECT_FALSE(error.error().has_lost_edge());
    return error.error().message();
  };
  const auto mine = [](v1::Assign& assign) {
    return assign.mutable_assignment()->mutable_cells(0);
  };
  EXPECT_THAT(refused([](v1::Assign& assign) { assign.mutable_cell()->set_stage(1); }),
              HasSubstr("expected an assignment with stage 1"));
  EXPECT_THAT(refused([](v1::Assign& assign) {
                v1::Edge& edge = *assign.mutable_assignment()->add_edges();
                edge.set_kind(v1::Edge::ACTIVATIONS);
                edge.mutable_to()->set_stage(1);
              }),
              HasSubstr("expected edge 0 between cells of the assignment"));
  // All that is wrong, at once.
  EXPECT_THAT(
      refused([&](v1::Assign& assign) {
        mine(assign)->set_layers(0);
        mine(assign)->set_head(false);
      }),
      AllOf(HasSubstr("expected layers in stage 0"), HasSubstr("expected 0 links up and 1")));
  EXPECT_THAT(refused([&](v1::Assign& assign) {
                mine(assign)->set_devices(0, 1);
                mine(assign)->set_tensor_ranks(2);
              }),
              AllOf(HasSubstr("one of the 1 devices that this worker offers"),
                    HasSubstr("a device for each of its ranks, got 1 for 2 tensor ranks")));
  EXPECT_THAT(refused([&](v1::Assign& assign) { mine(assign)->add_devices(1); }),
              HasSubstr("a device for each of its ranks, got 2 for 1 tensor ranks"));
  EXPECT_THAT(
      refused([&](v1::Assign& assign) {
        v1::Assignment& assignment = *assign.mutable_assignment();
        *assignment.add_cells() = *mine(assign);
        assignment.mutable_cells(1)->mutable_id()->set_replica(1);
        v1::Edge& edge = *assignment.add_edges();
        edge.set_kind(v1::Edge::REPLICAS);
        edge.mutable_to()->set_replica(1);
      }),
      HasSubstr("expected stage 0 to have an edge to each other one of the run file's 1 replicas, "
                "got 1"));
  refused([](v1::Assign& assign) { assign.mutable_assignment()->set_run_yaml("name: [tiny]"); });
  refused([](v1::Assign& assign) {
    assign.mutable_assignment()->mutable_data()->set_token_file_sha256("../../etc/passwd");
  });
  worker_->Handle(Alone(++epoch));
  ExpectReady(epoch);
}

TEST_F(AgentTest, ATextThatIsNotAsTheCoordinatorSaysIsAnError) {
  v1::WorkerCommand command = Alone(1);
  v1::DataSet& data = *command.mutable_assign()->mutable_assignment()->mutable_data();
  data.set_tokens(kTinyTokens + 1);
  worker_->Handle(command);
  const v1::WorkerMessage error = worker_.Hear();
  EXPECT_EQ(error.error().code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(error.error().message(),
              AllOf(HasSubstr("expected a text of 250 windows and 0 for validation"),
                    HasSubstr("has 249 and 0")));
  worker_->Handle(Alone(2));
  ExpectReady(2);
}

TEST_F(AgentTest, MeasuresWhenItIsFree) {
  v1::WorkerCommand measure = CommandTo("tiny", 1);
  measure.mutable_measure()->set_run_yaml(ToYaml(TinySpec()));
  measure.mutable_measure()->set_vocabulary(256);
  worker_->Handle(measure);
  const v1::WorkerMessage times = worker_.Hear();
  EXPECT_EQ(times.run_id(), "tiny");
  EXPECT_GT(times.layer_times().block_forward(), 0);
  EXPECT_GT(times.layer_times().forward_encode(), 0);
  EXPECT_GT(times.layer_times().seconds_taken(), 0);

  measure.mutable_measure()->set_run_yaml("name: [tiny]");
  worker_->Handle(measure);
  EXPECT_THAT(worker_.Hear().error().message(), HasSubstr("run.yaml:1:"));
}

// The link between a worker and the one above it, which is dialled.
v1::WorkerCommand ProbeOf(uint64_t probe, const std::string& dialled = "") {
  v1::WorkerCommand command = CommandOf(1, &v1::WorkerCommand::mutable_probe_link);
  v1::ProbeLink& ask = *command.mutable_probe_link();
  ask.set_probe(probe);
  ask.set_peer_name("other");
  ask.set_transport("ucx");
  ask.set_dial(!dialled.empty());
  if (ask.dial()) ask.add_addresses(dialled);
  ask.set_link_secret("a secret");
  ask.set_limit_seconds(60);
  return command;
}

TEST_F(AgentTest, TwoMeasureTheLinkBetweenThem) {
  Worker other;
  for (const uint64_t probe : {1, 2}) {
    worker_->Handle(ProbeOf(probe));
    other->Handle(ProbeOf(probe, worker_.address()));
    for (Worker* worker : {&worker_, &other}) {
      const v1::WorkerMessage message = worker->Hear();
      EXPECT_EQ(message.run_id(), "tiny");
      EXPECT_EQ(message.epoch(), 1u);
      EXPECT_EQ(message.link_probed().problem(), "");
      EXPECT_EQ(message.link_probed().probe(), probe);
      EXPECT_GT(message.link_probed().goodput_bits_per_second(), 1e6);
      EXPECT_GT(message.link_probed().round_trip_seconds(), 0);
    }
  }
  // The answer was lost on the way.
  other->Handle(ProbeOf(2, worker_.address()));
  EXPECT_EQ(other.Hear().link_probed().probe(), 2u);
  // The run's own links are others.
  const std::vector<std::string> addresses = {worker_.address(), other.address()};
  worker_->Handle(AssignOf(TinySpec(), 1, 0, worker_.tokens(), addresses));
  other->Handle(AssignOf(TinySpec(), 1, 1, other.tokens(), addresses));
  ExpectReady(1);
  EXPECT_TRUE(other.Hear().has_stage_ready());
}

TEST_F(AgentTest, TwoMeasureRoundTripsAlone) {
  Worker other;
  v1::WorkerCommand above = ProbeOf(1), below = ProbeOf(1, worker_.address());
  for (v1::WorkerCommand* command : {&above, &below}) {
    command->mutable_probe_link()->set_round_trips_only(true);
  }
  worker_->Handle(above);
  other->Handle(below);
  for (Worker* worker : {&worker_, &other}) {
    const v1::LinkProbed answer = worker->Hear().link_probed();
    EXPECT_EQ(answer.problem(), "");
    EXPECT_EQ(answer.goodput_bits_per_second(), 0);
    EXPECT_GT(answer.round_trip_seconds(), 0);
  }
}

TEST_F(AgentTest, ALinkThatCannotBeMeasuredIsAProblem) {
  v1::WorkerCommand command = ProbeOf(1);
  command.mutable_probe_link()->set_transport("pigeon");
  worker_->Handle(command);
  EXPECT_THAT(worker_.Hear().link_probed().problem(), HasSubstr("does not listen on pigeon"));
  command = ProbeOf(2);
  command.mutable_probe_link()->set_limit_seconds(0.01);
  worker_->Handle(command);
  const v1::LinkProbed answer = worker_.Hear().link_probed();
  EXPECT_EQ(answer.probe(), 2u);
  EXPECT_NE(answer.problem(), "");
}

// By an abort, and by other work.
TEST_F(AgentTest, MeasuringALinkIsGivenUp) {
  Worker stranger;
  // It is at hand when somebody else is turned away from it.
  const auto wait_for = [&](uint64_t probe) {
    v1::WorkerCommand wrong = ProbeOf(probe, worker_.address());
    wrong.mutable_probe_link()->set_link_secret("another secret");
    stranger->Handle(wrong);
    EXPECT_NE(stranger.Hear().link_probed().problem(), "");
  };
  worker_->Handle(ProbeOf(1));
  wait_for(1);
  worker_->Handle(AbortOf(2));  // of another epoch
  worker_->Handle(ProbeOf(1));  // twice is once
  worker_->Handle(AbortOf(1));
  EXPECT_EQ(worker_.Hear().link_probed().problem(), "the worker has other work");
  worker_->Handle(ProbeOf(2));
  wait_for(2);
  worker_->Handle(Alone(1));
  EXPECT_EQ(worker_.Hear().link_probed().probe(), 2u);
  ExpectReady(1);
}

// Before the stage is at hand, and while it waits for its neighbour.
TEST_F(AgentTest, DialsANeighbourThatMovedWhereItIsNow) {
  for (const bool early : {true, false}) {
    const uint64_t epoch = early ? 1 : 2;
    Worker other;
    const std::vector<std::string> planned = {other.address(), "nowhere"};
    const std::vector<std::string> wrong = {"nowhere", worker_.address()};
    other->Handle(AssignOf(TinySpec(), epoch, 0, other.tokens(), planned));
    worker_->Handle(AssignOf(TinySpec(), epoch, 1, worker_.tokens(), wrong));
    if (!early) worker_.WaitUntilAtHand();
    v1::WorkerCommand moved = CommandOf(epoch, &v1::WorkerCommand::mutable_readdress);
    moved.mutable_readdress()->add_addresses(other.address());
    worker_->Handle(moved);
    ExpectReady(epoch);
    EXPECT_TRUE(other.Hear().has_stage_ready());
    worker_->Handle(AbortOf(epoch));
    worker_.ExpectFree();
  }
}

TEST_F(AgentTest, AnAbortEndsAnyWait) {
  // For a neighbour.
  worker_->Handle(Waiting(1));
  worker_.WaitUntilAtHand();
  worker_->Handle(AbortOf(1));
  worker_.ExpectFree();
  // For the start.
  worker_->Handle(Alone(2));
  ExpectReady(2);
  worker_->Handle(AbortOf(2));
  worker_.ExpectFree();
  // In the middle of training.
  worker_->Handle(Alone(3, kEndless));
  ExpectReady(3);
  worker_->Handle(StartOf(3));
  worker_.HearUntil(v1::WorkerMessage::kStep);
  worker_->Handle(AbortOf(3));
  worker_.ExpectFree();
}

TEST_F(AgentTest, ShutdownEndsAnyWaitAndTakesNothingMore) {
  {
    Worker worker;
    worker->Handle(ProbeOf(1));
    worker->Shutdown();
  }
  for (const bool waiting : {true, false}) {
    Worker worker;
    if (waiting) {
      worker->Handle(AssignOf(TinySpec(), 1, 0, worker.tokens(), {worker.address(), "nobody"}));
      worker.WaitUntilAtHand();
    } else {
      worker->Handle(AssignOf(TinySpec(kEndless), 1, 0, worker.tokens(), {worker.address()}));
      EXPECT_TRUE(worker.Hear().has_stage_ready());
      worker->Handle(StartOf(1));
      worker.HearUntil(v1::WorkerMessage::kStep);
    }
    worker->Shutdown();
    worker->Shutdown();
    while (!worker.silent()) (void)worker.Hear();
    worker->Handle(AssignOf(TinySpec(), 2, 0, worker.tokens(), {worker.address()}));
    worker->Handle(StartOf(2));
    EXPECT_FALSE(worker->CurrentRun());
    EXPECT_TRUE(worker.silent());
  }
}

TEST_F(AgentTest, TwoStagesTrainAndOneThatVanishesIsNamed) {
  auto other = std::make_unique<Worker>();
  const std::vector<std::string> addresses = {worker_.address(), other->address()};
  const auto assign = [&](uint64_t epoch, const std::vector<std::string>& overrides) {
    worker_->Handle(AssignOf(TinySpec(overrides), epoch, 0, worker_.tokens(), addresses));
    (*other)->Handle(AssignOf(TinySpec(overrides), epoch, 1, other->tokens(), addresses));
    ExpectReady(epoch);
    EXPECT_TRUE(other->Hear().has_stage_ready());
    worker_->Handle(StartOf(epoch));
    (*other)->Handle(StartOf(epoch));
  };
  assign(1, {});
  EXPECT_EQ(worker_.HearUntil(v1::WorkerMessage::kFinished).finished().step(), 3u);
  EXPECT_EQ(other->HearUntil(v1::WorkerMessage::kFinished).finished().step(), 3u);
  worker_->Handle(AbortOf(1));
  (*other)->Handle(AbortOf(1));
  worker_.ExpectFree();
  other->ExpectFree();

  assign(2, kEndless);
  worker_.HearUntil(v1::WorkerMessage::kStep);
  other.reset();
  while (true) {
    const v1::WorkerMessage message = worker_.Hear();
    ASSERT_NE(message.body_case(), v1::WorkerMessage::BODY_NOT_SET);
    if (!message.has_error()) continue;
    EXPECT_TRUE(message.error().has_lost_edge());
    EXPECT_EQ(message.error().lost_edge(), 0u);
    EXPECT_EQ(message.error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
    break;
  }
  // Nothing is wrong with its own stage.
  worker_.ExpectFree();
  EXPECT_EQ(worker_.resident().run_id(), "tiny");
  EXPECT_EQ(worker_.resident().layers(), 1u);
}

TEST_F(AgentTest, AWorkerWhoseGpuIsLostSaysSoAndRestartsItself) {
  worker_.RefuseModels(cuda::DeviceLost(
      absl::InternalError("cuda:0: CUDA error: an illegal memory access was encountered")));
  worker_->Handle(Alone(1));
  const v1::WorkerMessage said = worker_.Hear();
  EXPECT_EQ(said.epoch(), 1u);
  EXPECT_EQ(said.error().restarts_for(), v1::WORKER_FAULT_DEVICE_LOST);
  EXPECT_EQ(said.error().message(),
            "lost its GPU: cuda:0: CUDA error: an illegal memory access was encountered");
  const auto cause = worker_.Restarts();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->fault, v1::WORKER_FAULT_DEVICE_LOST);
  EXPECT_EQ(cause->text, said.error().message());
}

TEST_F(AgentTest, AnErrorThatDoesNotStickIsNoReasonToRestart) {
  worker_.RefuseModels(absl::ResourceExhaustedError("cuda:0: CUDA error: out of memory"));
  worker_->Handle(Alone(1));
  EXPECT_EQ(worker_.Hear().error().restarts_for(), v1::WORKER_FAULT_NONE);
}

TEST_F(AgentTest, HeartbeatsSayWhatTheStageIsAt) {
  worker_->Handle(Alone(1, kEndless));
  ExpectReady(1);
  v1::Heartbeat before;
  worker_->FillHeartbeat(&before);
  EXPECT_FALSE(before.has_at_hand()) << "it does not train yet";
  worker_->Handle(StartOf(1));
  worker_.HearUntil(v1::WorkerMessage::kStep);
  v1::Heartbeat first, second;
  worker_->FillHeartbeat(&first);
  EXPECT_EQ(first.at_hand().run_id(), "tiny");
  EXPECT_EQ(first.at_hand().epoch(), 1u);
  EXPECT_GE(first.at_hand().step(), 1u);
  EXPECT_FALSE(first.at_hand().doing().empty());
  // Reports of steps before the first heartbeat may be waiting still.
  for (uint64_t step = 0; step <= first.at_hand().step() && !HasFailure();) {
    step = worker_.HearUntil(v1::WorkerMessage::kStep).step().step();
  }
  worker_->FillHeartbeat(&second);
  EXPECT_GT(second.at_hand().progress(), first.at_hand().progress());
  worker_->Handle(AbortOf(1));
  worker_.ExpectFree();
}

}  // namespace
}  // namespace longhaul::worker
