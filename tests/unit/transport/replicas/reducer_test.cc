// The order of calls, what a reducer refuses, and what it counts.
#include "transport/replicas/reducer.h"

#include <gmock/gmock.h>

#include <cstring>

#include "two_replicas.h"

namespace longhaul::replicas {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTagc[] = "tagc:keep=0.02,least=1000";
constexpr size_t kStepAt = 8, kBucketAt = 16, kOwnerAt = 20, kFingerprintAt = 24, kBytesAt = 32;

std::string Refusal(const Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}
std::vector<std::byte> Changed(std::vector<std::byte> message, size_t at, uint32_t word) {
  std::memcpy(message.data() + at, &word, 4);
  return message;
}
std::vector<std::byte> Cut(std::vector<std::byte> message, size_t bytes) {
  message.resize(message.size() - bytes);
  return Changed(message, kBytesAt, static_cast<uint32_t>(message.size() - kMessageHeaderBytes));
}

TEST(Reducer, RefusesCallsOutOfOrder) {
  HandHeld one(0, "none", "fp32");
  EXPECT_THAT(one.reducer->GiveGradients(0).message(), HasSubstr("in a step that has begun"));
  ASSERT_TRUE(one.Give(1).ok());
  EXPECT_FALSE(one.reducer->GiveGradients(0).ok());
  EXPECT_FALSE(one.reducer->GiveGradients(1).ok());
  EXPECT_THAT(one.reducer->GiveParameters(0).message(), HasSubstr("after it is reduced"));
  EXPECT_THAT(one.Begin(2).message(), HasSubstr("step 2 comes after step 1 is done"));
  HandHeld other(1, "none", "fp32");
  ASSERT_TRUE(other.Give(1).ok());
  ASSERT_TRUE(Carry(&one, &other).ok());
  ASSERT_TRUE(one.Publish().ok());
  EXPECT_FALSE(one.reducer->GiveParameters(0).ok());
  EXPECT_FALSE(one.reducer->IsDone());
  ASSERT_TRUE(other.Publish().ok());
  ASSERT_TRUE(Carry(&one, &other).ok());
  EXPECT_TRUE(one.reducer->IsDone());
  EXPECT_THAT(one.Begin(3).message(), HasSubstr("got step 3"));
  EXPECT_TRUE(one.Begin(2).ok());
  EXPECT_THAT(one.reducer->Begin(3, {}).message(), HasSubstr("step 3"));
}

TEST(Reducer, SkipsAStepThatNobodyApplies) {
  HandHeld one(0, "sdp4bit", "difference4"), other(1, "sdp4bit", "difference4");
  EXPECT_THAT(one.reducer->SkipStep().message(), HasSubstr("when it is reduced"));
  ASSERT_TRUE(one.Give(1).ok());
  ASSERT_TRUE(other.Give(1).ok());
  EXPECT_FALSE(one.reducer->SkipStep().ok());
  ASSERT_TRUE(Carry(&one, &other).ok());
  ASSERT_TRUE(Carry(&other, &one).ok());
  ASSERT_TRUE(one.reducer->SkipStep().ok());
  EXPECT_TRUE(one.reducer->IsDone());
  EXPECT_FALSE(one.reducer->GiveParameters(0).ok());
  ASSERT_TRUE(other.reducer->SkipStep().ok());
  ASSERT_TRUE(one.Give(2).ok());
  ASSERT_TRUE(other.Give(2).ok());
}

TEST(Reducer, RefusesMessagesThatAreNoneOfThisStep) {
  HandHeld sender(1, "bf16", "fp32"), other_form(1, "none", "fp32");
  ASSERT_TRUE(sender.Give(5).ok());
  ASSERT_TRUE(other_form.Give(5).ok());
  const auto good = sender.outbox.TakeOne(MessageKind::kGradients).bytes;
  const auto refusal = [&](std::vector<std::byte> message, uint32_t from = 1, uint64_t step = 5) {
    HandHeld receiver(0, "bf16", "fp32");
    EXPECT_TRUE(receiver.Give(step).ok());
    return Refusal(receiver.reducer->Take(from, std::move(message)));
  };
  EXPECT_THAT(refusal(good, 0), HasSubstr("expected another one of 2 replicas"));
  EXPECT_THAT(
      refusal(good, 1, 9),
      AllOf(HasSubstr("replica 1"), HasSubstr("expected gradients of step 9 or 10, got step 5")));
  EXPECT_THAT(refusal(good, 1, 3), HasSubstr("of step 3 or 4, got step 5"));
  EXPECT_THAT(refusal(other_form.outbox.TakeOne(MessageKind::kGradients).bytes),
              HasSubstr("its layout is another one"));
  EXPECT_THAT(refusal(Changed(good, kBucketAt, 7)), HasSubstr("a bucket below 1"));
  EXPECT_THAT(refusal(Changed(good, kOwnerAt, 1)), HasSubstr("of the shard of 1"));
  EXPECT_THAT(refusal(Changed(good, kOwnerAt, 2)), HasSubstr("an owner below 2, got 0 and 2"));
  EXPECT_THAT(refusal(Changed(good, kBytesAt, 7)), HasSubstr("expected 7 bytes"));
  EXPECT_THAT(refusal(Changed(good, 0, 7)), HasSubstr("no magic LHRG"));
  EXPECT_THAT(refusal(Changed(good, 4, 0x00090001)), HasSubstr("1 to 5, got 9"));
  EXPECT_THAT(refusal(Cut(good, 2)), HasSubstr("gradients: expected "));
  EXPECT_THAT(refusal({good.begin(), good.begin() + 20}), HasSubstr("40 bytes or more, got 20"));
  HandHeld receiver(0, "bf16", "fp32");
  ASSERT_TRUE(receiver.Give(5).ok());
  EXPECT_EQ(receiver.reducer->Take(1, Changed(good, 4, 0x00010002)).code(),
            absl::StatusCode::kUnimplemented);
  ASSERT_TRUE(receiver.reducer->Take(1, good).ok());
  EXPECT_THAT(Refusal(receiver.reducer->Take(1, good)), HasSubstr("gradients came twice"));
}

TEST(Reducer, HoldsWhatAFasterReplicaSendsOfTheNextStepOnce) {
  HandHeld slow(0, "none", "fp32"), fast(1, "none", "fp32");
  ASSERT_TRUE(slow.Give(1).ok() && fast.Give(1).ok());
  ASSERT_TRUE(Carry(&slow, &fast).ok());
  ASSERT_TRUE(slow.Publish().ok() && fast.Publish().ok());
  const auto parameters = fast.outbox.TakeOne(MessageKind::kParameters).bytes;
  ASSERT_TRUE(Carry(&slow, &fast).ok());
  ASSERT_TRUE(fast.reducer->IsDone());
  ASSERT_FALSE(slow.reducer->IsDone());
  ASSERT_TRUE(fast.Give(2).ok());
  const auto gradients = fast.outbox.TakeOne(MessageKind::kGradients).bytes;
  EXPECT_THAT(Refusal(slow.reducer->Take(1, Changed(parameters, kStepAt, 2))),
              HasSubstr("came before this replica's gradients"));
  ASSERT_TRUE(slow.reducer->Take(1, gradients).ok());
  EXPECT_THAT(Refusal(slow.reducer->Take(1, gradients)), HasSubstr("came twice"));
  ASSERT_TRUE(slow.reducer->Take(1, parameters).ok());
  ASSERT_TRUE(slow.reducer->IsDone());
  ASSERT_TRUE(slow.Give(2).ok());
  EXPECT_TRUE(slow.reducer->IsReduced(0));
}

TEST(Reducer, RefusesParametersTooEarlyTwiceOrOfAnotherSize) {
  HandHeld receiver(0, "none", "bf16"), sender(1, "none", "bf16");
  ASSERT_TRUE(receiver.Give(1).ok() && sender.Give(1).ok());
  ASSERT_TRUE(Carry(&receiver, &sender).ok());
  ASSERT_TRUE(sender.Publish().ok());
  const auto good = sender.outbox.TakeOne(MessageKind::kParameters).bytes;
  HandHeld early(0, "none", "bf16");
  ASSERT_TRUE(early.Begin(1).ok());
  EXPECT_THAT(Refusal(early.reducer->Take(1, good)), HasSubstr("after this replica's gradients"));
  EXPECT_THAT(Refusal(receiver.reducer->Take(1, Cut(good, 1))), HasSubstr("parameters: expected"));
  ASSERT_TRUE(receiver.reducer->Take(1, good).ok());
  EXPECT_THAT(Refusal(receiver.reducer->Take(1, good)), HasSubstr("expected them once"));
}

// Every message of a tagc exchange, changed in one place.
class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(owner.Give(1).ok() && contributor.Give(1).ok());
    index = contributor.outbox.TakeOne(MessageKind::kIndex).bytes;
  }
  HandHeld owner{0, kTagc, "fp32"}, contributor{1, kTagc, "fp32"};
  std::vector<std::byte> index;
};

