#include "coordinator/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config/run_spec.h"
#include "codec/registry.h"
#include "coordinator/planner/pipeline_cost.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::DataEndpoint Endpoint(const std::string& transport, const std::string& address) {
  v1::DataEndpoint endpoint;
  endpoint.set_transport(transport);
  endpoint.add_addresses(address);
  return endpoint;
}

PlanRequest Request(uint32_t workers) {
  PlanRequest request;
  request.run = RunId("tiny-1");
  request.epoch = Epoch(3);
  request.spec.name = "tiny";
  request.spec.model.layers = 8;
  request.spec.model.hidden = 256;
  request.spec.model.heads = 8;
  request.spec.model.context = 256;
  request.spec.data.text = {"corpus.txt"};
  request.spec.train.steps = 10;
  request.spec.train.microbatches = 16;
  request.spec.links.codecs = {"none", "none"};
  request.data.set_vocabulary(256);
  for (uint32_t i = 0; i < workers; ++i) {
    CandidateWorker worker;
    worker.id = WorkerId("id" + std::to_string(i));
    worker.incarnation = Incarnation("inc" + std::to_string(i));
    worker.name = "w" + std::to_string(i);
    worker.memory_bytes = uint64_t{64} << 30;
    worker.endpoints = {Endpoint("ucx", "10.0.0.1:1"), Endpoint("grpc", "10.0.0.1:2")};
    worker.times.set_block_forward(0.01);
    worker.times.set_block_backward(0.02);
    request.workers.push_back(worker);
  }
  return request;
}

std::vector<uint32_t> LayersOf(const v1::Plan& plan) {
  std::vector<uint32_t> layers;
  for (const auto& stage : plan.stages()) layers.push_back(stage.layers());
  return layers;
}

TEST(MakePlan, EqualWorkersGetEqualLayersAndFullDepth) {
  const PlanRequest request = Request(4);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{2, 2, 2, 2}));
  EXPECT_EQ(plan->run_id(), "tiny-1");
  EXPECT_EQ(plan->epoch(), 3u);
  EXPECT_EQ(plan->start_step(), 0u);
  EXPECT_EQ(plan->stages(2).first_layer(), 4u);
  for (const auto& stage : plan->stages()) {
    EXPECT_EQ(stage.depth(), 16u);
    EXPECT_EQ(stage.threads(), 1u);
    EXPECT_DOUBLE_EQ(stage.forward_seconds(), 0.02);
    EXPECT_DOUBLE_EQ(stage.backward_seconds(), 0.04);
  }
  EXPECT_EQ(plan->links_size(), 3);
  // No link costs time: 16 microbatches and the fill and drain of three other stages.
  EXPECT_NEAR(plan->prediction().step_seconds(), 0.06 * (16 + 3), 1e-6);
  EXPECT_LE(plan->prediction().lower_bound_seconds(), plan->prediction().step_seconds() + 1e-9);
  EXPECT_THAT(plan->prediction().bottleneck(), HasSubstr("compute"));
  EXPECT_THAT(plan->explanation(),
              AllOf(HasSubstr("w0 has 2 layers"), HasSubstr("count as unlimited"),
                    HasSubstr("compute of stage")));
}

TEST(MakePlan, CarriesTheWholeRunFile) {
  const PlanRequest request = Request(2);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  const auto spec = ParseRunSpec(plan->run_yaml(), "plan", {}, codec::CheckCodec);
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
  EXPECT_EQ(plan->stages(0).depth(), 1u);
  EXPECT_LE(plan->stages(0).memory_bytes(), request.workers[0].memory_bytes);
  EXPECT_THAT(
      plan->explanation(),
      AllOf(HasSubstr("Memory is short: w0 holds 1 of 16 microbatches"), HasSubstr("% of speed")));

  request.workers[0].memory_bytes = needed(4, 5);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{4, 4}));
  EXPECT_EQ(plan->stages(0).depth(), 5u);
  EXPECT_EQ(plan->stages(0).memory_bytes(), request.workers[0].memory_bytes);
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

