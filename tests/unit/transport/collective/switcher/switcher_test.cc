// The whole over the host's collectives, beside a communicator whose times the test sets.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "base/precise_sleep.h"
#include "tests/support/temp_dir.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/switcher/factory.h"

namespace longhaul::collective::switcher {
namespace {

constexpr uint32_t kRanks = 2;
Deadline Soon() {
  return Deadline::After(absl::Minutes(1));
}

// Another one's calls, with time added to them, and a ratio that it says it has.
class Timed final : public Communicator {
 public:
  Timed(std::shared_ptr<Communicator> below, absl::Duration start, absl::Duration per_mb)
      : below_(std::move(below)), start_(start), per_mb_(per_mb) {}

  std::atomic<double> ratio{1};

  uint32_t rank() const override { return below_->rank(); }
  uint32_t size() const override { return below_->size(); }
  int device() const override { return below_->device(); }
  std::string Describe() const override { return "timed"; }
  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    Take(count * BytesPerElement(dtype));
    return below_->AllReduce(in, out, count, dtype, reduction, queue);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    Take(count * size() * BytesPerElement(dtype));
    return below_->ReduceScatter(in, out, count, dtype, reduction, queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    Take(count * size() * BytesPerElement(dtype));
    return below_->AllGather(in, out, count, dtype, queue);
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    uint64_t count = 0;
    for (const Block& block : send) count += block.count;
    Take(count * BytesPerElement(dtype));
    return below_->AllToAllV(in, send, out, receive, dtype, queue);
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) override {
    return below_->Broadcast(data, count, dtype, root, queue);
  }
  Status Barrier(Queue queue) override { return below_->Barrier(queue); }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    return below_->Prepare(op, count, dtype);
  }
  Status Wait(Queue queue, Deadline deadline) override {
    ++waits;
    return below_->Wait(queue, deadline);
  }
  Status fault() override { return std::exchange(found, absl::OkStatus()); }
  void Abort(const Status& reason) override { below_->Abort(reason); }
  Status status() const override { return below_->status(); }
  Stats stats() const override { return stats_; }

  int waits = 0;
  Status found;  // by the next fault()

 private:
  void Take(uint64_t bytes) {
    SleepPreciselyUntil(Now() + (start_ + per_mb_ * (static_cast<double>(bytes) / 1e6)));
    ++stats_.calls;
    stats_.tensor_bytes += bytes;
    stats_.sent_bytes += static_cast<uint64_t>(static_cast<double>(bytes) / ratio);
  }
  const std::shared_ptr<Communicator> below_;
  const absl::Duration start_, per_mb_;
  Stats stats_;
};

struct Rank {
  uint32_t number = 0;
  std::shared_ptr<Member> member;
  std::shared_ptr<Timed> native, fast;
  std::unique_ptr<Switcher> switcher;
  std::vector<std::byte> in = std::vector<std::byte>(1 << 20), out = in;