TEST_F(Hostile, Index) {
  constexpr size_t kPayload = kMessageHeaderBytes;
  const auto refusal = [&](std::vector<std::byte> message) {
    HandHeld fresh(0, kTagc, "fp32");
    EXPECT_TRUE(fresh.Give(1).ok());
    return Refusal(fresh.reducer->Take(1, std::move(message)));
  };
  EXPECT_THAT(refusal(Cut(index, 8)), HasSubstr("index: expected"));
  EXPECT_THAT(refusal(Changed(index, kPayload, 0x7f800000)), HasSubstr("of a finite number"));
  EXPECT_THAT(refusal(Changed(index, kPayload + 4, 1)), HasSubstr("not finite: it has positions"));
  EXPECT_THAT(refusal(Changed(index, kPayload + 4, 2)), HasSubstr("expected 0 or 1, got 2"));
  EXPECT_THAT(refusal(Changed(index, kPayload + 8, 0xffffffff)), HasSubstr("positions in a piece"));
  ASSERT_TRUE(owner.reducer->Take(1, index).ok());
  EXPECT_THAT(Refusal(owner.reducer->Take(1, index)), HasSubstr("expected one in a step"));
}

TEST_F(Hostile, Union) {
  ASSERT_TRUE(owner.reducer->Take(1, index).ok());
  const auto all = owner.outbox.TakeOne(MessageKind::kUnion).bytes;
  constexpr size_t kPayload = kMessageHeaderBytes;
  const auto refusal = [&](std::vector<std::byte> message) {
    HandHeld fresh(1, kTagc, "fp32");
    EXPECT_TRUE(fresh.Give(1).ok());
    return Refusal(fresh.reducer->Take(0, std::move(message)));
  };
  EXPECT_THAT(refusal(Changed(all, kPayload, 3)), HasSubstr("0, 1 or 2, got 3"));
  EXPECT_THAT(refusal(Changed(all, kPayload, 1)), HasSubstr("it has a sketch"));
  EXPECT_THAT(refusal(Changed(all, kPayload, 0)), HasSubstr("union: expected"));
  EXPECT_THAT(refusal(Changed(all, kPayload + 4, 127)), HasSubstr("-126 to 126, got 127"));
  EXPECT_THAT(refusal(Changed(all, kPayload + 4, 60)), HasSubstr("is too high"));
  EXPECT_THAT(refusal(Changed(all, kPayload + 8, 0x7fffffff)), HasSubstr("rows of a sketch"));
  EXPECT_THAT(refusal(Changed(all, kPayload + 8, 0)), HasSubstr("0 rows of a sketch"));
  EXPECT_THAT(refusal(Changed(all, kPayload + 16, 5)), HasSubstr("union: expected"));
  EXPECT_THAT(refusal(Changed(all, kPayload + 20, 5)), HasSubstr("expected 0, got 5"));
  auto longer = all;
  longer.resize(all.size() + 4);
  longer = Changed(Cut(longer, 0), kPayload + 16, 1);
  EXPECT_THAT(refusal(Changed(longer, all.size(), 0xffffffff)), HasSubstr("one of the union's"));
  ASSERT_TRUE(contributor.reducer->Take(0, all).ok());
  EXPECT_THAT(Refusal(contributor.reducer->Take(0, all)), HasSubstr("as an answer"));
}

