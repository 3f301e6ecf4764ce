// Codecs where links.forward or links.backward is auto.
#include "planner/codec_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/resize.h"
#include "planner/retune.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

PlanRequest OpenCodecs(uint32_t workers, double bits_per_second) {
  PlanRequest request = Request(workers);
  request.spec.links.codecs = {"auto", "auto"};
  SetLines(&request, bits_per_second);
  return request;
}

double ErrorOf(const CodecSpec& codec) {
  for (const auto ladder : {codec::LadderOfActivations(true), codec::LadderOfActivations(false),
                            codec::LadderOfGradients()}) {
    const auto rung = std::ranges::find(ladder, codec, &codec::Rung::codec);
    if (rung != ladder.end()) return rung->error;
  }
  return -1;
}

std::vector<CodecPair> CodecsOfOne(const Assignment& assignment) {
  const std::vector<std::vector<CodecPair>> of_replicas = CodecsOf(assignment);
  EXPECT_EQ(of_replicas.size(), 1u);
  return of_replicas.front();
}

// The same plan from a run file that names the codecs that were chosen.
StatusOr<Plan> PlanWithNamed(PlanRequest request, const std::vector<CodecPair>& pairs) {
  request.spec.links.codecs = {"none", "none"};
  request.spec.links.error.reset();
  for (size_t w = 0; w < request.workers.size(); ++w) {
    LinkException exception{.codecs = {"none", "none"}};
    if (w < pairs.size()) exception.codecs.forward = pairs[w].forward;
    if (w > 0) exception.codecs.backward = pairs[w - 1].backward;
    request.spec.links.by_worker.emplace_back(request.workers[w].name, exception);
  }
  return MakePlan(request);
}

TEST(CodecChoice, FastLinksSendAllAndSlowOnesWhatTheRunFileAllows) {
  const auto fast = MakePlan(OpenCodecs(4, 100e9));
  ASSERT_TRUE(fast.ok()) << fast.status();
  for (const CodecPair& pair : CodecsOfOne(fast->assignment)) {
    EXPECT_EQ(pair.forward, "none");
    EXPECT_EQ(pair.backward, "none");
  }
  PlanRequest request = OpenCodecs(4, 1e6);
  const auto slow = MakePlan(request);
  ASSERT_TRUE(slow.ok()) << slow.status();
  for (const CodecPair& pair : CodecsOfOne(slow->assignment)) {
    EXPECT_EQ(pair.forward, "predict:pairs=0,rate=0.05,prior=4/gauss:bits=5,block=128");
    EXPECT_EQ(pair.backward, "dither:bits=2,block=128");
  }
  request.spec.links.predicts = false;
  for (const CodecPair& pair : CodecsOfOne(MakePlan(request)->assignment)) {
    EXPECT_EQ(pair.forward, "gauss:bits=5,block=128");
  }
  request.spec.links.error = 0.16;
  for (const CodecPair& pair : CodecsOfOne(MakePlan(request)->assignment)) {
    EXPECT_EQ(pair.forward, "gauss:bits=4,block=128");
    EXPECT_EQ(pair.backward, "dither:bits=3,block=128");
  }
  request.spec.links.error = 0.05;
  for (const CodecPair& pair : CodecsOfOne(MakePlan(request)->assignment)) {
    EXPECT_LE(ErrorOf(pair.forward), 0.05);
    EXPECT_LE(ErrorOf(pair.backward), 0.05);
  }
  request.spec.links.error = 0;
  for (const CodecPair& pair : CodecsOfOne(MakePlan(request)->assignment)) {
    EXPECT_EQ(pair.forward, "none");
  }
}

// The finest that cost no time: no single link could have a finer one.
TEST(CodecChoice, IsWithinTwoPercentOfTheFastestAndNoLinkCouldHaveAFinerOne) {
  for (const double line : {20e6, 60e6, 150e6, 400e6}) {
    const PlanRequest request = OpenCodecs(4, line);
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<CodecPair> chosen = CodecsOfOne(plan->assignment);
    const std::vector<CodecPair> coarsest(3, {"predict/gauss:bits=5", "dither:bits=2"});
    const auto fastest = PlanWithNamed(request, coarsest);
    ASSERT_TRUE(fastest.ok()) << fastest.status();
    const double limit = fastest->prediction.step_seconds * 1.03;
    EXPECT_LE(plan->prediction.step_seconds, limit) << line;
    for (size_t b = 0; b < chosen.size(); ++b) {
      std::vector<CodecPair> finer = chosen;
      const auto ladder = codec::LadderOfActivations(/*by_tokens=*/true);
      const auto rung = std::ranges::find(ladder, finer[b].forward, &codec::Rung::codec);
      ASSERT_NE(rung, ladder.end());
      if (rung == ladder.begin()) continue;
      finer[b].forward = (rung - 1)->codec;
      EXPECT_GT(PlanWithNamed(request, finer)->prediction.step_seconds,
                fastest->prediction.step_seconds * 1.01)
          << line << ", boundary " << b << " with " << ToString(finer[b].forward);
    }
  }
}