TEST(MakePlan, UnknownMemoryIsSaidSo) {
  PlanRequest request = Request(2);
  request.workers[0].memory_bytes = 0;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->stages(0).depth(), 16u);
  EXPECT_EQ(plan->stages(0).depth_by_memory(), 0u);
  EXPECT_THAT(plan->explanation(), HasSubstr("w0 does not say how much memory"));
}

TEST(MakePlan, DepthFollowsScheduleAndRunFile) {
  PlanRequest request = Request(3);
  request.spec.pipeline.schedule = ScheduleKind::kOneFOneB;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->stages(0).depth(), 3u);
  EXPECT_EQ(plan->stages(2).depth(), 1u);
  request.spec.pipeline.schedule = ScheduleKind::kGpipe;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->stages(2).depth(), 16u);
  request.spec.pipeline.schedule = ScheduleKind::kLinkAware;
  request.spec.pipeline.depth = 4;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->stages(0).depth(), 4u);
}

std::vector<uint32_t> DepthsOf(const v1::Plan& plan) {
  std::vector<uint32_t> depths;
  for (const auto& stage : plan.stages()) depths.push_back(stage.depth());
  return depths;
}

std::vector<uint32_t> LeadsOf(const v1::Plan& plan) {
  std::vector<uint32_t> leads;
  for (const auto& stage : plan.stages()) leads.push_back(stage.activation_lead());
  return leads;
}

void SetLines(PlanRequest* request, double bits_per_second) {
  for (CandidateWorker& worker : request->workers) {
    worker.egress_bits_per_second = worker.ingress_bits_per_second = bits_per_second;
  }
}

TEST(MakePlan, ActivationsGoFirstWhereRatesAreNotKnownAndMemoryAllows) {
  PlanRequest request = Request(4);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 15, 15, 15}));
  EXPECT_EQ(DepthsOf(*plan), (std::vector<uint32_t>{16, 16, 16, 16}));
  EXPECT_THAT(plan->stages(0).depth_reason(), HasSubstr("rates are not known"));
  EXPECT_THAT(plan->explanation(), HasSubstr("15 of 16 microbatches ahead of gradients, because"));

  request.spec.pipeline.depth = 4;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 0, 0, 0}))
      << "gradients must leave to make room";
}

TEST(MakePlan, TheRunFilesOrderIsKept) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e6);
  request.spec.pipeline.send_order = SendOrder::kAsReady;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 0, 0, 0}));
  EXPECT_THAT(plan->prediction().order_reason(), HasSubstr("send_order: as-ready"));
  request.spec.pipeline.send_order = SendOrder::kActivationsFirst;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 15, 15, 15}));
  EXPECT_EQ(DepthsOf(*plan), (std::vector<uint32_t>{16, 16, 16, 16}));
  request.spec.pipeline.depth = 4;
  EXPECT_EQ(MakePlan(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MakePlan, FastLinksNeedLittleDepth) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e12);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 4, 3, 2, 1 would do if messages took no time at all.
  EXPECT_EQ(DepthsOf(*plan), (std::vector<uint32_t>{6, 5, 3, 1}));
  EXPECT_EQ(plan->stages(0).memory_bytes(), StageMemoryBytes(request.spec, 256, 2, true, false, 6));
  EXPECT_EQ(plan->stages(0).depth_by_memory(), 16u);
  EXPECT_THAT(plan->stages(0).depth_reason(), HasSubstr("more than 1% longer"));
  EXPECT_THAT(plan->explanation(), HasSubstr("have 6, 5, 3, 1 of 16 microbatches in flight"));
}

TEST(MakePlan, SlowLinksGetTheDepthThatMemoryHolds) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e7);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->stages(0).depth(), 8u);
  EXPECT_LE(plan->prediction().step_seconds(), 1.011 * plan->prediction().lower_bound_seconds());
  request.workers[0].memory_bytes = StageMemoryBytes(request.spec, 256, 2, true, false, 3);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(plan->stages(0).depth(), 3u);
  EXPECT_LE(plan->stages(0).memory_bytes(), request.workers[0].memory_bytes);
  EXPECT_LE(plan->stages(3).activation_lead(), 3u);
  EXPECT_GT(plan->prediction().step_seconds(),
            1.1 * plan->prediction().unlimited_depth_step_seconds());
  EXPECT_THAT(plan->explanation(), HasSubstr("Memory is short: w0 holds 3 of 16 microbatches"));
}