  // Gathers `bytes` of bf16; gives the line that the call took, as the books say.
  size_t Gather(uint64_t bytes) {
    const auto before = LinesOf(Op::kAllGather);
    EXPECT_TRUE(
        switcher->AllGather(in.data(), out.data(), bytes / 2 / kRanks, Dtype::kBf16, {}).ok());
    const auto after = LinesOf(Op::kAllGather);
    return after[1].calls > before[1].calls ? 1 : 0;
  }
  std::vector<Line> LinesOf(Op op) const {
    for (const Decision& decision : switcher->decisions()) {
      if (decision.op == op) return decision.lines;
    }
    return {};
  }
};

// Native: 24 ms/MB. Fast: 1.6 ms and 6 ms/MB: from about 90 KB on. Long beside what a busy machine
// adds.
void OnRanks(Options options, const std::function<void(Rank&)>& body, double ratio = 1) {
  options.probe_limit = absl::ZeroDuration();  // the two sizes that a line needs
  auto rendezvous = Rendezvous::Open();
  ASSERT_TRUE(rendezvous.ok());
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < kRanks; ++number) {
    threads.emplace_back([&, number] {
      auto member = Member::Join((*rendezvous)->id(), {number, kRanks}, Soon());
      ASSERT_TRUE(member.ok()) << member.status();
      auto made = host::Create(*member, {}, Soon());
      ASSERT_TRUE(made.ok()) << made.status();
      const std::shared_ptr<Communicator> host = *std::move(made);
      Rank rank{.number = number, .member = *member};
      rank.native = std::make_shared<Timed>(host, absl::ZeroDuration(), absl::Milliseconds(24));
      rank.fast = std::make_shared<Timed>(host, absl::Microseconds(1600), absl::Milliseconds(6));
      rank.fast->ratio = ratio;
      auto switcher = Create(*member, rank.native, {{"fast", rank.fast}}, nullptr, options, Soon());
      ASSERT_TRUE(switcher.ok()) << switcher.status();
      rank.switcher = *std::move(switcher);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SwitcherTest, TakesWhoIsFaster) {
  OnRanks({}, [](Rank& rank) {
    EXPECT_THAT(rank.switcher->origin(), ::testing::StartsWith("probed in "));
    EXPECT_EQ(rank.Gather(4096), 0);
    EXPECT_EQ(rank.Gather(1 << 20), 1);
    const auto decisions = rank.switcher->decisions();
    ASSERT_EQ(decisions.size(), 4);
    for (const Decision& decision : decisions) {
      ASSERT_EQ(decision.ranges.size(), 2) << ToText(decisions);
      EXPECT_GT(decision.ranges[1].bytes, 16 << 10) << ToText(decisions);
      EXPECT_LT(decision.ranges[1].bytes, 256 << 10) << ToText(decisions);
    }
  });
}

TEST(SwitcherTest, OtherDtypesAndMaximaAreNative) {
  OnRanks({}, [](Rank& rank) {
    const Stats before = rank.fast->stats();
    auto& s = *rank.switcher;
    EXPECT_TRUE(s.AllGather(rank.in.data(), rank.out.data(), 100000, Dtype::kF32, {}).ok());
    EXPECT_TRUE(s.AllGather(rank.in.data(), rank.out.data(), 400000, Dtype::kBytes, {}).ok());
    EXPECT_TRUE(
        s.AllReduce(rank.in.data(), rank.out.data(), 400000, Dtype::kBf16, Reduction::kMax, {})
            .ok());
    EXPECT_EQ(rank.fast->stats().calls, before.calls);
  });
}

TEST(SwitcherTest, AllRanksChooseAlikeForPartsThatDiffer) {
  OnRanks({.agree_every = 8}, [](Rank& rank) {
    // What rank 1 sends is small, what rank 0 sends is large.
    const uint64_t from0 = 200000, from1 = 10;
    const uint64_t to_other = rank.number == 0 ? from0 : from1;
    const uint64_t from_other = rank.number == 0 ? from1 : from0;
    std::vector<Block> send(kRanks), receive(kRanks);
    send[1 - rank.number] = {0, to_other};
    receive[1 - rank.number] = {0, from_other};
    for (int k = 0; k < 12; ++k) {
      const auto before = rank.LinesOf(Op::kAllToAll)[1].calls;
      ASSERT_TRUE(
          rank.switcher->AllToAllV(rank.in.data(), send, rank.out.data(), receive, Dtype::kBf16, {})
              .ok());
      EXPECT_EQ(rank.LinesOf(Op::kAllToAll)[1].calls - before, k < 8 ? 0 : 1) << k;
    }
  });
}

// At ratio 4, and at 1 it would be slower than the native one.
TEST(SwitcherTest, TheRatioOfCallsDecides) {
  OnRanks(
      {.agree_every = 4},
      [](Rank& rank) {
        EXPECT_EQ(rank.Gather(1 << 20), 1);
        rank.fast->ratio = 1;
        while (rank.LinesOf(Op::kAllGather)[1].ratio > 1.001) {
          ASSERT_LT(rank.LinesOf(Op::kAllGather)[1].calls, 20);
          rank.Gather(1 << 20);
        }
        EXPECT_EQ(rank.Gather(1 << 20), 0);
        // Long afterwards it may show what it is worth again.
        for (int k = 0; k < 64 * 4 + 16 * 4; ++k) EXPECT_EQ(rank.Gather(64), 0);
        EXPECT_EQ(rank.Gather(1 << 20), 1);
      },
      4);
}

TEST(SwitcherTest, AgreesOnNothingWhereCallsAreRecorded) {
  OnRanks(
      {.recorded = true, .agree_every = 2},
      [](Rank& rank) {
        rank.fast->ratio = 1;
        for (int k = 0; k < 8; ++k) EXPECT_EQ(rank.Gather(1 << 20), 1);
        // Replays leave faults that its Wait knows.
        const int before = rank.fast->waits;
        for (int k = 0; k < 3; ++k) EXPECT_TRUE(rank.switcher->Wait({}, Soon()).ok());
        EXPECT_EQ(rank.fast->waits, before + 3);
      },
      4);
}

TEST(SwitcherTest, WaitsForThoseThatWereCalled) {
  OnRanks({}, [](Rank& rank) {
    rank.Gather(64);
    int native = rank.native->waits, fast = rank.fast->waits;
    EXPECT_TRUE(rank.switcher->Wait({}, Soon()).ok());
    EXPECT_EQ(rank.native->waits, native + 1);
    EXPECT_EQ(rank.fast->waits, fast);
    rank.Gather(1 << 20);
    EXPECT_TRUE(rank.switcher->Wait({}, Soon()).ok());
    EXPECT_EQ(rank.fast->waits, fast + 1);
  });
}

TEST(SwitcherTest, TellsTheFaultsOfAll) {
  OnRanks({}, [](Rank& rank) {
    EXPECT_TRUE(rank.switcher->fault().ok());
    for (const auto& one : {rank.native, rank.fast}) {
      one->found = absl::DataLossError("damaged");
      EXPECT_EQ(rank.switcher->fault().code(), absl::StatusCode::kDataLoss);
      EXPECT_TRUE(rank.switcher->fault().ok());
    }
  });
}

TEST(SwitcherTest, KeepsItsProbe) {
  const longhaul::testing::TempDir folder;
  const Options options{.cache_folder = folder.path() + "/kept"};
  const auto origin = [](const Options& with) {
    std::string said;
    OnRanks(with, [&](Rank& rank) {
      EXPECT_EQ(rank.Gather(1 << 20), 1);
      if (rank.number == 0) said = rank.switcher->origin();
    });
    return said;
  };
  const auto probed = ::testing::StartsWith("probed in ");
  const auto read = ::testing::StartsWith("read from " + options.cache_folder);
  EXPECT_THAT(origin(options), probed);
  EXPECT_THAT(origin(options), read);
  Options again = options;
  again.reprobe = true;
  EXPECT_THAT(origin(again), probed);

  // Damage is no error, and is mended.
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(options.cache_folder)) {
    ASSERT_TRUE(file.empty());
    file = entry.path();
  }
  std::ofstream(file) << "{\"format\": 1, \"key\": ";
  EXPECT_THAT(origin(options), probed);
  EXPECT_THAT(origin(options), read);

  // Another NCCL_* is another machine.
  ::setenv("NCCL_TEST_OF_SWITCHER", "1", 1);
  EXPECT_THAT(origin(options), probed);
  ::unsetenv("NCCL_TEST_OF_SWITCHER");
  EXPECT_THAT(origin(options), read);
}

TEST(SwitcherTest, AFolderThatCannotBeWrittenIsNoError) {
  OnRanks({.cache_folder = "/proc/none"}, [](Rank& rank) { EXPECT_EQ(rank.Gather(1 << 20), 1); });
}

TEST(SwitcherTest, CountsWhatItsCallsSent) {
  OnRanks({}, [](Rank& rank) {
    EXPECT_EQ(rank.switcher->stats().calls, 0);
    rank.Gather(64);
    rank.Gather(1 << 20);
    EXPECT_EQ(rank.switcher->stats().calls, 2);
    EXPECT_EQ(rank.switcher->stats().tensor_bytes, 64 + (1 << 20));
  });
}

TEST(SwitcherTest, RefusesOptionsThatCannotBe) {
  OnRanks({}, [](Rank& rank) {
    const auto code = [&](std::vector<Alternative> alternatives, const Options& options) {
      return Create(rank.member, rank.native, std::move(alternatives), nullptr, options, Soon())
          .status()
          .code();
    };
    const auto invalid = absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(code({{"native", rank.fast}}, {}), invalid);
    EXPECT_EQ(code({{"a", rank.fast}, {"a", rank.fast}}, {}), invalid);
    EXPECT_EQ(code({{"a", rank.fast}}, {.margin = -1}), invalid);
    EXPECT_EQ(code({{"a", rank.fast}}, {.agree_every = 0}), invalid);
    EXPECT_EQ(code({{"a", rank.fast}}, {.dtypes = {Dtype::kBytes}}), invalid);
    // Not the same on all ranks.
    EXPECT_EQ(code({{rank.number == 0 ? "a" : "b", rank.fast}}, {}), invalid);
  });
}

}  // namespace
}  // namespace longhaul::collective::switcher
