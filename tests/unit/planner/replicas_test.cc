// Plans of runs with several replicas.
#include "planner/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/memory.h"
#include "planner/pipeline_cost.h"
#include "run/schedule/simulator.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanRequest RequestOf(uint32_t replicas, uint32_t stages) {
  PlanRequest request = Request(replicas * stages);
  request.spec.replicas.count = replicas;
  return request;
}

TEST(PlanOfReplicas, IsAChainForEachWithEdgesBetweenThem) {
  const auto plan = MakePlan(RequestOf(2, 3));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckAssignment(plan->assignment).ok()) << CheckAssignment(plan->assignment);
  ASSERT_EQ(plan->assignment.cells.size(), 6u);
  EXPECT_EQ(plan->cells.size(), 6u);
  EXPECT_EQ(plan->prediction.cells.size(), 6u);
  EXPECT_EQ(plan->edges.size(), 2u * 2 + 3);
  EXPECT_EQ(plan->prediction.edges.size(), plan->edges.size());
  for (uint32_t place = 0; place < 6; ++place) {
    const Cell& cell = plan->assignment.cells[place];
    EXPECT_EQ(cell.id, (CellId{place / 3, place % 3}));
    EXPECT_EQ(cell.worker_name, "w" + std::to_string(place));
    EXPECT_EQ(cell.layers, plan->assignment.cells[place % 3].layers);
  }
  EXPECT_EQ(ReplicasOf(plan->assignment), 2u);
  EXPECT_THAT(plan->explanation, HasSubstr("2 replicas of 3 stages"));
}

TEST(PlanOfReplicas, SplitsForTheSlowestWorkerOfEachStage) {
  PlanRequest request = RequestOf(2, 2);
  request.workers[3].times.set_block_forward(0.03);  // replica 1, stage 1: three times as slow
  request.workers[3].times.set_block_backward(0.06);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const Cell& cell : plan->assignment.cells) {
    EXPECT_EQ(cell.layers.count, cell.id.stage == 0 ? 6u : 2u) << ToString(cell.id);
  }
  EXPECT_THAT(plan->explanation, HasSubstr("the passes of replica 1, the slowest"));
}

TEST(PlanOfReplicas, AStepEndsWithTheExchange) {
  PlanRequest request = RequestOf(2, 2);
  request.assumed_line_bits_per_second = 100'000'000;
  request.assumed_delay = absl::Milliseconds(10);
  const auto exact = MakePlan(request);
  request.spec.replicas.gradients.form = replicas::GradientForm::kSdp4bit;
  request.spec.replicas.parameters = replicas::ParameterForm::kDifference4;
  const auto coded = MakePlan(request);
  ASSERT_TRUE(exact.ok() && coded.ok());
  // Two stages of 8 layers' 12 x 256^2 parameters and embeddings or head: each replica sends half
  // of a stage's gradients and half of its parameters.
  uint64_t most = 0;
  for (const uint32_t stage : {0u, 1u}) {
    const Cell& cell = exact->assignment.cells[stage];
    most = std::max(most, StageParameters(request.spec.model, 256, cell.layers.count,
                                          cell.roles.embedding, cell.roles.head));
  }
  const double bytes = 4.0 * static_cast<double>(most);
  const double expected = bytes / GoodputBytesPerSecond(100'000'000) + 4 * 0.010;
  EXPECT_NEAR(exact->prediction.exchange_seconds, expected, 0.01 * expected);
  const double transfer = exact->prediction.exchange_seconds - 0.040;
  EXPECT_NEAR((coded->prediction.exchange_seconds - 0.040) / transfer, 4.07 / 32, 0.01);
  EXPECT_GT(exact->prediction.step_seconds, exact->prediction.exchange_seconds);
}

// The exchange of a first stage on a CPU hides beside its last backward, others in a delay's steps.
TEST(PlanOfReplicas, AnExchangeHides) {
  PlanRequest request = RequestOf(2, 2);
  request.spec.model.hidden = 1024;  // several buckets a stage
  request.assumed_line_bits_per_second = 100'000'000;
  request.assumed_delay = absl::Milliseconds(10);
  const auto exchange_seconds = [&](const char* gradients, bool on_gpu) {
    request.spec.replicas.gradients = replicas::ParseGradients(gradients).value();
    for (CandidateWorker& worker : request.workers) worker.on_gpu = on_gpu;
    const auto plan = MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(plan->prediction.lower_bound_seconds, plan->prediction.step_seconds);
    return plan->prediction.exchange_seconds;
  };
  const double last_backward = 4 * 0.020;
  EXPECT_NEAR(exchange_seconds("none", false), exchange_seconds("none", true) - last_backward,
              1e-6);
  EXPECT_GT(exchange_seconds("local-sgd:steps=20", true), 0);
  EXPECT_EQ(exchange_seconds("local-sgd:steps=20,delay=0.9", true), 0);
}

