// tagc against a plain reference: which elements are kept, by sorting; what stays, in double.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "replicas_cases.h"

namespace longhaul::replicas {
namespace {

constexpr double kKeep = 0.02;

LayoutOptions Options(uint32_t replicas, const char* form = "tagc:keep=0.02,least=1000") {
  return {
      .replicas = replicas, .gradients = ParseGradients(form).value(), .bucket_elements = 30'000};
}

// What one replica sends of a piece, and what stays of it.
class ReferenceSender {
 public:
  explicit ReferenceSender(size_t elements) : stays_(elements) {}
  // Sent values by element, zeros elsewhere.
  std::vector<double> Send(std::span<const float> gradient, size_t first) {
    std::vector<double> sent(gradient.size());
    std::vector<size_t> order(gradient.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t k = 0; k < gradient.size(); ++k) {
      // fp32, as residuals are: else ties fall otherwise.
      stays_[first + k] = static_cast<float>(stays_[first + k]) + gradient[k];
    }
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](size_t k) { return std::fabs(stays_[first + k]); });
    order.resize(static_cast<size_t>(std::ceil(static_cast<double>(gradient.size()) * kKeep)));
    for (const size_t k : order) std::swap(sent[k], stays_[first + k]);
    return sent;
  }
  double& stays(size_t k) { return stays_[k]; }

 private:
  std::vector<double> stays_;
};

constexpr char kSparseOwner[] = "tagc:keep=0.02,least=1000,owner=sparse";

TEST(ReplicasSparse, SendsWhatAPlainReferenceSends) {
  std::mt19937 random(12);
  for (const auto& [replicas, form] :
       {std::pair(2u, "tagc:keep=0.02,least=1000"), std::pair(3u, "tagc:keep=0.02,least=1000"),
        std::pair(6u, "tagc:keep=0.02,least=1000"), std::pair(2u, kSparseOwner),
        std::pair(3u, kSparseOwner)}) {
    const auto parameters = SomeParameters(&random);
    const LayoutOptions options = Options(replicas, form);
    const Tensors begin = SomeTensors(parameters, &random);
    Tensors means = begin;
    ReplicaThreads threads(parameters, options, begin);
    const Layout& layout = threads.reducer(0).layout();
    std::vector<std::vector<ReferenceSender>> senders(replicas);
    for (auto& of_replica : senders) {
      for (const ReplicatedParameter& parameter : parameters) {
        of_replica.emplace_back(parameter.elements);
      }
    }
    for (uint64_t step = 1; step <= 6; ++step) {
      const auto gradients = OfReplicas(parameters, replicas, &random);
      ASSERT_TRUE(threads
                      .Run(
                          step, step,
                          [&](uint32_t r, uint64_t) -> const Tensors& { return gradients[r]; },
                          Collect(&means))
                      .ok());
      int compared = 0;
      for (const Bucket& bucket : layout.buckets()) {
        for (uint32_t owner = 0; owner < replicas; ++owner) {
          for (const Piece& piece : bucket.shards[owner].sparse) {
            std::vector<double> sum(piece.count);
            double largest = 0;
            for (uint32_t r = 0; r < replicas; ++r) {
              const auto part = std::span<const float>(gradients[r][piece.parameter])
                                    .subspan(piece.first, piece.count);
              const std::vector<double> sent =
                  r == owner && !options.gradients.owner_is_sparse
                      ? std::vector<double>(part.begin(), part.end())
                      : senders[r][piece.parameter].Send(part, piece.first);
              for (size_t k = 0; k < sum.size(); ++k) {
                sum[k] += sent[k];
                largest = std::max(largest, std::fabs(sent[k]));
              }
            }
            for (size_t k = 0; k < sum.size(); ++k) {
              ASSERT_NEAR(means[piece.parameter][piece.first + k], sum[k] / replicas,
                          largest * 1e-6)
                  << replicas << " replicas, step " << step;
              ++compared;
            }
          }
        }
      }
      ASSERT_GT(compared, 1000);
      for (uint32_t r = 0; r < replicas; ++r) {
        const SparseCounts counts = threads.reducer(r).sparse_counts();
        EXPECT_LE(counts.asked_for * 1000, counts.kept_by_any);
      }
    }
    // What stays is what a checkpoint has.
    for (uint32_t r = 0; r < replicas; ++r) {
      for (const StateTensor& state : threads.reducer(r).State()) {
        if (!state.name.ends_with(".residual")) continue;
        const size_t k = state.name[1] - size_t{'0'};
        for (size_t i = 0; i < state.values.size(); ++i) {
          ASSERT_NEAR(state.values[i], senders[r][k].stays(i), 2e-6) << state.name;
        }
      }
    }
  }
}

// Steps of zeros bring what stayed, to the last element.
TEST(ReplicasSparse, NothingIsLost) {
  std::mt19937 random(13);
  const std::vector<ReplicatedParameter> parameters = {
      {.name = "w", .elements = 20'000, .may_be_sparse = true}};
  const auto gradients = OfReplicas(parameters, 2, &random);
  const Tensors begin = SomeTensors(parameters, &random);
  Tensors means = begin;
  const Tensors zeros = {std::vector<float>(20'000)};
  std::vector<double> sum(20'000);
  ReplicaThreads threads(parameters, Options(2), begin);
  constexpr uint64_t kSteps = 60;  // 50 of 2% each, and room for equal ones
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(threads
                    .Run(
                        step, step,
                        [&](uint32_t r, uint64_t) -> const Tensors& {
                          return step == 1 ? gradients[r] : zeros;
                        },
                        Collect(&means))
                    .ok());
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += means[0][k];
  }
  for (size_t k = 0; k < sum.size(); ++k) {
    ASSERT_NEAR(sum[k], (double{gradients[0][0][k]} + gradients[1][0][k]) / 2, 1e-7) << k;
  }
}

// Two replicas need no union: the index is sent once.
TEST(ReplicasSparse, TwoReplicasSendTheIndexOnce) {
  std::mt19937 random(14);
  const std::vector<ReplicatedParameter> parameters = {
      {.name = "w", .elements = 200'000, .may_be_sparse = true}};
  LayoutOptions options = Options(2);
  options.bucket_elements = 200'000;
  const auto gradients = OfReplicas(parameters, 2, &random);
  Tensors means = SomeTensors(parameters, &random);
  ReplicaThreads threads(parameters, options, means);
  ASSERT_TRUE(threads
                  .Run(
                      1, 1, [&](uint32_t r, uint64_t) -> const Tensors& { return gradients[r]; },
                      Collect(&means))
                  .ok());
  const ByteCounts& sent = threads.reducer(0).sent();
  EXPECT_LT(static_cast<double>(sent.index), 12'500 * 1.02);
  // 2% in fp32, at 0.7 or more positions a cell.
  EXPECT_LT(static_cast<double>(sent.sketch), 100'000 * 0.02 * 4 / 0.7);
  EXPECT_EQ(sent.gradients, 0);
}

}  // namespace
}  // namespace longhaul::replicas
