#include "worker/stage/group/shared_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/parity/worker/small_model.h"

namespace longhaul::worker {
namespace {

using ::testing::Each;

constexpr uint32_t kRanks = 4;

class SharedReaderTest : public ::testing::Test {
 protected:
  SharedReaderTest()
      : spec_(testing::SmallModelOf(ModelFamily::kGpt)),
        parameters_(model::ParametersOf(spec_, 256, {.layers = 2})),
        shares_(Shares::Of(spec_, parameters_, {.count = kRanks}).value()) {}

  // Every rank asks for all parameters, until it is told that there are none; what each was told.
  std::vector<Status> Ask(SharedReader& reader,
                          const std::function<void(uint32_t rank, size_t parameter,
                                                   std::span<const float> share)>& check) {
    std::vector<Status> told(kRanks);
    std::vector<std::jthread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const ReadParameter read = reader.OfRank(rank);
        for (size_t i = 0; i < parameters_.size(); ++i) {
          const model::Parameter& parameter = parameters_[i].parameter;
          const auto share = model::ShareOf(spec_, parameter, rank, {.count = kRanks}).value();
          size_t size = 0;
          for (const auto& [first, count] : model::StretchesOf(parameter, share)) size += count;
          std::vector<float> values(size);
          told[rank] = read(parameters_[i], values);
          if (!told[rank].ok()) return;
          check(rank, i, values);
        }
      });
    }
    threads.clear();
    return told;
  }
  // The value of element `i` of parameter `number`.
  static float Value(size_t number, size_t i) { return static_cast<float>(number * 1'000'000 + i); }

  const ModelSpec spec_;
  const std::vector<model::PlacedParameter> parameters_;
  const Shares shares_;
};

TEST_F(SharedReaderTest, ReadsEachParameterOnceAndGivesEachRankItsShare) {
  size_t reads = 0;
  const ReadParameter read = [&](const model::PlacedParameter& parameter,
                                 std::span<float> values) -> Status {
    EXPECT_EQ(parameter.Name(), parameters_[reads].Name());
    for (size_t i = 0; i < values.size(); ++i) values[i] = Value(reads, i);
    ++reads;
    return absl::OkStatus();
  };
  SharedReader reader(shares_, read, kRanks);
  const auto told = Ask(reader, [&](uint32_t rank, size_t number, std::span<const float> share) {
    const model::Parameter& parameter = parameters_[number].parameter;
    const auto ranges = model::ShareOf(spec_, parameter, rank, {.count = kRanks}).value();
    size_t at = 0;
    for (const auto& [first, count] : model::StretchesOf(parameter, ranges)) {
      for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(share[at++], Value(number, first + i));
    }
  });
  EXPECT_THAT(told, Each(absl::OkStatus()));
  EXPECT_EQ(reads, parameters_.size());
}

TEST_F(SharedReaderTest, AFailedReadEndsItForAll) {
  int left = 3;
  const ReadParameter read = [&](const model::PlacedParameter&, std::span<float>) -> Status {
    return --left > 0 ? absl::OkStatus() : absl::DataLossError("damaged");
  };
  SharedReader reader(shares_, read, kRanks);
  const std::vector<Status> told = Ask(reader, [](uint32_t, size_t, std::span<const float>) {});
  EXPECT_EQ(std::ranges::count_if(told, [](const Status& one) { return absl::IsDataLoss(one); }),
            1);
  EXPECT_EQ(std::ranges::count_if(told, [](const Status& one) { return absl::IsAborted(one); }), 3);
  EXPECT_EQ(left, 0);
}

// Rank 1 gives up with a share in its hands; the others would wait for it.
TEST_F(SharedReaderTest, ARankThatEndsItIsNotWaitedFor) {
  const ReadParameter read = [](const model::PlacedParameter&, std::span<float>) {
    return absl::OkStatus();
  };
  SharedReader reader(shares_, read, kRanks);
  const std::vector<Status> told =
      Ask(reader, [&](uint32_t rank, size_t number, std::span<const float>) {
        if (rank == 1 && number == 2) reader.End();
      });
  for (const Status& one : told) EXPECT_TRUE(absl::IsAborted(one)) << one;
}

}  // namespace
}  // namespace longhaul::worker