// A tied matrix of one stage is like any other, whether the run file names the stages or not.
TEST(PlanOfReplicas, ATiedMatrixOfOneStageHidesToo) {
  PlanRequest request = RequestOf(2, 1);
  request.spec.model.tied = true;
  request.spec.model.hidden = 1024;  // several buckets
  request.assumed_line_bits_per_second = 100'000'000;
  request.spec.pipeline.stages = 1;
  const auto named = MakePlan(request);
  request.spec.pipeline.stages.reset();
  const auto open = MakePlan(request);
  ASSERT_TRUE(named.ok() && open.ok()) << named.status() << open.status();
  EXPECT_EQ(open->prediction.exchange_seconds, named->prediction.exchange_seconds);
  for (CandidateWorker& worker : request.workers) worker.on_gpu = true;
  EXPECT_LT(open->prediction.exchange_seconds, MakePlan(request)->prediction.exchange_seconds);
}

TEST(PlanOfReplicas, ReplicasCanBeSimulatedOneByOne) {
  const PlanRequest request = RequestOf(3, 2);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (uint32_t replica = 0; replica < 3; ++replica) {
    const Plan one = ReplicaOf(*plan, replica);
    ASSERT_EQ(one.assignment.cells.size(), 2u);
    EXPECT_EQ(one.assignment.cells[0].id.replica, replica);
    const auto simulation = schedule::Simulate(PipelineCostOf(one, request.spec, NetworkOf(one)));
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    EXPECT_NEAR(absl::ToDoubleSeconds(simulation->step) + plan->prediction.exchange_seconds,
                plan->prediction.step_seconds, 1e-9);
  }
}

// The floor is what an interface carries of passes and exchange. Nothing is faster than that.
TEST(PlanOfReplicas, BoundAndFloorKnowTheExchange) {
  PlanRequest request = RequestOf(3, 2);
  request.assumed_line_bits_per_second = 10'000'000;
  request.assumed_delay = absl::Milliseconds(10);
  for (const char* gradients : {"none", "sdp4bit", "local-sgd:steps=20"}) {
    request.spec.replicas.gradients = replicas::ParseGradients(gradients).value();
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Prediction& prediction = plan->prediction;
    const uint32_t apart = request.spec.replicas.steps_apart();
    double busiest = 0;
    for (const Cell& cell : plan->assignment.cells) {
      double sent = 0, received = 0;
      for (const Edge& edge : plan->assignment.edges) {
        if (edge.from != cell.id && edge.to != cell.id) continue;
        const double times = edge.kind == EdgeKind::kReplicas ? 1.0 / apart : 16;
        sent += times * static_cast<double>(WithChunkHeaders(edge.SentBy(cell.id).bytes));
        received += times * static_cast<double>(WithChunkHeaders(edge.SentTo(cell.id).bytes));
      }
      busiest = std::max({busiest, sent, received});
    }
    EXPECT_NEAR(prediction.floor_seconds, busiest / GoodputBytesPerSecond(10'000'000), 1e-6);
    EXPECT_NEAR(static_cast<double>(prediction.busiest_bytes), busiest, 2);
    EXPECT_GE(prediction.lower_bound_seconds, prediction.floor_seconds);
    EXPECT_LE(prediction.lower_bound_seconds, prediction.step_seconds);
    // All but the optimizer's overlap and a few latencies.
    EXPECT_GT(prediction.lower_bound_seconds, 0.8 * prediction.step_seconds) << gradients;
  }
}

TEST(PlanOfReplicas, KeepsTheSplitOfItsCheckpoint) {
  PlanRequest request = RequestOf(2, 2);
  const auto first = MakePlan(request);
  ASSERT_TRUE(first.ok());
  request.resume = ResumePoint{.step = 5, .cells = first->assignment.cells};
  for (Cell& cell : request.resume->cells) {
    cell.layers = cell.id.stage == 0 ? LayerRange{0, 3} : LayerRange{3, 5};
  }
  const auto again = MakePlan(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->assignment.start_step, 5u);
  for (const Cell& cell : again->assignment.cells) {
    EXPECT_EQ(cell.layers.count, cell.id.stage == 0 ? 3u : 5u);
  }
}

