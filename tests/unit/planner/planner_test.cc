#include "planner/planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>

#include "codec/registry.h"
#include "planner/memory.h"
#include "run/file/run_spec.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<uint32_t> LayersOf(const Plan& plan) {
  std::vector<uint32_t> layers;
  for (const Cell& cell : plan.assignment.cells) layers.push_back(cell.layers.count);
  return layers;
}

TEST(MakePlan, EqualWorkersGetEqualLayersAndFullDepth) {
  const PlanRequest request = Request(4);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{2, 2, 2, 2}));
  EXPECT_EQ(plan->assignment.run, RunId("tiny-1"));
  EXPECT_EQ(plan->assignment.epoch, Epoch(3));
  EXPECT_EQ(plan->assignment.start_step, 0u);
  EXPECT_EQ(plan->assignment.cells[2].layers.first, 4u);
  for (const Cell& cell : plan->assignment.cells) {
    EXPECT_EQ(cell.setting.depth, 16u);
    EXPECT_EQ(cell.setting.threads, 1u);
    EXPECT_EQ(cell.devices, (std::vector<uint32_t>{0}));
    EXPECT_EQ(cell.roles.embedding, cell.id.stage == 0);
    EXPECT_EQ(cell.roles.head, cell.id.stage == 3);
  }
  for (const CellEstimate& cell : plan->cells) {
    EXPECT_DOUBLE_EQ(cell.forward_seconds, 0.02);
    EXPECT_DOUBLE_EQ(cell.backward_seconds, 0.04);
  }
  EXPECT_EQ(CheckAssignment(plan->assignment), absl::OkStatus());
  EXPECT_EQ(plan->assignment.edges.size(), 3u);
  // No link costs time: 16 microbatches and the fill and drain of three other stages.
  EXPECT_NEAR(plan->prediction.step_seconds, 0.06 * (16 + 3), 1e-6);
  EXPECT_LE(plan->prediction.lower_bound_seconds, plan->prediction.step_seconds + 1e-9);
  EXPECT_THAT(plan->prediction.bottleneck, HasSubstr("compute"));
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("w0 has 2 layers"), HasSubstr("count as unlimited"),
                    HasSubstr("compute of stage")));
}

TEST(MakePlan, GpusThatTheRunDoesNotUseAreNamed) {
  PlanRequest request = Groups(2, /*devices=*/4, /*ranks=*/2);
  EXPECT_THAT(MakePlan(request)->explanation, Not(HasSubstr("GPUs and uses")));
  for (CandidateWorker& worker : request.workers) worker.on_gpu = true;
  EXPECT_THAT(
      MakePlan(request)->explanation,
      HasSubstr("w0 has 4 GPUs and uses 2, w1 has 4 GPUs and uses 2: a worker has one stage "
                "at a time"));
  EXPECT_THAT(MakePlan(Groups(2, 2, 2))->explanation, Not(HasSubstr("GPUs and uses")));
}

// Nobody may notice what it costs, unless somebody has to say that it is wanted.
TEST(MakePlan, ATiedMatrixThatTakesMuchOfAStepHasToBeSaid) {
  PlanRequest request = Request(3);
  request.spec.model.vocabulary = 5000;
  request.spec.model.tied = true;
  request.spec.weights.from = "hf://ORG/NAME";
  request.spec.weights.tied_unsaid = true;
  SetLines(&request, 8e6);
  const Status refused = MakePlan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("embedding and head of hf://ORG/NAME are one matrix"),
                    HasSubstr("`model: { tied: split }`"), HasSubstr("`tied: true` keeps one")));
  PlanRequest said = request;
  said.spec.weights.tied_unsaid = false;
  EXPECT_TRUE(MakePlan(said).ok());
  // A run that has begun goes on, however slow its lines have become.
  PlanRequest resumed = request;
  resumed.resume = ResumePoint{.step = 5, .cells = {}};
  EXPECT_TRUE(MakePlan(resumed).ok());
  // Where lines are fast it costs next to nothing, and on one stage nothing.
  PlanRequest fast = request;
  SetLines(&fast, 100e9);
  EXPECT_TRUE(MakePlan(fast).ok()) << MakePlan(fast).status();
  PlanRequest alone = request;
  alone.workers.resize(1);
  EXPECT_TRUE(MakePlan(alone).ok());
  PlanRequest validates = request;
  validates.spec.train.steps = 0;
  EXPECT_TRUE(MakePlan(validates).ok());
}

