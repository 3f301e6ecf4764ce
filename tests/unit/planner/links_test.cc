// The links of plans: codecs, what these remember, transports, and who dials.
#include "planner/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/registry.h"
#include "planner/memory.h"
#include "run/boundary/carried_tokens.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MakePlan, CodecsAreThoseOfTheSender) {
  PlanRequest request = Request(3);
  request.spec.links.codecs = {"none", "bf16"};
  request.spec.links.by_worker = {{"w1", {{"fp16", "fixed:bits=6"}, {}}},
                                  {"w9", {{"none", "none"}, {}}}};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.edges[0].forward.codec, "none");
  EXPECT_THAT(ToString(plan->assignment.edges[0].backward.codec), HasSubstr("fixed:bits=6"));
  EXPECT_EQ(plan->assignment.edges[1].forward.codec, "fp16");
  EXPECT_EQ(plan->assignment.edges[1].backward.codec, "bf16");
  const codec::Shape shape{1, 256, 256};
  EXPECT_EQ(plan->assignment.edges[0].forward.bytes,
            (*codec::ParseCodec("none"))->MaxEncodedBytes(shape));
  EXPECT_EQ(plan->assignment.edges[0].backward.bytes,
            (*codec::ParseCodec("fixed:bits=6"))->MaxEncodedBytes(shape));
  EXPECT_THAT(plan->explanation, HasSubstr("an exception for worker w9, which has no stage here"));
}

// A codec whose blobs are as long as their contents need.
TEST(MakePlan, CountsWhatTensorsTakeAsARule) {
  PlanRequest request = Request(2);
  request.spec.links.codecs = {"zip", "bf16"};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Edge& edge = plan->assignment.edges.front();
  EXPECT_NEAR(static_cast<double>(edge.backward.bytes) / static_cast<double>(edge.forward.bytes),
              1.42, 0.02);
}

// With train.dpo, stages send two activations of each sample, with adapters and without them, and
// one gradient.
TEST(MakePlan, CountsActivationsOfPreferencesTwice) {
  PlanRequest request = Request(2);
  request.spec.links.codecs = {"none", "aqsgd:bits=4"};
  request.spec.model.lora = LoraSpec{.rank = 2, .alpha = 4, .targets = {"c_attn"}};
  request.data.tokens = 256 * 400 + 1 + 999;
  request.data.validation_tokens = 999;
  const auto without = MakePlan(request);
  request.spec.train.dpo = DpoSpec();
  const auto plan = MakePlan(request);
  ASSERT_TRUE(without.ok() && plan.ok()) << plan.status();
  const Edge &one = without->assignment.edges.front(), &two = plan->assignment.edges.front();
  const uint64_t values = uint64_t{256} * 256 * 4;
  EXPECT_EQ(two.forward.bytes, one.forward.bytes + values);
  EXPECT_EQ(two.backward.bytes, one.backward.bytes);
  const Cell &cell = plan->assignment.cells.front(), &before = without->assignment.cells.front();
  EXPECT_EQ(cell.message_record_bytes, before.message_record_bytes);
  EXPECT_GT(cell.memory_bytes, before.memory_bytes + values);
  request.spec.links.codecs = {"aqsgd:bits=4", "none"};
  const auto remembers = MakePlan(request);
  ASSERT_TRUE(remembers.ok()) << remembers.status();
  EXPECT_NEAR(static_cast<double>(remembers->assignment.cells.front().message_record_bytes),
              2.0 * static_cast<double>(before.message_record_bytes), 1e5);
}