TEST(PlanOfReplicas, SharesMomentsInMemory) {
  RunSpec spec = Request(1).spec;
  spec.checkpoint.every = 0;
  const auto state = [&] { return StageStateBytes(spec, 256, 4, true, false); };
  const uint64_t parameters = StageParameters(spec.model, 256, 4, true, false);
  EXPECT_EQ(state(), 12 * parameters);
  spec.replicas.count = 2;
  EXPECT_EQ(state(), 8 * parameters);
  spec.replicas.parameters = replicas::ParameterForm::kBf16;
  EXPECT_EQ(state(), 10 * parameters);
  spec.replicas.gradients.form = replicas::GradientForm::kTagc;
  EXPECT_EQ(state(), 14 * parameters);
  const uint64_t with_residual = MemoryOf(spec, 256, 4, true, false).fixed;
  spec.replicas.gradients.form = replicas::GradientForm::kBf16;
  // In memory, and in one snapshot.
  EXPECT_EQ(with_residual - MemoryOf(spec, 256, 4, true, false).fixed, 8 * parameters);
}

// A run of 2 replicas of 2 stages, on workers of two devices each that all have timed 2 ranks.
PlanRequest RequestOfGroups() {
  PlanRequest request = Groups(4, /*devices=*/2, /*ranks=*/2);
  request.spec.replicas.count = 2;
  request.spec.replicas.gradients.form = replicas::GradientForm::kSdp4bit;
  return request;
}

TEST(PlanOfReplicas, RanksShareEachStageOfEachReplica) {
  const auto plan = MakePlan(RequestOfGroups());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckAssignment(plan->assignment).ok()) << CheckAssignment(plan->assignment);
  for (const Cell& cell : plan->assignment.cells) {
    EXPECT_EQ(cell.group, (Group{2, 1}));
    EXPECT_THAT(cell.devices, ElementsAre(0, 1));
  }
  for (const CellEstimate& cell : plan->cells) EXPECT_TRUE(cell.group.has_value());
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("2 replicas of 2 stages of 2 ranks"),
                    HasSubstr("hidden states by host, their gradients by zip over host"),
                    HasSubstr("(with none and none)"), HasSubstr("gradients (sdp4bit"),
                    HasSubstr("what sets that bound is the ")));
}

TEST(PlanOfReplicas, SplitsForTheSlowestGroupOfEachStage) {
  PlanRequest request = RequestOfGroups();
  v1::GroupPass& block =
      *request.workers[3].times.mutable_groups(0)->mutable_block();  // replica 1, stage 1
  block.set_forward(3 * block.forward());
  block.set_backward(3 * block.backward());
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const Cell& cell : plan->assignment.cells) {
    EXPECT_EQ(cell.layers.count, cell.id.stage == 0 ? 6u : 2u) << ToString(cell.id);
  }
}

TEST(PlanOfReplicas, NamesTheWorkerThatCannotShareItsStage) {
  PlanRequest request = RequestOfGroups();
  request.workers[3].devices = {0};
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              HasSubstr("and worker w3 offers 1 on its CPU"));
}

TEST(PlanOfReplicas, ChooseTheNumberOfRanks) {
  PlanRequest request = RequestOfGroups();
  request.spec.group = {};
  request.spec.group.tensor_auto = true;
  for (const double forward : {0.006, 0.02}) {
    for (CandidateWorker& worker : request.workers) {
      worker.times.mutable_groups(0)->mutable_block()->set_forward(forward);
    }
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const uint32_t best = forward < 0.01 ? 2 : 1;
    ASSERT_EQ(plan->prediction.ranks.size(), 2u);
    EXPECT_EQ(plan->prediction.ranks[best - 1].step_seconds, plan->prediction.step_seconds);
    for (const Cell& cell : plan->assignment.cells) EXPECT_EQ(cell.group.tensor, best);
  }
}

TEST(PlanOfReplicas, CountWhatRanksExchangeInTheHostsMemory) {
  RunSpec spec = Request(1).spec;
  const auto host = [&spec](uint32_t replicas, uint32_t ranks) {
    spec.replicas.count = replicas;
    spec.group.tensor = ranks;
    return MemoryOf(spec, 256, 4, true, false, /*on_gpu=*/true).host;
  };
  const auto state = [&spec](uint32_t replicas) {
    spec.replicas.count = replicas;
    return StageStateBytes(spec, 256, 4, true, false);
  };
  const uint64_t parameters = StageParameters(spec.model, 256, 4, true, false);
  // The exchange of ranks is in the host's memory: parameters and gradients of each rank, whole
  // ones, and gradients, masters and moments of the own half. Snapshots of ranks have no moments.
  const uint64_t more = (host(2, 2) - host(2, 1)) - (host(1, 2) - host(1, 1));
  spec.group.tensor = 2;
  const uint64_t of_ranks = 2 * RankParameters(spec, 256, 4, true, false);
  EXPECT_GT(of_ranks, parameters);
  EXPECT_EQ(more + state(1) - state(2), 8 * parameters + 8 * of_ranks + 16 * parameters / 2);
}

