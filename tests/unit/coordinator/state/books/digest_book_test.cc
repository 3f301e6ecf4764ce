#include "coordinator/state/books/digest_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Contradiction::Kind;

// Edge, step, whether forward, and the number of the message.
using MessageId = std::tuple<uint32_t, uint64_t, bool, uint32_t>;

class DigestBookTest : public ::testing::Test {
 protected:
  void Begin(uint32_t stages, uint64_t start_step = 0, bool tied = false) {
    assignment = {};
    assignment.run = RunId("tiny-1");
    assignment.epoch = Epoch(3);
    assignment.hash = std::string(32, 'h');
    assignment.start_step = start_step;
    assignment.edges = chain::MakeEdges(1, stages, tied);
    for (uint32_t stage = 0; stage < stages; ++stage) {
      assignment.cells.push_back(Cell{.id = {.replica = 0, .stage = stage}});
    }
    verify.digests = DigestKind::kXxh3;
  }
  // What was on the line: numbers that only this function knows.
  static uint64_t OnLine(const MessageId& id) {
    const auto [edge, step, forward, message] = id;
    return (edge + 1) * 1'000'003 ^ step * 7'919 ^ message * 104'729 ^ (forward ? 1 : 0);
  }
  // What an honest cell says. `messages`: over each edge in each direction.
  v1::DigestBody BodyOf(uint32_t stage, uint64_t step, uint32_t messages = 4) const {
    v1::DigestBody body;
    body.set_run_id("tiny-1");
    body.set_epoch(3);
    body.set_stamp(assignment.stamp().value());
    body.mutable_cell()->set_stage(stage);
    body.set_step(step);
    for (const Edge& edge : assignment.edges) {
      if (edge.from.stage != stage && edge.to.stage != stage) continue;
      for (const bool forward : {true, false}) {
        v1::EdgeDigests& one = *body.add_edges();
        one.set_edge(edge.id.value());
        one.set_forward(forward);
        one.set_sent(forward == (edge.from.stage == stage));
        one.set_messages(messages);
        const uint32_t group = std::max(1u, (messages + 255) / 256);
        for (uint32_t first = 0; first < messages; first += group) {
          one.add_digests(OnLine({edge.id.value(), step, forward, first}));
        }
      }
    }
    if (verify.state > 0 && step % verify.state == 0) body.set_state_after(1000 * step + stage);
    if (verify.state > 0 && step > assignment.start_step + 1 && (step - 1) % verify.state == 0) {
      body.set_state_before(1000 * (step - 1) + stage);
    }
    return body;
  }
  static v1::StepReport ReportOf(const v1::DigestBody& body) {
    v1::StepReport report;
    report.set_step(body.step());
    report.mutable_digests()->set_body(body.SerializeAsString());
    return report;
  }
  std::vector<Contradiction> Take(uint32_t stage, const v1::StepReport& report,
                                  Signature signature = Signature::kNone) {
    return book.Take(assignment, verify, {.replica = 0, .stage = stage}, report, signature);
  }
  std::vector<Contradiction> Honest(uint32_t stage, uint64_t step) {
    return Take(stage, ReportOf(BodyOf(stage, step)));
  }
  // Stage 1 of 3 reports step 2; all other reports are honest.
  std::vector<Contradiction> OneLies(const std::function<void(v1::StepReport&)>& change,
                                     Signature signature = Signature::kNone) {
    Begin(3);
    for (uint32_t stage : {0, 1, 2}) EXPECT_THAT(Honest(stage, 1), IsEmpty());
    v1::StepReport report = ReportOf(BodyOf(1, 2));
    change(report);
    return Take(1, report, signature);
  }
  static void ChangeBody(v1::StepReport& report,
                         const std::function<void(v1::DigestBody&)>& change) {
    v1::DigestBody body;
    body.ParseFromString(report.digests().body());
    change(body);
    report.mutable_digests()->set_body(body.SerializeAsString());
  }

  Assignment assignment;
  VerifySpec verify;
  DigestBook book;
};

// Stages report in any order, each its own steps in order. With `lies`, ends of edges say something
// else about single messages; all of these are found, at the right place, and nothing else.
TEST_F(DigestBookTest, FindsExactlyTheLiesInAnyOrderOfReports) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto stages = static_cast<uint32_t>(2 + random() % 7);
    const uint64_t steps = 40;
    const bool lies = seed % 2 == 1;
    verify.state = random() % 3;
    book = DigestBook();
    Begin(stages, /*start_step=*/random() % 2 * 10, /*tied=*/random() % 2 == 0);
    std::vector<uint64_t> next(stages, assignment.start_step + 1);
    std::map<std::tuple<uint32_t, uint64_t, bool>, uint32_t> told, found;
    while (true) {
      std::vector<uint32_t> left;
      for (uint32_t stage = 0; stage < stages; ++stage) {
        if (next[stage] <= assignment.start_step + steps) left.push_back(stage);
      }
      if (left.empty()) break;
      const uint32_t stage = left[random() % left.size()];
      v1::DigestBody body = BodyOf(stage, next[stage]++);
      if (lies && random() % 4 == 0) {
        v1::EdgeDigests& one = *body.mutable_edges(static_cast<int>(random() % body.edges_size()));
        const auto message = static_cast<int>(random() % 4);
        one.set_digests(message, one.digests(message) ^ (uint64_t{1} << random() % 64));
        const std::tuple place(one.edge(), body.step(), one.forward());
        const auto known = told.find(place);
        const auto number = static_cast<uint32_t>(message);
        told[place] = known == told.end() ? number : std::min(known->second, number);
      }
      for (const Contradiction& one : Take(stage, ReportOf(body))) {
        ASSERT_EQ(one.kind, Kind::kEdgeDiffers);
        const Edge& edge = *assignment.Find(one.edge);
        const bool forward = one.direction == Direction::kForward;
        EXPECT_EQ(one.cell, forward ? edge.from : edge.to);
        EXPECT_EQ(one.receiver, forward ? edge.to : edge.from);
        EXPECT_EQ(one.first, one.last);
        found[{one.edge.value(), one.step, forward}] = one.first;
      }
    }
    EXPECT_EQ(found, told) << "seed " << seed;
    EXPECT_EQ(lies, !told.empty());
    EXPECT_EQ(book.waiting(), 0u);
  }
}