TEST_F(Hostile, Sketch) {
  ASSERT_TRUE(owner.reducer->Take(1, index).ok());
  const auto all = owner.outbox.TakeOne(MessageKind::kUnion).bytes;
  ASSERT_TRUE(contributor.reducer->Take(0, all).ok());
  const auto sketch = contributor.outbox.TakeOne(MessageKind::kSketch).bytes;
  const auto dense = contributor.outbox.TakeOne(MessageKind::kGradients).bytes;
  HandHeld early(0, kTagc, "fp32");
  ASSERT_TRUE(early.Give(1).ok());
  EXPECT_THAT(Refusal(early.reducer->Take(1, sketch)), HasSubstr("as an answer"));
  EXPECT_THAT(Refusal(owner.reducer->Take(1, Cut(sketch, 4))), HasSubstr("sketch: expected"));
  ASSERT_TRUE(owner.reducer->Take(1, dense).ok());
  EXPECT_THAT(
      Refusal(owner.reducer->Take(1, Changed(sketch, kMessageHeaderBytes + 400, 0x12345678))),
      HasSubstr("at positions that no index named"));
}

TEST(Reducer, CountsWhatItSendsAndReceives) {
  for (const char* form : {"none", "bf16", "sdp4bit", kTagc}) {
    HandHeld one(0, form, "difference4"), other(1, form, "difference4");
    ASSERT_TRUE(one.Give(1).ok() && other.Give(1).ok());
    uint64_t bytes = 0;
    for (const Sent& sent : one.outbox.sent) bytes += sent.bytes.size();
    EXPECT_EQ(one.reducer->sent().total(), bytes) << form;
    ASSERT_TRUE(Carry(&one, &other).ok());
    ASSERT_TRUE(one.Publish().ok() && other.Publish().ok());
    ASSERT_TRUE(Carry(&one, &other).ok());
    const auto same = [](const ByteCounts& a, const ByteCounts& b) {
      return a.gradients == b.gradients && a.index == b.index && a.sketch == b.sketch &&
             a.asked_for == b.asked_for && a.parameters == b.parameters;
    };
    EXPECT_TRUE(same(one.reducer->sent(), other.reducer->received())) << form;
    EXPECT_TRUE(same(other.reducer->sent(), one.reducer->received())) << form;
    EXPECT_EQ(one.reducer->sent().index > 0, form == kTagc);
  }
}