TEST(MakePlan, GradientsLeaveAtOnceWhereTheFirstStageIsSlow) {
  PlanRequest request = Request(8);
  SetLines(&request, 1e6);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->stages(4).activation_lead(), 8u);
  const uint32_t alike = plan->stages(4).activation_lead();
  request.workers[0].egress_bits_per_second = request.workers[0].ingress_bits_per_second = 4e5;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(plan->stages(4).activation_lead(), alike);
}

TEST(MakePlan, SaysWhereAStagesTimeGoes) {
  PlanRequest request = Request(3);
  SetLines(&request, 2e7);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->prediction().stages_size(), 3);
  ASSERT_EQ(plan->prediction().links_size(), 2);
  for (const v1::PredictedStage& stage : plan->prediction().stages()) {
    EXPECT_NEAR(stage.compute_seconds() + stage.codec_seconds() + stage.wait_above_seconds() +
                    stage.wait_below_seconds() + stage.optimizer_seconds(),
                plan->prediction().step_seconds(), 1e-6);
  }
  EXPECT_GT(plan->prediction().stages(1).egress_share(), 0.5);
}

TEST(MakePlan, PredictsOtherCodecsWhenAsked) {
  PlanRequest request = Request(3);
  SetLines(&request, 1e7);
  EXPECT_EQ(MakePlan(request)->prediction().codecs_size(), 0);
  request.with_codec_table = true;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> names;
  for (const auto& row : plan->prediction().codecs()) names.push_back(row.name());
  EXPECT_EQ(names,
            (std::vector<std::string>{"none (this run)", "bf16", "paper", "default", "gauss"}));
  const v1::CodecPrediction &own = plan->prediction().codecs(0),
                            &bf16 = plan->prediction().codecs(1);
  EXPECT_EQ(own.step_seconds(), plan->prediction().step_seconds());
  EXPECT_TRUE(own.codec_times_known());
  EXPECT_FALSE(bf16.codec_times_known());
  EXPECT_NEAR(own.step_seconds() / bf16.step_seconds(), 2, 0.1);
  EXPECT_NEAR(bf16.tokens_per_second() * bf16.step_seconds(), 16 * 256, 1e-6);
  // Each row is what planning with these codecs gives, with its depths at the most.
  PlanRequest other = request;
  other.spec.links.codecs = {"bf16", "bf16"};
  EXPECT_NEAR(MakePlan(other)->prediction().step_seconds(), bf16.step_seconds(),
              0.02 * bf16.step_seconds());
  request.spec.links.codecs = {"fp16", "none"};
  plan = MakePlan(request);
  ASSERT_EQ(plan->prediction().codecs_size(), 6);
  EXPECT_EQ(plan->prediction().codecs(5).name(), "this run");
  EXPECT_EQ(plan->prediction().codecs(5).forward_codec(), "fp16");
  request = Request(1);
  request.with_codec_table = true;
  EXPECT_EQ(MakePlan(request)->prediction().codecs_size(), 0) << "no links";
}

TEST(MakePlan, CodecsAreThoseOfTheSender) {
  PlanRequest request = Request(3);
  request.spec.links.codecs = {"none", "bf16"};
  request.spec.links.by_worker = {{"w1", {{"fp16", "fixed:bits=6"}, {}}},
                                  {"w9", {{"none", "none"}, {}}}};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->links(0).forward_codec(), "none");
  EXPECT_THAT(plan->links(0).backward_codec(), HasSubstr("fixed:bits=6"));
  EXPECT_EQ(plan->links(1).forward_codec(), "fp16");
  EXPECT_EQ(plan->links(1).backward_codec(), "bf16");
  const codec::Shape shape{1, 256, 256};
  EXPECT_EQ(plan->links(0).forward_bytes(), (*codec::ParseCodec("none"))->MaxEncodedBytes(shape));
  EXPECT_EQ(plan->links(0).backward_bytes(),
            (*codec::ParseCodec("fixed:bits=6"))->MaxEncodedBytes(shape));
  EXPECT_THAT(plan->explanation(),
              HasSubstr("an exception for worker w9, which has no stage here"));
}