TEST(MakePlan, ATiedMatrixHasAnEdgeOfItsOwn) {
  PlanRequest request = Request(3);
  request.spec.model.vocabulary = 5000;
  request.spec.pipeline.schedule = ScheduleKind::kGpipe;
  SetLines(&request, 8e6);  // 1 MB a second
  const auto untied = MakePlan(request);
  ASSERT_TRUE(untied.ok()) << untied.status();
  EXPECT_EQ(untied->assignment.edges.size(), 2u);

  request.spec.model.tied = true;
  request.workers[2].to[WorkerId("id0")] = {.bits_per_second = 4e6,
                                            .latency = absl::Milliseconds(10)};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(CheckAssignment(plan->assignment), absl::OkStatus());
  ASSERT_EQ(plan->assignment.edges.size(), 3u);
  const Edge& edge = plan->assignment.edges.back();
  EXPECT_EQ(edge.kind, EdgeKind::kTied);
  EXPECT_EQ(edge.from, (CellId{0, 0}));
  EXPECT_EQ(edge.to, (CellId{0, 2}));
  EXPECT_EQ(edge.transport, "ucx");
  // A step reads 16 x 256 tokens, about 2,270 different ones.
  EXPECT_NEAR(static_cast<double>(edge.forward.bytes) / (256 * 4), 2270, 10);
  EXPECT_EQ(edge.backward.bytes, 5000u * 256 * 4);
  EXPECT_DOUBLE_EQ(edge.backward.bits_per_second, 4e6);
  EXPECT_DOUBLE_EQ(edge.backward.latency_seconds, 0.01);
  EXPECT_EQ(edge.forward.codec, "none");
  ASSERT_EQ(plan->prediction.edges.size(), 3u);
  EXPECT_GT(plan->prediction.edges[2].backward.busy_share, 0.05);
  // What the embedding sends comes after all else.
  EXPECT_GT(plan->prediction.step_seconds, untied->prediction.step_seconds + 2.32);
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("w0 and w2 hold the one matrix of embedding and head"),
                    HasSubstr("about 2.32 MB and 5.12 MB a step, which takes 10.3 s; with "
                              "model.tied: false nothing would be sent"),
                    HasSubstr("1280000 parameters more")));
  const auto& cells = plan->assignment.cells;
  const uint64_t matrix = 5000 * 256;
  // Value, gradient, moments and two snapshots of them; the embedding's rows, and pieces.
  EXPECT_EQ(cells[2].memory_bytes,
            untied->assignment.cells[2].memory_bytes + 4096 * 256 * 4 + (32u << 20));
  EXPECT_EQ(cells[0].memory_bytes,
            untied->assignment.cells[0].memory_bytes + matrix * 4 + (32u << 20));

  // Begun as one, trained apart.
  request.spec.model.tied = false;
  request.spec.weights.split = true;
  const auto split = MakePlan(request);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->assignment.edges.size(), 2u);
  EXPECT_THAT(split->explanation,
              HasSubstr("With model.tied: true w0 and w2 would send each other up to 5.12 MB a "
                        "step"));

  // Nothing of it changes.
  request.spec.weights.split = false;
  request.spec.model.tied = true;
  request.spec.model.lora = LoraSpec{.rank = 4, .alpha = 8, .targets = {"attn.qkv"}};
  const auto lora = MakePlan(request);
  ASSERT_TRUE(lora.ok()) << lora.status();
  EXPECT_EQ(lora->assignment.edges.size(), 2u);
  EXPECT_THAT(lora->explanation, Not(HasSubstr("tied")));
}