// A run that goes on from the tensors of a checkpoint is the run that was not broken.
TEST(Reducer, GoesOnFromItsState) {
  for (const char* form : {"sdp4bit:feedback=on", kTagc}) {
    HandHeld one(0, form, "difference4"), other(1, form, "difference4");
    const auto step = [](HandHeld* a, HandHeld* b, uint64_t number) {
      return a->Give(number).ok() && b->Give(number).ok() && Carry(a, b).ok() &&
             a->Publish().ok() && b->Publish().ok() && Carry(a, b).ok();
    };
    ASSERT_TRUE(step(&one, &other, 1));
    HandHeld again(0, form, "difference4"), other_again(1, form, "difference4");
    for (auto [from, to] : {std::pair{&one, &again}, std::pair{&other, &other_again}}) {
      const auto saved = from->reducer->State();
      const auto loaded = to->reducer->State();
      ASSERT_EQ(saved.size(), loaded.size());
      for (size_t k = 0; k < saved.size(); ++k) {
        ASSERT_EQ(saved[k].name, loaded[k].name);
        std::copy(saved[k].values.begin(), saved[k].values.end(), loaded[k].values.begin());
      }
      to->values() = from->values();
    }
    ASSERT_TRUE(step(&one, &other, 2));
    ASSERT_TRUE(step(&again, &other_again, 2));
    EXPECT_EQ(one.values(), again.values()) << form;
    EXPECT_EQ(one.values(), other_again.values()) << form;
  }
}

}  // namespace
}  // namespace longhaul::replicas