TEST(MakePlan, CountsWhatCodecsRememberOnDisk) {
  PlanRequest request = Request(3);
  request.spec.links.codecs = {"aqsgd:bits=4", "fixed:bits=8"};
  request.spec.train.steps = 100;
  request.spec.checkpoint.every = 5;
  request.data.set_tokens(256 * 400 + 1 + 999);
  request.data.set_validation_tokens(999);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 400 windows, a record of 16 + 2 x 256 x 256 bytes to the next multiple of 64.
  const uint64_t one = 4096 + 4096 + 400 * uint64_t{131136};
  EXPECT_EQ(plan->stages(0).message_record_bytes(), one);
  EXPECT_EQ(plan->stages(1).message_record_bytes(), 2 * one);
  EXPECT_EQ(plan->stages(2).message_record_bytes(), one);
  // 16 sequences a step, of 4 intervals of 5 steps.
  EXPECT_GE(plan->stages(0).message_journal_bytes(), 320 * uint64_t{131088});
  EXPECT_LT(plan->stages(0).message_journal_bytes(), 322 * uint64_t{131088});
  EXPECT_THAT(plan->explanation(), HasSubstr("of disk on w1"));
  // A quarter of the 1,600 sequences is sent whole.
  const auto codec = *codec::ParseCodec("aqsgd:bits=4");
  const codec::Shape shape{1, 256, 256};
  EXPECT_NEAR(static_cast<double>(plan->links(0).forward_bytes()),
              0.25 * static_cast<double>(codec->MaxEncodedBytes(shape)) +
                  0.75 * static_cast<double>(codec->MinEncodedBytes(shape)),
              1);

  const uint64_t needed =
      plan->stages(1).message_record_bytes() + plan->stages(1).message_journal_bytes();
  request.spec.links.cache_limit_bytes = needed;
  EXPECT_TRUE(MakePlan(request).ok());
  request.spec.links.cache_limit_bytes = needed - 1;
  const Status refused = MakePlan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(refused)),
              AllOf(HasSubstr("stage 1 on worker w1"), HasSubstr("links.cache_limit"),
                    HasSubstr("(" + std::to_string(needed) + " bytes)")));

  // Before the workers are known: the same, where the stages are.
  const uint64_t text = 256 * 400 + 1;
  request.spec.validation.share = 0;
  request.spec.pipeline.stages = 3;
  EXPECT_EQ(CheckMessageCache(request.spec, text).code(), absl::StatusCode::kFailedPrecondition);
  request.spec.pipeline.stages = 2;
  EXPECT_TRUE(CheckMessageCache(request.spec, text).ok());
  request.spec.pipeline.stages = 3;
  request.spec.links.cache_limit_bytes = needed;
  EXPECT_TRUE(CheckMessageCache(request.spec, text).ok());
  request.spec.links.cache_limit_bytes = 0;
  request.spec.links.codecs.forward = "tah";
  EXPECT_TRUE(CheckMessageCache(request.spec, text).ok());
  request.spec.links.codecs.backward = "aqsgd";
  EXPECT_FALSE(CheckMessageCache(request.spec, text).ok());
}