// Both ends apply the same update, so they have to round alike.
TEST(MakePlan, ATiedMatrixWantsWorkersOfOneKindAtItsEnds) {
  PlanRequest request = Request(3);
  request.spec.model.tied = true;
  const auto refusal = [&] { return std::string(Message(MakePlan(request).status())); };
  request.workers[1].on_gpu = true;
  EXPECT_TRUE(MakePlan(request).ok()) << refusal();
  request.workers[2].on_gpu = true;
  EXPECT_THAT(refusal(), HasSubstr("compute on its CPU and on a GPU, which do not round alike"));
  request.workers[0].on_gpu = true;
  request.workers[0].device = "NVIDIA H100";
  EXPECT_TRUE(MakePlan(request).ok()) << refusal();
  request.workers[2].device = "NVIDIA A100";
  EXPECT_THAT(refusal(), HasSubstr("on NVIDIA H100 and on NVIDIA A100"));
  request.spec.model.tied = false;
  EXPECT_TRUE(MakePlan(request).ok()) << refusal();
}

// Which are no neighbours, of which links.workers speaks.
TEST(MakePlan, TheEndsOfATiedMatrixMayHaveExceptionsOfTheirOwn) {
  PlanRequest request = Request(3);
  request.spec.model.tied = true;
  request.spec.transport = TransportKind::kUcx;
  request.spec.links.by_worker = {{"w0", {{"none", "none"}, TransportKind::kGrpc}},
                                  {"w2", {{"none", "none"}, TransportKind::kUcx}}};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.edges[0].transport, "grpc");
  EXPECT_EQ(plan->assignment.edges[1].transport, "ucx");
  EXPECT_EQ(plan->assignment.edges[2].transport, "ucx");
}

TEST(MakePlan, CarriesTheWholeRunFile) {
  const PlanRequest request = Request(2);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  const auto spec = ParseRunSpec(plan->assignment.run_yaml, "plan", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train.microbatches, 16u);
}

TEST(MakePlan, SlowWorkersAndHeadsGetFewerLayers) {
  PlanRequest request = Request(2);
  request.workers[1].times.set_block_forward(0.03);
  request.workers[1].times.set_block_backward(0.06);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{6, 2}));
  request = Request(2);
  request.workers[1].times.set_head_forward(0.03);
  request.workers[1].times.set_head_backward(0.09);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{6, 2}));
}

TEST(MakePlan, MemoryMovesLayersAndLowersDepth) {
  PlanRequest request = Request(2);
  const auto needed = [&](uint32_t layers, uint32_t depth) {
    return StageMemoryBytes(request.spec, 256, layers, true, false, depth);
  };
  request.workers[0].memory_bytes = needed(3, 1) + 10;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{3, 5}));
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 1u);
  EXPECT_LE(plan->assignment.cells[0].memory_bytes, request.workers[0].memory_bytes);
  EXPECT_THAT(plan->explanation, AllOf(HasSubstr("Memory is short: w0 holds 1 of 16 microbatches"),
                                       HasSubstr("% of speed")));

  request.workers[0].memory_bytes = needed(4, 5);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{4, 4}));
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 5u);
  EXPECT_EQ(plan->assignment.cells[0].memory_bytes, request.workers[0].memory_bytes);
}

TEST(MakePlan, ASplitThatNowhereFitsIsRefusedWithNumbers) {
  PlanRequest request = Request(2);
  request.workers[1].memory_bytes = 1'000'000;
  const auto plan = MakePlan(request);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(plan.status())),
              AllOf(HasSubstr("stage 1"), HasSubstr("worker w1 has"), HasSubstr("(1000000 bytes)"),
                    HasSubstr("recompute")));
}

// Workers on GPUs whose hosts have `bytes` each.
PlanRequest OnGpus(uint32_t workers, uint64_t bytes) {
  PlanRequest request = Request(workers);
  for (CandidateWorker& worker : request.workers) {
    worker.on_gpu = true;
    worker.host_memory_bytes = bytes;
  }
  return request;
}