TEST_F(DigestBookTest, ManyMessagesAreComparedInGroups) {
  Begin(2);
  verify.state = 0;
  v1::DigestBody sender = BodyOf(0, 1, 1000), receiver = BodyOf(1, 1, 1000);
  ASSERT_EQ(sender.edges(0).digests_size(), 250);
  receiver.mutable_edges(0)->set_digests(249, 5);
  EXPECT_THAT(Take(0, ReportOf(sender)), IsEmpty());
  const auto found = Take(1, ReportOf(receiver));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].first, 996u);
  EXPECT_EQ(found[0].last, 999u);
}

TEST_F(DigestBookTest, StepsOfTheFutureTakeBoundedMemory) {
  Begin(3);
  verify.state = 0;
  // 256 digests in each of two directions: 4 KiB a step.
  const uint64_t steps = 10'000;
  for (uint64_t step = 1; step <= steps; ++step) {
    ASSERT_THAT(Take(0, ReportOf(BodyOf(0, step, 256))), IsEmpty());
  }
  EXPECT_LT(book.waiting(), 2 * steps);
  EXPECT_GT(book.waiting(), steps);
  // What the run is at stays.
  v1::DigestBody other = BodyOf(1, 1, 256);
  other.mutable_edges(0)->set_digests(0, 5);
  EXPECT_THAT(Take(1, ReportOf(other)), SizeIs(1));
}

TEST_F(DigestBookTest, AMessageThatOneEndLacksIsFound) {
  Begin(2);
  EXPECT_THAT(Honest(0, 1), IsEmpty());
  v1::DigestBody receiver = BodyOf(1, 1);
  receiver.mutable_edges(0)->set_messages(3);
  receiver.mutable_edges(0)->mutable_digests()->RemoveLast();
  const auto found = Take(1, ReportOf(receiver));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].first, 3u);
  EXPECT_EQ(found[0].messages, 3u);
}

TEST_F(DigestBookTest, AStateThatChangedIsFound) {
  const auto found = OneLies([](v1::StepReport& report) {
    ChangeBody(report, [](v1::DigestBody& body) { body.set_state_before(7); });
  });
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, Kind::kStateDiffers);
  EXPECT_EQ(found[0].cell.stage, 1u);
}

TEST_F(DigestBookTest, WhatIsWithheldOrNotSignedIsFound) {
  auto found = OneLies([](v1::StepReport& report) { report.clear_digests(); });
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, Kind::kWithheld);
  book = DigestBook();
  found = OneLies([](v1::StepReport&) {}, Signature::kBad);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, Kind::kUnsigned);
  book = DigestBook();
  EXPECT_THAT(OneLies([](v1::StepReport&) {}, Signature::kGood), IsEmpty());
  EXPECT_THAT(Take(1, ReportOf(BodyOf(1, 4))), SizeIs(1)) << "the report of step 3 is missing";
  EXPECT_THAT(Take(1, ReportOf(BodyOf(1, 4))), IsEmpty()) << "what came before is ignored";
}

TEST_F(DigestBookTest, DigestsOfAnotherStepCellOrEdgeAreFalse) {
  const std::vector<std::function<void(v1::DigestBody&)>> changes = {
      [](v1::DigestBody& body) { body.set_run_id("other-1"); },
      [](v1::DigestBody& body) { body.set_epoch(2); },
      [](v1::DigestBody& body) { body.set_stamp(1); },
      [](v1::DigestBody& body) { body.set_step(3); },
      [](v1::DigestBody& body) { body.mutable_cell()->set_stage(2); },
      [](v1::DigestBody& body) { body.mutable_edges()->RemoveLast(); },
      [](v1::DigestBody& body) { *body.add_edges() = body.edges(0); },
      [](v1::DigestBody& body) { body.mutable_edges(0)->set_edge(77); },
      [](v1::DigestBody& body) { body.mutable_edges(0)->set_sent(!body.edges(0).sent()); },
      [](v1::DigestBody& body) { body.mutable_edges(0)->add_digests(1); },
      [](v1::DigestBody& body) { body.mutable_edges(0)->set_messages(UINT32_MAX); },
      [](v1::DigestBody& body) { body.clear_state_before(); },
      [](v1::DigestBody& body) { body.clear_state_after(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    book = DigestBook();
    const auto found = OneLies([&](v1::StepReport& report) { ChangeBody(report, changes[i]); });
    ASSERT_THAT(found, SizeIs(1)) << "change " << i;
    EXPECT_EQ(found[0].kind, Kind::kMalformed) << "change " << i;
    EXPECT_EQ(found[0].cell.stage, 1u);
    EXPECT_NE(found[0].what, "");
  }
  book = DigestBook();
  const auto found =
      OneLies([](v1::StepReport& report) { report.mutable_digests()->set_body("\xff none"); });
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, Kind::kMalformed);
}

}  // namespace
}  // namespace longhaul::coordinator