TEST(PlanOfReplicas, CountWhatOneRankExchangesInItsGpusMemory) {
  RunSpec spec = Request(1).spec;
  const auto fixed = [&spec](uint32_t replicas, bool on_gpu) {
    spec.replicas.count = replicas;
    return MemoryOf(spec, 256, 4, true, false, on_gpu).fixed;
  };
  const uint64_t parameters = StageParameters(spec.model, 256, 4, true, false);
  constexpr uint64_t kBucket = uint64_t{4} << 22;
  // Gradients and masters of the half, instead of the other half's moments; room for coding.
  EXPECT_EQ(fixed(2, true), fixed(1, true) + 6 * kBucket);
  spec.replicas.gradients = *replicas::ParseGradients("sdp4bit:feedback=on");
  EXPECT_EQ(fixed(2, true), fixed(1, true) + 6 * kBucket + 4 * parameters);
  // One that trains apart has all moments there, and all else in the host's memory.
  spec.replicas.gradients = *replicas::ParseGradients("local-sgd:steps=5");
  EXPECT_EQ(fixed(2, true), fixed(1, true));
  // Muon's buckets have whole matrices.
  spec.replicas.gradients = {};
  spec.train.optimizer.kind = OptimizerKind::kMuon;
  spec.model.hidden = 4096;
  const uint64_t largest = uint64_t{4} * 4 * spec.model.hidden * spec.model.hidden;
  const uint64_t numbers = 4 * StageParameters(spec.model, 256, 4, true, false);
  const uint64_t moments = 4 * StageMoments(spec, 256, 4, true, false);
  EXPECT_EQ(fixed(2, true), fixed(1, true) + numbers - moments / 2 + 6 * largest);
}

TEST(PlanOfReplicas, WantsAsManyWorkersForEach) {
  PlanRequest request = RequestOf(2, 2);
  request.workers.pop_back();
  EXPECT_EQ(MakePlan(request).status().code(), absl::StatusCode::kInvalidArgument);
  RunSpec spec = request.spec;
  spec.pipeline.stages.reset();
  EXPECT_EQ(StageCount(spec, 7), 3u);
  EXPECT_EQ(StageCount(spec, 1), std::nullopt);
  spec.pipeline.stages = 4;
  EXPECT_EQ(StageCount(spec, 7), std::nullopt);
  EXPECT_EQ(StageCount(spec, 8), 4u);
}

// A replica that has time to spare has the depths of the slowest, and no step of it is longer.
TEST(DepthsOfReplicas, AreThoseOfTheSlowestWhereThatCostsNothing) {
  PlanRequest request = Request(6);
  request.spec.replicas.count = 2;
  for (size_t w = 0; w < 6; ++w) {
    CandidateWorker& worker = request.workers[w];
    worker.egress_bits_per_second = worker.ingress_bits_per_second = w < 3 ? 40e6 : 25e6;
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto setting = [&](const Plan& of, uint32_t replica, uint32_t stage) {
    return of.assignment.Find(CellId{replica, stage})->setting;
  };
  for (uint32_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(setting(*plan, 0, stage), setting(*plan, 1, stage));
  }
  // The slowest as if it were alone.
  PlanRequest alone = request;
  alone.spec.replicas.count = 1;
  alone.workers.erase(alone.workers.begin(), alone.workers.begin() + 3);
  const auto slowest = MakePlan(alone);
  ASSERT_TRUE(slowest.ok()) << slowest.status();
  for (uint32_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(setting(*plan, 1, stage), setting(*slowest, 0, stage));
  }
  EXPECT_NEAR(plan->prediction.step_seconds - plan->prediction.exchange_seconds,
              slowest->prediction.step_seconds, 1e-9);
  // One that lacks the memory has what it holds.
  request.workers[1].memory_bytes =
      plan->assignment.cells[1].memory_bytes - plan->cells[1].memory_per_flight_bytes;
  const auto small = MakePlan(request);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_LT(setting(*small, 0, 1).depth, setting(*plan, 0, 1).depth);
}

}  // namespace
}  // namespace longhaul::coordinator