TEST(MakePlan, TheHostsMemoryOfAGpuMovesLayers) {
  PlanRequest request = OnGpus(2, uint64_t{64} << 30);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{4, 4}));
  EXPECT_THAT(plan->explanation, Not(HasSubstr("host")));

  const auto host = [&](uint32_t layers) {
    return MemoryOf(request.spec, 256, layers, true, false, /*on_gpu=*/true).host;
  };
  request.workers[0].host_memory_bytes = host(3);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{3, 5}));
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("Beside its GPU w0 holds"), Not(HasSubstr("its GPU w1 holds"))));

  request.workers[0].on_gpu = false;  // its snapshots are in the memory that is its device's
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{4, 4}));
}

TEST(MakePlan, AHostThatHoldsNoSnapshotIsRefusedWithNumbers) {
  PlanRequest request = OnGpus(2, uint64_t{64} << 30);
  request.workers[1].host_memory_bytes = 1'000'000;
  const auto plan = MakePlan(request);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  const uint64_t needed = MemoryOf(request.spec, 256, 4, false, true, /*on_gpu=*/true).host;
  EXPECT_THAT(std::string(Message(plan.status())),
              AllOf(HasSubstr("stage 1 (4 of 8 layers) needs"),
                    HasSubstr(fmt::format("({} bytes) of its host's memory", needed)),
                    HasSubstr("worker w1 has 1 MB (1000000 bytes) beside its GPU"),
                    HasSubstr("use more workers, or hosts with more memory"),
                    HasSubstr("recovery.every: 0")));
}

TEST(MakePlan, AHostsUnknownMemoryIsSaidSo) {
  PlanRequest request = OnGpus(2, uint64_t{64} << 30);
  request.workers[1].host_memory_bytes = 0;  // an older worker
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->explanation,
              HasSubstr("w1 does not say how much memory its host has beside the GPU"));
}

TEST(MakePlan, UnknownMemoryIsSaidSo) {
  PlanRequest request = Request(2);
  request.workers[0].memory_bytes = 0;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 16u);
  EXPECT_EQ(plan->cells[0].depth_by_memory, 0u);
  EXPECT_THAT(plan->explanation, HasSubstr("w0 does not say how much memory"));
}

TEST(MakePlan, ARankHasADeviceAndAStageTheTimeOfAllItsRanks) {
  const PlanRequest request = Groups(2, /*devices=*/3, /*ranks=*/2);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t s = 0; s < 2; ++s) {
    const Cell& cell = plan->assignment.cells[s];
    EXPECT_EQ(cell.group, (Group{.tensor = 2, .expert = 1}));
    EXPECT_EQ(cell.devices, (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(cell.setting.threads, 1u);
    EXPECT_DOUBLE_EQ(plan->cells[s].forward_seconds, 4 * 0.006);
    EXPECT_DOUBLE_EQ(plan->cells[s].backward_seconds, 4 * 0.011);
    const GroupEstimate& group = plan->cells[s].group.value();
    EXPECT_EQ(group.forward_collective, "host");
    EXPECT_EQ(group.backward_collective, "zip over host");
    EXPECT_EQ(group.sent.all_reduce, 4000u);
    EXPECT_EQ(group.sent.all_gather, s == 1 ? 10u : 0u);
    EXPECT_DOUBLE_EQ(group.collective_seconds.value(), 0.006);
    EXPECT_DOUBLE_EQ(group.even_share_seconds, 4 * 0.03 / 2);
    EXPECT_EQ(plan->cells[s].device_kind, "cpu");
    EXPECT_EQ(cell.memory_bytes,
              MemoryOf(request.spec, 256, 4, s == 0, s == 1).At(cell.setting.depth));
  }
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("Ranks share each stage (group.tensor): 2 ranks on cpu 0-1 of w0, 2 "
                              "ranks on cpu 0-1 of w1."),
                    HasSubstr("Ranks of a stage send each other up to 64.2 KB a step (hidden "
                              "states by host, their gradients by zip over host), in "
                              "collectives that take up to 96 ms of it"),
                    HasSubstr("one device's time divided evenly would be up to 128 ms less")));
  EXPECT_EQ(CheckAssignment(plan->assignment), absl::OkStatus());
}