TEST(MakePlan, AnUnknownCodecIsRefused) {
  PlanRequest request = Request(2);
  request.spec.links.codecs.forward = "zstd";
  EXPECT_EQ(MakePlan(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakePlan, SlowInterfacesAreTheBottleneck) {
  PlanRequest request = Request(3);
  for (CandidateWorker& worker : request.workers) {
    worker.egress_bits_per_second = worker.ingress_bits_per_second = 10e6;
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  // The middle stage sends 16 activations and 16 gradients of 256 KiB.
  EXPECT_GT(plan->prediction().lower_bound_seconds(), 32 * 262144 * 8 / 10e6);
  EXPECT_THAT(plan->prediction().bottleneck(), HasSubstr("of stage 1"));
  EXPECT_THAT(plan->explanation(), Not(HasSubstr("unlimited")));
  EXPECT_EQ(plan->prediction().egress_bits_per_second(0), 10e6);
}

TEST(MakePlan, WhatWasMeasuredBetweenWorkersCounts) {
  PlanRequest request = Request(3);
  request.workers[1].to[WorkerId("id2")] = {.bits_per_second = 1e6,
                                            .latency = absl::Milliseconds(20)};
  request.workers[2].to[WorkerId("id1")] = {.bits_per_second = 4e6};
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->links(0).forward_bits_per_second(), 0);
  EXPECT_EQ(plan->links(1).forward_bits_per_second(), 1e6);
  EXPECT_EQ(plan->links(1).backward_bits_per_second(), 4e6);
  EXPECT_EQ(plan->links(1).forward_latency_seconds(), 0.02);
  EXPECT_EQ(plan->prediction().egress_bits_per_second(0), 0);
  EXPECT_EQ(plan->prediction().egress_bits_per_second(1), 1e6);
  EXPECT_EQ(plan->prediction().ingress_bits_per_second(1), 4e6);
  EXPECT_GT(plan->prediction().step_seconds(),
            16 * 8 * static_cast<double>(plan->links(1).forward_bytes()) / 1e6);
  // What is known of an interface counts before what its links did alone.
  request.workers[1].egress_bits_per_second = request.workers[2].ingress_bits_per_second = 7e6;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction().egress_bits_per_second(1), 7e6);
  EXPECT_THAT(plan->prediction().bottleneck(), HasSubstr("link from stage 1 to stage 2"));
}

TEST(MakePlan, ATopologyCountsWhereNothingWasMeasured) {
  PlanRequest request = Request(4);
  TopologySpec& topology = request.spec.topology.emplace();
  topology.regions = {{"west", {"w0", "w1"}}, {"east", {"w2", "w3"}}};
  topology.links = {{"east", "west", 10'000'000, {.delay = absl::Milliseconds(40)}},
                    {"west", "west", 100'000'000, {}}};
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NEAR(plan->links(0).backward_bits_per_second(), 95.6e6, 1e5);
  EXPECT_NEAR(plan->links(1).forward_bits_per_second(), 9.56e6, 1e4);
  EXPECT_EQ(plan->links(1).backward_latency_seconds(), 0.04);
  EXPECT_EQ(plan->links(2).forward_bits_per_second(), 0) << "nothing is said of the east";
  request.workers[1].to[WorkerId("id2")] = {.bits_per_second = 5e6,
                                            .latency = absl::Milliseconds(41)};
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->links(1).forward_bits_per_second(), 5e6);
  EXPECT_EQ(plan->links(1).forward_latency_seconds(), 0.041);
  EXPECT_EQ(plan->links(1).backward_latency_seconds(), 0.04);
}

TEST(MakePlan, WhatIsAssumedReplacesWhatWasMeasured) {
  PlanRequest request = Request(3);
  request.workers[1].egress_bits_per_second = 5;
  request.workers[1].to[WorkerId("id2")] = {.bits_per_second = 1e6,
                                            .latency = absl::Milliseconds(20)};
  request.assumed_line_bits_per_second = 100'000'000;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const double rate : plan->prediction().egress_bits_per_second()) {
    EXPECT_NEAR(rate, 95.6e6, 0.1e6);
  }
  EXPECT_EQ(plan->links(1).forward_bits_per_second(), 0);
  EXPECT_EQ(plan->links(1).forward_latency_seconds(), 0.02);
  request.assumed_delay = absl::Milliseconds(5);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->links(1).forward_latency_seconds(), 0.005);
  EXPECT_EQ(plan->links(0).backward_latency_seconds(), 0.005);
}