TEST(CodecChoice, GivesTheSlowLinkACoarserCodecThanTheOthers) {
  PlanRequest request = OpenCodecs(4, 1e9);
  for (const auto& [from, to] : {std::pair(1, 2), std::pair(2, 1)}) {
    request.workers[from].to[request.workers[to].id].bits_per_second = 20e6;
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<CodecPair> chosen = CodecsOfOne(plan->assignment);
  EXPECT_GT(ErrorOf(chosen[1].forward), ErrorOf(chosen[0].forward));
  EXPECT_GT(ErrorOf(chosen[1].forward), ErrorOf(chosen[2].forward));
  EXPECT_EQ(chosen[0].forward, "none");
  EXPECT_THAT(plan->explanation, AllOf(HasSubstr("Codecs are auto: each link"),
                                       HasSubstr("none on 2 links"), HasSubstr("on 1 link")));
}

TEST(CodecChoice, IsWhatARunFileGetsThatNamesTheCodecs) {
  const PlanRequest request = OpenCodecs(4, 60e6);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto named = PlanWithNamed(request, CodecsOfOne(plan->assignment));
  ASSERT_TRUE(named.ok()) << named.status();
  for (size_t e = 0; e < plan->assignment.edges.size(); ++e) {
    const Edge &got = plan->assignment.edges[e], &wanted = named->assignment.edges[e];
    EXPECT_EQ(got.forward.codec, wanted.forward.codec);
    EXPECT_EQ(got.backward.codec, wanted.backward.codec);
    EXPECT_EQ(got.forward.bytes, wanted.forward.bytes);
  }
  EXPECT_EQ(plan->prediction.step_seconds, named->prediction.step_seconds);
  for (size_t c = 0; c < plan->assignment.cells.size(); ++c) {
    EXPECT_EQ(plan->assignment.cells[c].setting, named->assignment.cells[c].setting);
  }
}

TEST(CodecChoice, OfOneDirectionLeavesTheOtherAsItIs) {
  PlanRequest request = OpenCodecs(3, 1e6);
  request.spec.links.codecs.backward = "bf16";
  request.spec.links.by_worker = {{"w1", {{"fp16", "none"}, {}}}};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<CodecPair> chosen = CodecsOfOne(plan->assignment);
  EXPECT_EQ(chosen[0].backward, "none");
  EXPECT_EQ(chosen[1], (CodecPair{"fp16", "bf16"}));
  // Down it may be as slow as that is up, and no slower.
  EXPECT_EQ(chosen[0].forward, "bf16");
}

// Codecs that take longer than they spare on the wire are no use.
TEST(CodecChoice, CountsTheTimesOfCodecs) {
  PlanRequest request = OpenCodecs(2, 400e6);
  const auto finest_known = CodecsOfOne(MakePlan(request)->assignment);
  for (CandidateWorker& worker : request.workers) {
    for (const codec::Rung& rung : codec::LadderOfActivations(/*by_tokens=*/true)) {
      v1::CodecTimes& times = *worker.times.add_codecs();
      times.set_codec(ToString(rung.codec));
      times.set_encode(rung.error > 0.002 ? 1 : 0.0001);
      times.set_decode(0.0001);
    }
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(ErrorOf(CodecsOfOne(plan->assignment)[0].forward), 0.002);
  EXPECT_EQ(plan->edges[0].forward.encode_seconds, 0.0001);
}

TEST(CodecChoice, IsKeptByLaterPlans) {
  PlanRequest request = OpenCodecs(3, 100e6);
  const auto first = MakePlan(request);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::vector<CodecPair> chosen = CodecsOfOne(first->assignment);
  const auto spec = ParseRunSpec(first->assignment.run_yaml, "plan", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->links.chosen, (std::vector<std::vector<CodecPair>>{chosen}));
  EXPECT_TRUE(IsAuto(spec->links.codecs.forward));
  // The same run on slower lines keeps its codecs.
  request.spec = *spec;
  SetLines(&request, 1e6);
  const auto second = MakePlan(request);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(CodecsOfOne(second->assignment), chosen);
  EXPECT_THAT(second->explanation, HasSubstr("links keep those that the run's first plan chose"));
  // With another number of stages they say nothing.
  request.workers.pop_back();
  const std::vector<CodecPair> anew = CodecsOfOne(MakePlan(request)->assignment);
  ASSERT_EQ(anew.size(), 1u);
  EXPECT_EQ(ToString(anew[0].forward), "predict:pairs=0,rate=0.05,prior=4/gauss:bits=5,block=128");
  EXPECT_EQ(ToString(anew[0].backward), "dither:bits=3,block=128");
}

TEST(CodecChoice, RetuningLeavesIt) {
  PlanRequest request = OpenCodecs(4, 1e9);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Seen seen;
  for (const CellEstimate& cell : plan->cells) {
    seen.cells.push_back({cell.forward_seconds, cell.backward_seconds, cell.optimizer_seconds});
  }
  for (size_t e = 0; e < plan->edges.size(); ++e) {
    seen.edges.push_back({.forward_bits_per_second = 1e7,
                          .backward_bits_per_second = 1e7,
                          .round_trip_seconds = 0.3});
  }
  const auto retuned = Retune(request.spec, *plan, seen);
  ASSERT_TRUE(retuned.ok()) << retuned.status();
  if (*retuned) {
    EXPECT_EQ(CodecsOfOne((*retuned)->assignment), CodecsOfOne(plan->assignment));
  }
}

TEST(CodecChoice, IsMadeForEachReplicaAndKeptWhereTheirNumberChanges) {
  PlanRequest request = OpenCodecs(4, 1e9);
  request.spec.replicas.count = 2;
  for (const auto& [from, to] : {std::pair(2, 3), std::pair(3, 2)}) {
    request.workers[from].to[request.workers[to].id].bits_per_second = 10e6;
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<std::vector<CodecPair>> chosen = CodecsOf(plan->assignment);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_LT(ErrorOf(chosen[0][0].forward), ErrorOf(chosen[1][0].forward));
  EXPECT_EQ(ParseRunSpec(plan->assignment.run_yaml, "plan", {})->links.chosen, chosen);
  // The codecs of the second replica alone, of three replicas, and of a plan made anew.
  request.spec.links.chosen = chosen;
  const auto one =
      ResizePlan(*plan, request.spec.WithReplicas(1), {request.workers[2], request.workers[3]});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(CodecsOf(one->assignment), std::vector<std::vector<CodecPair>>{chosen[1]});
  std::vector<CandidateWorker> six = request.workers;
  for (uint32_t w = 4; w < 6; ++w) six.push_back(Request(6).workers[w]);
  const auto three = ResizePlan(*plan, request.spec.WithReplicas(3), six);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(CodecsOf(three->assignment),
            (std::vector<std::vector<CodecPair>>{chosen[0], chosen[1], chosen[0]}));
  request.spec.replicas.count = 2;
  EXPECT_EQ(CodecsOf(MakePlan(request)->assignment), chosen);
  // Planned anew for one replica, as a run is that was resumed so.
  request.spec.replicas.count = 1;
  request.workers.resize(2);
  EXPECT_EQ(CodecsOfOne(MakePlan(request)->assignment), chosen[0]);
}

// Three replicas of two stages have as many boundaries as one of four.
TEST(CodecChoice, SaysNothingOfOtherStagesWithAsManyBoundaries) {
  PlanRequest request = OpenCodecs(4, 100e9);
  request.spec.links.chosen.assign(3, {{"gauss:bits=4,block=128", "bf16"}});
  const auto one = MakePlan(request);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(CodecsOfOne(one->assignment), Each(CodecPair{"none", "none"}));
  // And six of two stages as two of four.
  request = OpenCodecs(8, 100e9);
  request.spec.replicas.count = 2;
  request.spec.links.chosen.assign(6, {{"gauss:bits=4,block=128", "bf16"}});
  const auto two = MakePlan(request);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(CodecsOf(two->assignment), Each(Each(CodecPair{"none", "none"})));
}

TEST(CodecChoice, OfLinksWithoutARateIsTheCoarsest) {
  PlanRequest request = Request(2);
  request.spec.links.codecs.forward = "auto";
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(CodecsOfOne(plan->assignment)[0].forward,
            "predict:pairs=0,rate=0.05,prior=4/gauss:bits=5,block=128");
  EXPECT_THAT(plan->explanation, HasSubstr("links whose rate is not known have the coarsest"));
}

TEST(CodecChoice, OfAReplayIsAmongCodecsThatWereTimed) {
  PlanRequest request = OpenCodecs(2, 1e6);
  request.spec.replay = ReplaySpec{.source = "elsewhere"};
  request.spec.replay->codec_times = {{"bf16", absl::Milliseconds(1), absl::Milliseconds(1)}};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(CodecsOfOne(plan->assignment)[0], (CodecPair{"bf16", "bf16"}));
  request.spec.replay->codec_times.clear();
  EXPECT_THAT(Message(MakePlan(request).status()),
              HasSubstr("links.forward is auto, and replay.codec_times has the times of no codec"));
}

TEST(CodecChoice, OfManyStagesTakesLittleTime) {
  PlanRequest request = OpenCodecs(64, 1e9);
  request.spec.model.layers = 64;
  for (size_t w = 0; w + 1 < 64; ++w) {
    const double bits = w % 7 == 3 ? 30e6 : 1e9;
    request.workers[w].to[request.workers[w + 1].id].bits_per_second = bits;
    request.workers[w + 1].to[request.workers[w].id].bits_per_second = bits;
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<CodecPair> chosen = CodecsOfOne(plan->assignment);
  EXPECT_GT(ErrorOf(chosen[3].forward), ErrorOf(chosen[4].forward));
}

}  // namespace
}  // namespace longhaul::coordinator