// Embedding and head were timed with what ranks exchange around layers, blocks without.
TEST(MakePlan, WhatRanksExchangeAroundLayersCountsOnceAStage) {
  const auto gathered = [](uint32_t workers, Recompute recompute) {
    PlanRequest request = Groups(workers, /*devices=*/2, /*ranks=*/2);
    request.spec.pipeline.recompute = recompute;
    for (CandidateWorker& worker : request.workers) {
      v1::GroupTimes& group = *worker.times.mutable_groups(0);
      group.mutable_head()->Clear();
      for (v1::GroupPass* pass :
           {group.mutable_embedding(), group.mutable_head(), group.mutable_ends()}) {
        pass->set_forward(0.001);
        pass->set_backward(0.002);
        pass->set_collective_seconds(0.0005);
        pass->mutable_sent()->set_all_gather(100);
      }
    }
    const auto plan = MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<uint64_t> sent;
    for (size_t s = 0; plan.ok() && s < plan->cells.size(); ++s) {
      const CellEstimate& cell = plan->cells[s];
      const uint32_t layers = plan->assignment.cells[s].layers.count;
      const auto times = static_cast<double>(cell.group->sent.all_gather) / 100;
      EXPECT_NEAR(cell.forward_seconds, layers * 0.006 + times * 0.001, 1e-12);
      EXPECT_NEAR(cell.backward_seconds, layers * 0.011 + times * 0.002, 1e-12);
      EXPECT_NEAR(cell.group->collective_seconds.value(), layers * 0.0015 + times * 0.0005, 1e-12);
      sent.push_back(cell.group->sent.all_gather);
    }
    return sent;
  };
  EXPECT_THAT(gathered(1, Recompute::kNone), ElementsAre(100));
  EXPECT_THAT(gathered(4, Recompute::kStage), ElementsAre(100, 100, 100, 100));
  // Blocks that are recomputed one by one, two a stage, are each gone through in one go.
  EXPECT_THAT(gathered(4, Recompute::kBlocks), ElementsAre(200, 200, 200, 200));
}

TEST(MakePlan, AWorkerWithTooFewDevicesIsNamed) {
  PlanRequest request = Groups(2, /*devices=*/2, /*ranks=*/2);
  request.workers[1].devices = {0};
  EXPECT_EQ(Message(MakePlan(request).status()),
            "expected workers with 2 devices of one kind, one for each rank of a stage "
            "(group.tensor), and worker w1 offers 1 on its CPU; start it with --device cpu,cpu, or "
            "set group.tensor to 1");
  request.workers[0].on_gpu = request.workers[1].on_gpu = true;
  request.workers[0].devices = {0, 1, 2};
  request.workers[1].devices = {0, 1};
  request.spec.group.tensor = 4;
  const auto plan = MakePlan(request);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(plan.status())),
              HasSubstr("worker w0 offers 3 of its GPUs; start it with --device cuda:0-3, or set "
                        "group.tensor to 3"));
}

TEST(MakePlan, RanksOnACpuShareItsCores) {
  PlanRequest request = Groups(2, /*devices=*/2, /*ranks=*/2, /*cores=*/6);
  request.spec.pipeline.threads_per_stage = 4;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells[0].setting.threads, 3u);
  EXPECT_THAT(plan->explanation,
              HasSubstr("w0 has 6 cores for 2 ranks, so each has 3 of the 4 threads that "
                        "pipeline.threads_per_stage asks for."));
  request.workers[0].cores = 0;  // not known
  EXPECT_EQ(MakePlan(request)->assignment.cells[0].setting.threads, 4u);
}