TEST(MakePlan, PredictsWhatTheSimulatorSays) {
  PlanRequest request = Request(3);
  for (CandidateWorker& worker : request.workers) {
    worker.egress_bits_per_second = worker.ingress_bits_per_second = 2e7;
  }
  request.workers[0].to[WorkerId("id1")] = {.bits_per_second = 1e7,
                                            .latency = absl::Milliseconds(30)};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto same = schedule::Simulate(PipelineCostOf(*plan, request.spec, NetworkOf(*plan)));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(absl::ToDoubleSeconds(same->step), plan->prediction().step_seconds());
  const auto slower = schedule::Simulate(
      PipelineCostOf(*plan, request.spec, UniformNetwork(3, 1e5, absl::Milliseconds(1))));
  ASSERT_TRUE(slower.ok()) << slower.status();
  EXPECT_GT(slower->lower_bound, 10 * same->step);
}

TEST(MakePlan, WhoCanBeReachedIsDialled) {
  PlanRequest request = Request(2);
  EXPECT_TRUE(MakePlan(request)->links(0).downstream_dials());
  request.workers[0].endpoints[0].clear_addresses();
  EXPECT_FALSE(MakePlan(request)->links(0).downstream_dials());
  request.workers[1].endpoints[0].clear_addresses();
  EXPECT_THAT(std::string(Message(MakePlan(request).status())), HasSubstr("--advertise"));
}

TEST(MakePlan, LinksHaveTheTransportThatTheRunFileSays) {
  PlanRequest request = Request(4);
  request.spec.transport = TransportKind::kGrpc;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const auto& link : plan->links()) EXPECT_EQ(link.transport(), "grpc");
  EXPECT_EQ(plan->stages(0).endpoints_size(), 2);

  // One worker's exception is about its links, whoever the neighbour is.
  request.spec.transport = TransportKind::kUcx;
  request.spec.links.by_worker = {{"w1", {{"none", "none"}, TransportKind::kGrpc}}};
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->links(0).transport(), "grpc");
  EXPECT_EQ(plan->links(1).transport(), "grpc");
  EXPECT_EQ(plan->links(2).transport(), "ucx");

  request.spec.links.by_worker.push_back({"w2", {{"none", "none"}, TransportKind::kUcx}});
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              AllOf(HasSubstr("w1 and w2"), HasSubstr("grpc at the one and for ucx at the other")));
}

TEST(MakePlan, ATransportThatAWorkerDoesNotHaveIsRefused) {
  PlanRequest request = Request(2);
  request.spec.transport = TransportKind::kGrpc;
  request.workers[1].endpoints.pop_back();
  const Status status = MakePlan(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(status)),
              AllOf(HasSubstr("worker w1 has ucx only"), HasSubstr("--transport grpc")));
  request.workers[1].endpoints.clear();
  EXPECT_THAT(std::string(Message(MakePlan(request).status())), HasSubstr("no data transport"));
}

TEST(MakePlan, MoreStagesThanLayersAreRefused) {
  EXPECT_EQ(MakePlan(Request(9)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakePlan(Request(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakePlan, ResumeKeepsTheSplit) {
  PlanRequest request = Request(2);
  v1::CheckpointManifest manifest;
  manifest.set_step(50);
  for (const uint32_t layers : {1, 7}) {
    v1::StagePlan& stage = *manifest.add_stages();
    stage.set_layers(layers);
    stage.set_worker_id("id" + std::to_string(manifest.stages_size() - 1));
  }
  request.resume = manifest;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{1, 7}));
  EXPECT_EQ(plan->start_step(), 50u);
  EXPECT_THAT(plan->explanation(), HasSubstr("checkpoint of step 50"));

  // Other places, other numbers of stages, or not enough memory: balanced anew.
  std::swap(request.workers[0], request.workers[1]);
  const auto swapped = MakePlan(request);
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_EQ(LayersOf(*swapped), LayersOf(*MakePlan(Request(2))));
  EXPECT_EQ(swapped->start_step(), 50u);
  request = Request(3);
  request.resume = manifest;
  const auto three = MakePlan(request);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(LayersOf(*three), LayersOf(*MakePlan(Request(3))));
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