TEST(MakePlan, CountsWhatCodecsRememberOnDisk) {
  PlanRequest request = Request(3);
  request.spec.links.codecs = {"aqsgd:bits=4", "fixed:bits=8"};
  request.spec.train.steps = 100;
  request.spec.checkpoint.every = 5;
  request.data.tokens = 256 * 400 + 1 + 999;
  request.data.validation_tokens = 999;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 400 windows, a record of 16 + 2 x 256 x 256 bytes to the next multiple of 64.
  const uint64_t one = 4096 + 4096 + 400 * uint64_t{131136};
  EXPECT_EQ(plan->assignment.cells[0].message_record_bytes, one);
  EXPECT_EQ(plan->assignment.cells[1].message_record_bytes, 2 * one);
  EXPECT_EQ(plan->assignment.cells[2].message_record_bytes, one);
  // 16 sequences a step, of 4 intervals of 5 steps.
  EXPECT_GE(plan->assignment.cells[0].message_journal_bytes, 320 * uint64_t{131088});
  EXPECT_LT(plan->assignment.cells[0].message_journal_bytes, 322 * uint64_t{131088});
  EXPECT_THAT(plan->explanation, HasSubstr("of disk on w1"));
  // A quarter of the 1,600 sequences is sent whole.
  const auto codec = *codec::ParseCodec("aqsgd:bits=4");
  const codec::Shape shape{1, 256, 256};
  EXPECT_NEAR(static_cast<double>(plan->assignment.edges[0].forward.bytes),
              0.25 * static_cast<double>(codec->MaxEncodedBytes(shape)) +
                  0.75 * static_cast<double>(codec->MinEncodedBytes(shape)),
              1);

  const uint64_t needed = plan->assignment.cells[1].message_record_bytes +
                          plan->assignment.cells[1].message_journal_bytes;
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

TEST(MakePlan, CountsWhatPredictingTakes) {
  PlanRequest request = Request(3);
  request.spec.links.codecs = {"gauss", "fixed:bits=8"};
  request.data.vocabulary = 50257;
  auto plain = MakePlan(request);
  request.spec.links.codecs.forward = "predict:pairs=1024/gauss";
  auto plan = MakePlan(request);
  ASSERT_TRUE(plain.ok() && plan.ok()) << plan.status();
  const auto bytes = [](const StatusOr<Plan>& of) { return of->assignment.edges[0].forward.bytes; };
  // Front and ids of a microbatch of 256 tokens.
  EXPECT_EQ(bytes(plan) - bytes(plain), 16 + 64 + 2 * 256u);
  // On the stages' devices, and twice as arrays on their way; at the upper side the checkpoint's
  // arrays, too.
  const uint64_t rows = 50257 + 1024;
  const uint64_t table = rows * (256 * 2 + 4), array = table;
  const auto more = [&](size_t stage) {
    return plan->assignment.cells[stage].memory_bytes - plain->assignment.cells[stage].memory_bytes;
  };
  EXPECT_GE(more(2), table + 2 * array);
  EXPECT_LT(more(2), table + 2 * array + (4 << 20));
  EXPECT_EQ(more(1) - more(0), more(2) - 2 * (array + 257 * 4));
  EXPECT_GE(more(0), table + 3 * array);
  request.data.vocabulary = 65537;
  EXPECT_EQ(bytes(MakePlan(request)), bytes(plan) + 2 * 256);
}

// A stage that predicts hears the ids from the stage above, whatever codec that one sends by.
TEST(MakePlan, LinksAboveOneThatPredictsCarryTokens) {
  PlanRequest request = Request(4);
  request.spec.links.codecs = {"gauss", "fixed:bits=8"};
  const auto plain = MakePlan(request);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const LinkException predicts{.codecs = {"predict/gauss", "fixed:bits=8"}};
  request.spec.links.by_worker = {{"w1", predicts}};
  for (const uint32_t slices : {1u, 2u}) {
    request.spec.pipeline.slices = slices;
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<Edge>& edges = plan->assignment.edges;
    EXPECT_TRUE(CarriesTokens(plan->assignment, edges[0]));
    EXPECT_FALSE(CarriesTokens(plan->assignment, edges[1]));  // they are in its blobs
    EXPECT_FALSE(CarriesTokens(plan->assignment, edges[2]));
    if (slices > 1) continue;  // blobs of slices have headers of their own
    EXPECT_EQ(edges[0].forward.bytes,
              plain->assignment.edges[0].forward.bytes + 2 * request.spec.model.context);
    EXPECT_EQ(edges[2].forward.bytes, plain->assignment.edges[2].forward.bytes);
  }
  request.spec.links.by_worker.clear();
  request.spec.links.codecs.backward = "predict/gauss";
  EXPECT_THAT(std::string(Message(MakePlan(request).status())), HasSubstr("cannot send gradients"));
}

// Where tables of tokens do not fit, codecs that are auto do without.
TEST(MakePlan, DoesWithoutTablesThatDoNotFit) {
  PlanRequest request = Request(3);
  request.spec.links.codecs = {"auto", "auto"};
  request.data.vocabulary = 1 << 20;
  SetLines(&request, 1e6);
  const auto codec = [](const Plan& plan) { return plan.assignment.edges[0].forward.codec; };
  const auto roomy = MakePlan(request);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  EXPECT_TRUE(codec(*roomy).predicts_by_tokens());
  const uint64_t tables = TableBytes(request.spec, request.data.vocabulary);
  for (CandidateWorker& worker : request.workers) {
    worker.memory_bytes = roomy->assignment.cells[0].memory_bytes - tables / 2;
  }
  const auto tight = MakePlan(request);
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_EQ(codec(*tight), "gauss:bits=5,block=128");
  EXPECT_THAT(tight->explanation, HasSubstr("memory has no room for its tables"));
  EXPECT_LE(tight->assignment.cells[0].memory_bytes, request.workers[0].memory_bytes);
  // A fast link needs no tables, and none are counted.
  SetLines(&request, 100e9);
  for (CandidateWorker& worker : request.workers) worker.memory_bytes = uint64_t{64} << 30;
  const auto fast = MakePlan(request);
  ASSERT_TRUE(fast.ok()) << fast.status();
  EXPECT_LT(fast->assignment.cells[0].memory_bytes,
            roomy->assignment.cells[0].memory_bytes - tables);
  // Said by name, they are needed.
  request.spec.links.codecs.forward = "predict/gauss:bits=5";
  for (CandidateWorker& worker : request.workers) {
    worker.memory_bytes = roomy->assignment.cells[0].memory_bytes - tables / 2;
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(MakePlan(request).status()));
}

TEST(MakePlan, AnUnknownCodecIsRefused) {
  PlanRequest request = Request(2);
  request.spec.links.codecs.forward = "zstd";
  EXPECT_EQ(MakePlan(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakePlan, WhoCanBeReachedIsDialled) {
  PlanRequest request = Request(2);
  EXPECT_TRUE(MakePlan(request)->assignment.edges[0].to_dials);
  request.workers[0].endpoints[0].addresses.clear();
  EXPECT_FALSE(MakePlan(request)->assignment.edges[0].to_dials);
  request.workers[1].endpoints[0].addresses.clear();
  EXPECT_THAT(std::string(Message(MakePlan(request).status())), HasSubstr("--advertise"));
}

// Neighbours that reach each other over no transport.
PlanRequest CutOff(uint32_t workers) {
  PlanRequest request = Request(workers);
  for (CandidateWorker& worker : request.workers) {
    worker.endpoints.push_back({.transport = "grpc", .addresses = {"10.0.0.9:1"}});
    worker.endpoints.push_back({.transport = std::string(ToString(TransportKind::kRelay))});
    for (const CandidateWorker& other : request.workers) {
      for (const auto kind : {TransportKind::kUcx, TransportKind::kGrpc}) {
        worker.does_not_reach[{other.id, kind}] = "no route";
      }
    }
  }
  return request;
}
void OfferRelays(const std::vector<Relay>& relays, PlanRequest* request) {
  for (CandidateWorker& worker : request->workers) worker.relays = relays;
}

TEST(MakePlan, WhoDoesNotReachEachOtherMeetsAtARelay) {
  PlanRequest request = CutOff(2);
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              HasSubstr("or start the coordinator with --relay"));
  OfferRelays({{.name = "coordinator"}, {.worker = WorkerId("r"), .name = "near"}}, &request);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Edge& edge = plan->assignment.edges[0];
  EXPECT_EQ(edge.transport, ToString(TransportKind::kRelay));
  ASSERT_EQ(edge.relays.size(), 2u);
  EXPECT_EQ(edge.relays[0].name, "near");  // the coordinator's is the last choice
  EXPECT_TRUE(plan->assignment.sealed);
  EXPECT_THAT(plan->explanation, AllOf(HasSubstr("through the relay of near"),
                                       HasSubstr("because a relay carries one of them")));
  // A direct way comes first.
  request.workers[1].does_not_reach.erase({request.workers[0].id, TransportKind::kUcx});
  EXPECT_EQ(MakePlan(request)->assignment.edges[0].transport, "ucx");
  EXPECT_FALSE(MakePlan(request)->assignment.sealed);
}

TEST(MakePlan, ARelayIsTakenWhereItMayBe) {
  PlanRequest request = CutOff(2);
  OfferRelays({{.name = "coordinator"}}, &request);
  PlanRequest plain = request;
  plain.spec.links.encrypt = EncryptKind::kOff;
  EXPECT_THAT(std::string(Message(MakePlan(plain).status())),
              HasSubstr("carries encrypted links only; links.encrypt is off"));
  // Nothing is known against grpc, which was not asked for.
  PlanRequest grpc = request;
  grpc.spec.transport = TransportKind::kUcx;
  grpc.workers[1].does_not_reach.erase({grpc.workers[0].id, TransportKind::kGrpc});
  EXPECT_THAT(std::string(Message(MakePlan(grpc).status())), HasSubstr("set `transport: grpc`"));
  PlanRequest old = request;
  old.workers[0].endpoints.pop_back();
  EXPECT_FALSE(MakePlan(old).ok());
  // One of the two ends is no relay between them.
  OfferRelays({{.worker = request.workers[0].id, .name = "w0"}}, &request);
  EXPECT_FALSE(MakePlan(request).ok());
}

TEST(MakePlan, LinksThroughOneRelayShareItsLine) {
  PlanRequest request = CutOff(3);
  OfferRelays({{.name = "coordinator"}}, &request);
  const auto measure = [&](size_t from, size_t to, double rate) {
    request.workers[from].to[request.workers[to].id] = {.bits_per_second = rate,
                                                        .latency = absl::Milliseconds(1)};
  };
  for (const auto& [one, other] : {std::pair(0, 1), std::pair(1, 2)}) {
    measure(one, other, one == 0 ? 60e6 : 100e6);
    measure(other, one, 40e6);
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_DOUBLE_EQ(plan->assignment.edges[0].forward.bits_per_second, 50e6);
  EXPECT_DOUBLE_EQ(plan->assignment.edges[1].forward.bits_per_second, 50e6);
  EXPECT_DOUBLE_EQ(plan->assignment.edges[0].backward.bits_per_second, 20e6);
  EXPECT_THAT(plan->explanation, HasSubstr("shared by 2 links"));
}

TEST(MakePlan, LinksHaveTheTransportThatTheRunFileSays) {
  PlanRequest request = Request(4);
  request.spec.transport = TransportKind::kGrpc;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const Edge& edge : plan->assignment.edges) EXPECT_EQ(edge.transport, "grpc");
  EXPECT_EQ(plan->assignment.cells[0].endpoints.size(), 2u);

  // One worker's exception is about its links, whoever the neighbour is.
  request.spec.transport = TransportKind::kUcx;
  request.spec.links.by_worker = {{"w1", {{"none", "none"}, TransportKind::kGrpc}}};
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.edges[0].transport, "grpc");
  EXPECT_EQ(plan->assignment.edges[1].transport, "grpc");
  EXPECT_EQ(plan->assignment.edges[2].transport, "ucx");

  request.spec.links.by_worker.push_back({"w2", {{"none", "none"}, TransportKind::kUcx}});
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              AllOf(HasSubstr("w1 and w2"), HasSubstr("grpc at the one and for ucx at the other")));
}

