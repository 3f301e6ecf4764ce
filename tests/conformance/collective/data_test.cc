// What comes out of every operation, in every dtype and of many sizes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/conformance/collective/cases.h"
#include "tests/conformance/collective/collective_test.h"

namespace longhaul::collective {
namespace {

constexpr Dtype kNumbers[] = {Dtype::kF32, Dtype::kF16, Dtype::kBf16};
constexpr Dtype kAllDtypes[] = {Dtype::kBytes, Dtype::kF32, Dtype::kF16, Dtype::kBf16};
constexpr uint64_t kCounts[] = {0, 1, 2, 5, 63, 64, 257, 1001, 10'007};

class DataTest : public CollectiveTest {
 protected:
  void RunCases(const std::vector<Case>& cases) {
    OnRanks([&](Rank& rank) {
      for (const Case& test : cases) {
        RunCase(rank, test);
        if (HasFatalFailure()) return;
      }
    });
  }
  // A case for each dtype and count.
  template <class Dtypes>
  static std::vector<Case> Cross(const Dtypes& dtypes, const Case& like) {
    std::vector<Case> cases;
    for (const Dtype dtype : dtypes) {
      for (const uint64_t count : kCounts) {
        cases.push_back(like);
        cases.back().dtype = dtype;
        cases.back().count = count;
        cases.back().seed = cases.size();
      }
    }
    return cases;
  }
};

INSTANTIATE_TEST_SUITE_P(Backend, DataTest, ::testing::ValuesIn(WithSizes({1, 2, 3, 4, 8})),
                         NameOf);

TEST_P(DataTest, AllReduceSums) {
  RunCases(Cross(kNumbers, {.op = Op::kAllReduce}));
}
TEST_P(DataTest, AllReduceInPlace) {
  RunCases(Cross(kNumbers, {.op = Op::kAllReduce, .in_place = true}));
}
TEST_P(DataTest, AllReduceTakesTheMaximum) {
  RunCases(Cross(kNumbers, {.op = Op::kAllReduce, .reduction = Reduction::kMax}));
}
TEST_P(DataTest, ReduceScatterSums) {
  RunCases(Cross(kNumbers, {.op = Op::kReduceScatter}));
}
TEST_P(DataTest, ReduceScatterInPlace) {
  RunCases(Cross(kNumbers, {.op = Op::kReduceScatter, .in_place = true}));
}
TEST_P(DataTest, ReduceScatterTakesTheMaximum) {
  RunCases(Cross(kNumbers, {.op = Op::kReduceScatter, .reduction = Reduction::kMax}));
}
TEST_P(DataTest, AllGather) {
  RunCases(Cross(kAllDtypes, {.op = Op::kAllGather}));
}
TEST_P(DataTest, AllGatherInPlace) {
  RunCases(Cross(kAllDtypes, {.op = Op::kAllGather, .in_place = true}));
}
TEST_P(DataTest, AllToAll) {
  RunCases(Cross(kAllDtypes, {.op = Op::kAllToAll}));
}
TEST_P(DataTest, AllToAllWithABlockForEachPeer) {
  RunCases(Cross(kAllDtypes, {.op = Op::kAllToAll, .blocks = true}));
}

TEST_P(DataTest, BroadcastFromEachRank) {
  std::vector<Case> cases;
  for (uint32_t root = 0; root < size(); ++root) {
    const auto from = Cross(kAllDtypes, {.op = Op::kBroadcast, .root = root});
    cases.insert(cases.end(), from.begin(), from.end());
  }
  RunCases(cases);
}

// Larger than what sockets and rings hold, and divided by no number of ranks.
TEST_P(DataTest, AFewMegabytes) {
  const uint64_t kMany = size() >= 4 ? 400'009 : 1'200'007;
  const uint64_t each = kMany / size();
  RunCases({
      {.op = Op::kAllReduce, .dtype = Dtype::kF32, .count = kMany},
      {.op = Op::kAllReduce, .dtype = Dtype::kBf16, .count = kMany, .in_place = true},
      {.op = Op::kReduceScatter, .dtype = Dtype::kF16, .count = each},
      {.op = Op::kAllGather, .dtype = Dtype::kBf16, .count = each},
      {.op = Op::kAllToAll, .dtype = Dtype::kBf16, .count = each},
      {.op = Op::kAllToAll, .dtype = Dtype::kF32, .count = 2 * each, .blocks = true},
      {.op = Op::kBroadcast, .dtype = Dtype::kF32, .count = kMany, .root = size() - 1},
  });
}

TEST_P(DataTest, AnySequenceOfCalls) {
  constexpr Op kOps[] = {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather,
                         Op::kAllToAll,  Op::kBroadcast,     Op::kBarrier};
  std::vector<Case> cases;
  uint32_t state = 12345;
  const auto draw = [&state](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
  };
  for (int i = 0; i < 150; ++i) {
    Case test{.op = kOps[draw(6)], .dtype = kNumbers[draw(3)]};
    test.count = draw(3) == 0 ? draw(30'000) : draw(100);
    test.root = draw(size());
    const bool reduces = test.op == Op::kAllReduce || test.op == Op::kReduceScatter;
    if (reduces && draw(4) == 0) test.reduction = Reduction::kMax;
    test.in_place = (reduces || test.op == Op::kAllGather) && draw(2) == 0;
    test.blocks = test.op == Op::kAllToAll && draw(2) == 0;
    test.seed = draw(1u << 20);
    cases.push_back(test);
  }
  RunCases(cases);
}

// NaN and infinities go through sums and maxima as in fp32.
TEST_P(DataTest, NumbersThatAreNone) {
  OnRanks([&](Rank& rank) {
    if (!rank.backend().Has(Op::kAllReduce, Dtype::kF32, Reduction::kMax)) return;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::vector<float> values = {1, -kInfinity, -2, kInfinity};
    // In the last rank alone, so that it has to come through.
    if (rank.number() + 1 == rank.size()) values = {std::nanf(""), -kInfinity, -1, 3};
    void* const data = rank.Put(std::as_bytes(std::span(values)));
    ASSERT_TRUE(rank.Await(rank.communicator().AllReduce(data, data, 4, Dtype::kF32,
                                                         Reduction::kMax, rank.queue()))
                    .ok());
    const auto bytes = rank.Get(data, 16);
    std::memcpy(values.data(), bytes.data(), 16);
    EXPECT_TRUE(std::isnan(values[0]) || !rank.backend().keeps_nans) << values[0];
    EXPECT_EQ(values[1], -kInfinity);
    EXPECT_EQ(values[2], -1);
    EXPECT_EQ(values[3], rank.size() == 1 ? 3 : kInfinity);
  });
}

TEST_P(DataTest, PrepareAndCounts) {
  OnRanks([&](Rank& rank) {
    Communicator& communicator = rank.communicator();
    for (const Op op : {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather, Op::kAllToAll,
                        Op::kBroadcast, Op::kBarrier}) {
      if (!rank.backend().Has(op, Dtype::kBf16, Reduction::kSum)) continue;
      EXPECT_TRUE(communicator.Prepare(op, 100'000, Dtype::kBf16).ok()) << ToString(op);
    }
    EXPECT_EQ(communicator.rank(), rank.number());
    EXPECT_EQ(communicator.size(), size());
    EXPECT_FALSE(communicator.Describe().empty());
    const Stats before = communicator.stats();
    RunCase(rank, {.op = Op::kAllGather, .dtype = Dtype::kBf16, .count = 1000, .seed = 5});
    const Stats after = communicator.stats();
    EXPECT_EQ(after.calls - before.calls, 1u);
    EXPECT_EQ(after.tensor_bytes - before.tensor_bytes, 2000 * (size() - 1));
    EXPECT_EQ(after.all_sent_bytes() > before.all_sent_bytes(), size() > 1);
  });
}

// Refused before anything is sent, so that the group goes on.
TEST_P(DataTest, CallsThatCannotBe) {
  OnRanks([&](Rank& rank) {
    Communicator& communicator = rank.communicator();
    const Queue queue = rank.queue();
    void* const data = rank.Room(4096);
    void* const odd = static_cast<std::byte*>(data) + 1;
    const std::vector<Block> blocks(size(), Block{0, 1});
    const std::vector<Block> many(size() + 1, Block{0, 1});
    const auto sum = Reduction::kSum;
    const std::vector<Status> refused = {
        communicator.AllReduce(data, data, 4, Dtype::kBytes, sum, queue),
        communicator.AllReduce(data, data, 4, static_cast<Dtype>(9), sum, queue),
        communicator.AllReduce(data, data, 4, Dtype::kF32, static_cast<Reduction>(9), queue),
        communicator.AllReduce(odd, odd, 4, Dtype::kF32, sum, queue),
        communicator.AllReduce(nullptr, data, 4, Dtype::kF32, sum, queue),
        communicator.ReduceScatter(data, nullptr, 4, Dtype::kF32, sum, queue),
        communicator.AllGather(data, data, ~uint64_t{0}, Dtype::kF32, queue),
        communicator.AllToAll(data, data, uint64_t{1} << 60, Dtype::kF32, queue),
        communicator.AllToAllV(data, many, data, blocks, Dtype::kF32, queue),
        communicator.AllToAllV(data, blocks, data, many, Dtype::kF32, queue),
        communicator.Broadcast(data, 4, Dtype::kF32, size(), queue),
        communicator.Prepare(Op::kAllReduce, 4, static_cast<Dtype>(9)),
    };
    for (size_t i = 0; i < refused.size(); ++i) {
      EXPECT_TRUE(absl::IsInvalidArgument(refused[i])) << i << ": " << refused[i];
    }
    RunCase(rank, {.op = Op::kAllGather, .dtype = Dtype::kBf16, .count = 10, .seed = 5});
    EXPECT_TRUE(communicator.status().ok());
  });
}

}  // namespace
}  // namespace longhaul::collective
