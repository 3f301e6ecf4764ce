// Two ends of a tied matrix against each other, over a link that the test holds in its hands.
#include "worker/pipeline/tied_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

// A gradient in the test's memory. It keeps what the interface promises of -0.
class FakeMatrix final : public TiedMatrix {
 public:
  FakeMatrix(uint32_t rows, uint32_t channels, bool head)
      : gradient(size_t{rows} * channels), rows_(rows), channels_(channels), head_(head) {}

  const std::string& name() const override { return name_; }
  uint32_t rows() const override { return rows_; }
  uint32_t channels() const override { return channels_; }
  Status ReadGradient(std::span<const int32_t> rows, std::span<float> values) override {
    EXPECT_EQ(values.size(), rows.size() * channels_);
    for (size_t i = 0; i < rows.size(); ++i) {
      float* const row = Row(rows[i]);
      for (uint32_t c = 0; c < channels_ && head_; ++c) row[c] += 0;
      std::memcpy(&values[i * channels_], row, sizeof(float) * channels_);
      read_rows += 1;
    }
    return absl::OkStatus();
  }
  Status AddToGradient(std::span<const int32_t> rows, std::span<const float> values) override {
    EXPECT_EQ(values.size(), rows.size() * channels_);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (uint32_t c = 0; c < channels_; ++c) Row(rows[i])[c] += values[i * channels_ + c];
    }
    return absl::OkStatus();
  }

  std::vector<float> gradient;
  size_t read_rows = 0;

 private:
  float* Row(int32_t row) { return &gradient[static_cast<size_t>(row) * channels_]; }

  const std::string name_ = "wte";
  const uint32_t rows_, channels_;
  const bool head_;
};

constexpr uint32_t kRows = 5000, kChannels = 96;  // 2 MB: two pieces

class TiedExchangeTest : public ::testing::Test {
 protected:
  struct Sent {
    Step step{0};
    Microbatch piece;
    BoundaryTensor tensor;
  };
  struct End {
    End(bool embedding, uint32_t rows, uint32_t channels)
        : matrix(rows, channels, !embedding),
          exchange(&matrix, embedding,
                   {.send_piece =
                        [this](Step step, Microbatch piece, BoundaryTensor tensor) {
                          sent.push_back({step, piece, std::move(tensor)});
                        },
                    .send_digest =
                        [this](Step step, uint64_t digest) {
                          digests.push_back({step, digest});
                        }}) {}
    FakeMatrix matrix;
    std::deque<Sent> sent;
    std::deque<DigestArrived> digests;
    TiedExchange exchange;
  };

  // One piece goes over, if there is one.
  static bool Carry(End& from, End& to, Step step) {
    if (from.sent.empty()) return false;
    Sent sent = std::move(from.sent.front());
    from.sent.pop_front();
    EXPECT_EQ(to.exchange.Take(TensorArrived{.pass = Pass{sent.step},
                                             .slice = sent.piece,
                                             .tensor = std::move(sent.tensor)},
                               step),
              absl::OkStatus());
    from.exchange.NotePieceTaken();
    return true;
  }
  void Finish(Step step) {
    while (!embedding_.exchange.IsDone() || !head_.exchange.IsDone()) {
      ASSERT_EQ(embedding_.exchange.Advance(), absl::OkStatus());
      ASSERT_EQ(head_.exchange.Advance(), absl::OkStatus());
      const bool down = Carry(embedding_, head_, step), up = Carry(head_, embedding_, step);
      if (!down && !up) {
        ASSERT_TRUE(embedding_.exchange.IsDone() && head_.exchange.IsDone()) << "nothing moves";
      }
    }
  }
  // Gradients of a step whose tokens are `ids`; gives their sum.
  std::vector<float> Fill(std::mt19937& random, const std::vector<int32_t>& ids) {
    std::normal_distribution<float> normal;
    std::ranges::fill(embedding_.matrix.gradient, 0.0f);
    for (float& value : head_.matrix.gradient) {
      value = random() % 8 == 0 ? -0.0f : normal(random);
    }
    for (const int32_t id : ids) {
      for (uint32_t c = 0; c < kChannels; ++c) {
        embedding_.matrix.gradient[static_cast<size_t>(id) * kChannels + c] =
            random() % 8 == 0 ? -0.0f : normal(random);
      }
    }
    std::vector<float> sum = embedding_.matrix.gradient;
    // No end has a -0.
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += head_.matrix.gradient[i] + 0.0f;
    for (End* end : {&embedding_, &head_}) end->exchange.NoteTokens(ids);
    return sum;
  }
  static void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0);
  }

  End embedding_{true, kRows, kChannels}, head_{false, kRows, kChannels};
};

TEST(PiecesOfAMatrix, CoverItInAboutAMiBEach) {
  EXPECT_EQ(PiecesOf(kRows, kChannels).shape, (codec::Shape{1, 2730, kChannels}));
  EXPECT_EQ(PiecesOf(kRows, kChannels).pieces, 2u);
  EXPECT_EQ(PiecesOf(3, 4).shape, (codec::Shape{1, 3, 4}));
  EXPECT_EQ(PiecesOf(3, 4).pieces, 1u);
  EXPECT_EQ(PiecesOf(10, 1u << 20).shape.tokens, 1u);
  EXPECT_EQ(PiecesOf(10, 1u << 20).pieces, 10u);
}