TEST(MakePlan, AutoTakesTheFirstTransportThatGetsThrough) {
  PlanRequest request = Request(3);
  request.spec.transport = std::nullopt;
  const auto transports = [&] {
    const auto plan = MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<std::string> names;
    if (!plan.ok()) return names;
    for (const Edge& edge : plan->assignment.edges) names.push_back(edge.transport);
    return names;
  };
  for (CandidateWorker& worker : request.workers) {
    worker.endpoints.push_back({.transport = "tcp", .addresses = {"10.0.0.1:3"}});
  }
  EXPECT_THAT(transports(), ElementsAre("ucx", "ucx"));
  // Neither way leads from one to the other.
  request.workers[0].does_not_reach[{request.workers[1].id, TransportKind::kUcx}] = "no route";
  EXPECT_THAT(transports(), ElementsAre("ucx", "ucx"));  // the other one dials
  request.workers[1].does_not_reach[{request.workers[0].id, TransportKind::kUcx}] = "no route";
  EXPECT_THAT(transports(), ElementsAre("tcp", "ucx"));
  // A worker that does not listen on ucx.
  std::erase_if(request.workers[2].endpoints,
                [](const auto& one) { return one.transport == "ucx"; });
  EXPECT_THAT(transports(), ElementsAre("tcp", "tcp"));
  request.workers[2].endpoints = {{"grpc", {"10.0.0.1:2"}}};
  EXPECT_THAT(transports(), ElementsAre("tcp", "grpc"));
  request.workers[2].endpoints = {};
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              HasSubstr("worker w2 has no data transport"));
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

}  // namespace
}  // namespace longhaul::coordinator