TEST(MakePlan, AGroupHoldsWhatNoSingleDeviceDoes) {
  PlanRequest request = Groups(2, /*devices=*/4, /*ranks=*/1);
  request.spec.model.hidden = 1024;
  const uint64_t alone = MemoryOf(request.spec, 256, 4, true, false).At(1);
  for (CandidateWorker& worker : request.workers) worker.memory_bytes = alone * 2 / 3;
  EXPECT_THAT(std::string(Message(MakePlan(request).status())), HasSubstr("no other split fits"));
  request.spec.group.tensor = 4;
  for (CandidateWorker& worker : request.workers) TimeGroup(4, 0.01, 0.02, &worker);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (CandidateWorker& worker : request.workers) worker.memory_bytes = 1'000'000;
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              HasSubstr("on the device of each of its 4 ranks, and worker w"));
}

TEST(MakePlan, RanksThatAWorkerDidNotTimeAreRefused) {
  PlanRequest request = Groups(2, /*devices=*/2, /*ranks=*/2);
  request.workers[1].times.clear_groups();
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              HasSubstr("expected worker w1 to have timed a stage of 2 ranks"));
  v1::GroupTimes& refused = *request.workers[1].times.add_groups();
  refused.set_tensor(2);
  refused.set_refused("its heads are 3");
  const auto plan = MakePlan(request);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(plan.status()), "2 ranks on worker w1: its heads are 3");
}

TEST(MakePlan, MoreStagesThanLayersAreRefused) {
  EXPECT_EQ(MakePlan(Request(9)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakePlan(Request(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakePlan, ResumeKeepsTheSplit) {
  PlanRequest request = Request(2);
  const ResumePoint checkpoint{.step = 50,
                               .cells = {{.worker = WorkerId("id0"), .layers = {0, 1}},
                                         {.worker = WorkerId("id1"), .layers = {1, 7}}}};
  request.resume = checkpoint;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{1, 7}));
  EXPECT_EQ(plan->assignment.start_step, 50u);
  EXPECT_THAT(plan->explanation, HasSubstr("checkpoint of step 50"));

  // Other places, other numbers of stages, or not enough memory: balanced anew.
  std::swap(request.workers[0], request.workers[1]);
  const auto swapped = MakePlan(request);
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_EQ(LayersOf(*swapped), LayersOf(*MakePlan(Request(2))));
  EXPECT_EQ(swapped->assignment.start_step, 50u);
  request = Request(3);
  request.resume = checkpoint;
  const auto three = MakePlan(request);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(LayersOf(*three), LayersOf(*MakePlan(Request(3))));
}

TEST(MakePlan, IsStopped) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e7);
  std::stop_source stop;
  EXPECT_TRUE(MakePlan(request, stop.get_token()).ok());
  stop.request_stop();
  EXPECT_EQ(MakePlan(request, stop.get_token()).status().code(), absl::StatusCode::kCancelled);
}

TEST(MakePlan, SaysWhatASearchLeftOut) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e7);
  EXPECT_EQ(MakePlan(request)->prediction.cut_short, "");
  request = Request(27);
  request.spec.model.layers = 27;
  SetLines(&request, 1e7);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->prediction.cut_short, HasSubstr("depths of 27 stages were searched coarsely"));
  EXPECT_THAT(plan->explanation, HasSubstr(plan->prediction.cut_short));
}

TEST(StageCount, FixedOrAuto) {
  RunSpec spec = Request(1).spec;
  EXPECT_EQ(StageCount(spec, 0), std::nullopt);
  EXPECT_EQ(StageCount(spec, 3), 3u);
  EXPECT_EQ(StageCount(spec, 30), 8u);
  spec.pipeline.stages = 4;
  EXPECT_EQ(StageCount(spec, 3), std::nullopt);
  EXPECT_EQ(StageCount(spec, 4), 4u);
  EXPECT_EQ(StageCount(spec, 9), 4u);
}

}  // namespace
}  // namespace longhaul::coordinator