TEST_F(TiedExchangeTest, BothEndsHaveTheSumToTheBit) {
  std::mt19937 random(1);
  for (uint64_t step = 1; step <= 4; ++step) {
    std::vector<int32_t> ids;
    // Few, many, and in the end rows without a gap.
    for (uint32_t i = 0; i < (step == 4 ? kRows : 1000 * (step - 1) + 1); ++i) {
      ids.push_back(step == 4 ? static_cast<int32_t>(i) : static_cast<int32_t>(random() % kRows));
    }
    const std::vector<float> sum = Fill(random, ids);
    embedding_.exchange.Begin(Step(step));
    head_.exchange.Begin(Step(step));
    Finish(Step(step));
    ExpectSameBits(embedding_.matrix.gradient, sum);
    ExpectSameBits(head_.matrix.gradient, sum);
  }
}

TEST_F(TiedExchangeTest, WhatComesEarlyWaitsUntilTheOwnRowsAreRead) {
  std::mt19937 random(2);
  const std::vector<float> sum = Fill(random, {7, 3, 7, 4999});
  head_.exchange.Begin(Step(1));
  ASSERT_EQ(head_.exchange.Advance(), absl::OkStatus());
  while (Carry(head_, embedding_, Step(1))) {
  }
  EXPECT_EQ(embedding_.matrix.read_rows, 0u);
  embedding_.exchange.Begin(Step(1));
  ASSERT_EQ(embedding_.exchange.Advance(), absl::OkStatus());
  EXPECT_TRUE(embedding_.exchange.IsDone());
  EXPECT_EQ(embedding_.matrix.read_rows, 3u) << "the rows of tokens alone";
  EXPECT_FALSE(head_.exchange.IsDone());
  Finish(Step(1));
  ExpectSameBits(head_.matrix.gradient, sum);
}

TEST_F(TiedExchangeTest, NoMoreThanSomePiecesWaitForThePeer) {
  // A row is a piece.
  constexpr uint32_t kWide = 1u << 18, kMany = 3 * TiedExchange::kPiecesUnderWay;
  End head(false, kMany, kWide);
  head.exchange.NoteTokens(std::vector<int32_t>{0});
  head.exchange.Begin(Step(1));
  ASSERT_EQ(head.exchange.Advance(), absl::OkStatus());
  EXPECT_EQ(head.sent.size(), TiedExchange::kPiecesUnderWay);
  head.exchange.NotePieceTaken();
  ASSERT_EQ(head.exchange.Advance(), absl::OkStatus());
  EXPECT_EQ(head.sent.size(), TiedExchange::kPiecesUnderWay + 1);
}

TEST_F(TiedExchangeTest, RefusesWhatIsNotOfTheStep) {
  EXPECT_THAT(
      std::string(Message(embedding_.exchange.Take(TensorArrived{.pass = Pass{Step(3)}}, Step(2)))),
      HasSubstr("of wte of step 3 came while step 2 is under way"));
  EXPECT_FALSE(embedding_.exchange.Take(DigestArrived{Step(1), 0}, Step(2)).ok());
  // The embedding's end read fewer tokens than it sends rows of.
  std::mt19937 random(3);
  Fill(random, {1});
  const auto values = std::make_shared<std::vector<float>>(2730 * kChannels);
  ASSERT_EQ(head_.exchange.Take(
                TensorArrived{
                    .pass = Pass{Step(1)},
                    .slice = Microbatch(1),
                    .tensor = {{values->data(), codec::Dtype::kF32, {1, 2730, kChannels}}, values}},
                Step(1)),
            absl::OkStatus());
  head_.exchange.Begin(Step(1));
  EXPECT_THAT(std::string(Message(head_.exchange.Advance())),
              HasSubstr("the two ends have read other tokens"));
}

StageSnapshot SnapshotWith(float value, float moment) {
  return {.step = 4,
          .parameters = {{"h.0.ln", {1}, {value + moment}}, {"wte", {2}, {1, value}}},
          .moments = {{"wte.exp_avg", {1}, {moment}}, {"wtee.exp_avg", {1}, {value}}}};
}

TEST_F(TiedExchangeTest, ChecksMatrixAndMomentsAndNothingElse) {
  const StageSnapshot own = SnapshotWith(1, 2);
  StageSnapshot rest = own;
  rest.parameters[0].values[0] = 5;
  rest.moments[1].values[0] = 5;
  EXPECT_EQ(DigestOf(own, embedding_.matrix), DigestOf(rest, embedding_.matrix));

  const auto check = [&](const StageSnapshot& one, const StageSnapshot& other) {
    embedding_.exchange.BeginCheck(one);
    EXPECT_FALSE(*embedding_.exchange.IsChecked());
    head_.exchange.BeginCheck(other);
    EXPECT_EQ(head_.exchange.Take(embedding_.digests.back(), Step(4)), absl::OkStatus());
    EXPECT_EQ(embedding_.exchange.Take(head_.digests.back(), Step(4)), absl::OkStatus());
    StatusOr<bool> at_head = head_.exchange.IsChecked();
    const StatusOr<bool> at_embedding = embedding_.exchange.IsChecked();
    EXPECT_EQ(at_head.ok(), at_embedding.ok());
    return at_head;
  };
  EXPECT_TRUE(check(own, rest).value_or(false));
  EXPECT_TRUE(check(own, own).value_or(false)) << "again and again";
  for (const StageSnapshot& other : {SnapshotWith(1.5, 2), SnapshotWith(1, 2.5)}) {
    EXPECT_THAT(std::string(Message(check(own, other).status())),
                HasSubstr("hold wte do not have the same numbers any more"));
  }
}

}  // namespace
}  // namespace longhaul::worker
