// How a group ends: ranks that fail, do not come, leave, or make other calls than the others.
#include <absl/time/clock.h>

#include <atomic>
#include <mutex>
#include <set>

#include "tests/conformance/collective/cases.h"
#include "tests/conformance/collective/collective_test.h"

namespace longhaul::collective {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr uint64_t kCount = 100'000;
constexpr auto kSum = Reduction::kSum;

// Buffers for AllCalls.
struct Buffers {
  Buffers(Rank& rank, uint64_t count)
      : in(rank.Put(std::vector<std::byte>(rank.size() * count * 2))),
        out(rank.Put(std::vector<std::byte>(rank.size() * count * 2))) {}
  void* in;
  void* out;
};

// The same call until it fails.
Status CallUntilItFails(Rank& rank, const NamedCall& call, uint64_t count) {
  const Buffers buffers(rank, count);
  while (true) {
    Status done = rank.Await(call.call(rank, buffers.in, buffers.out, count));
    if (!done.ok()) return done;
  }
}
Status CallTimes(Rank& rank, const NamedCall& call, uint64_t count, int times) {
  const Buffers buffers(rank, count);
  for (int i = 0; i < times; ++i) {
    LH_RETURN_IF_ERROR(rank.Await(call.call(rank, buffers.in, buffers.out, count)));
  }
  return absl::OkStatus();
}

class EndTest : public CollectiveTest {
 protected:
  uint32_t last() const { return size() - 1; }
  bool IsLast(Rank& rank) const { return rank.number() == last(); }
};

// A machine with one GPU has no group of two.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EndTest);
INSTANTIATE_TEST_SUITE_P(Backend, EndTest, ::testing::ValuesIn(WithSizes({2, 3, 8})), NameOf);

TEST_P(EndTest, ARankThatFailsInTheMiddleIsNamed) {
  for (const NamedCall& call : CallsOf(backend())) {
    SCOPED_TRACE(call.name);
    std::atomic<int64_t> failed_at = 0;
    OnRanks([&](Rank& rank) {
      if (IsLast(rank)) {
        EXPECT_TRUE(CallTimes(rank, call, kCount, 3).ok());
        absl::SleepFor(absl::Milliseconds(30));  // the others are in their fourth call
        failed_at = Now().nanoseconds();
        rank.communicator().Abort(absl::InternalError("its device broke"));
        EXPECT_FALSE(rank.communicator().status().ok());
        return;
      }
      const Status end = CallUntilItFails(rank, call, kCount);
      const MonoTime failed = MonoTime::FromNanoseconds(failed_at.load());
      EXPECT_LE(Now() - failed, EndLimit());
      EXPECT_EQ(end, Aborted("rank {} failed: its device broke", last()));
      EXPECT_EQ(rank.communicator().status(), end);
    });
  }
}

TEST_P(EndTest, AbortFromAnotherThreadEndsAllThatWait) {
  OnRanks([&](Rank& rank) {
    if (IsLast(rank)) {
      EXPECT_TRUE(absl::IsAborted(rank.member().AwaitEnd(Deadline::After(kPatience))));
      EXPECT_FALSE(rank.Await(rank.communicator().Barrier(rank.queue())).ok());
      return;
    }
    MonoTime aborted;
    std::thread other;
    if (rank.number() == 0) {
      other = std::thread([&] {
        absl::SleepFor(absl::Milliseconds(50));
        aborted = Now();
        rank.communicator().Abort(absl::CancelledError("a person stopped the run"));
      });
    }
    const Status end = rank.Await(rank.communicator().Barrier(rank.queue()));
    EXPECT_EQ(end, absl::AbortedError("rank 0 failed: a person stopped the run"));
    if (!other.joinable()) return;
    other.join();
    EXPECT_LE(Now() - aborted, EndLimit());
  });
}

TEST_P(EndTest, ARankThatDoesNotComeIsNamed) {
  for (const NamedCall& call : CallsOf(backend())) {
    SCOPED_TRACE(call.name);
    std::atomic<int> gave_up = 0;
    OnRanks(
        [&](Rank& rank) {
          if (IsLast(rank)) {
            EXPECT_FALSE(rank.member().AwaitEnd(Deadline::After(kPatience)).ok());
            return;
          }
          const Status end = CallUntilItFails(rank, call, kCount);
          if (absl::IsDeadlineExceeded(end)) ++gave_up;
          EXPECT_THAT(end.code(),
                      AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kAborted));
          if (backend().names_late_ranks) {
            // A busy machine may make other ranks late, too; those are named before it.
            EXPECT_THAT(Message(end), ContainsRegex(fmt::format("ranks? ([0-9]+, )*{} ", last())));
          }
          EXPECT_TRUE(absl::IsAborted(rank.communicator().status()));
        },
        {.call_limit = absl::Milliseconds(300)});
    EXPECT_GE(gave_up, 1);
  }
}

TEST_P(EndTest, ARankThatLeavesTooEarlyIsNamed) {
  OnRanks(
      [&](Rank& rank) {
        const NamedCall call = CallsOf(backend()).back();
        if (IsLast(rank)) {
          EXPECT_TRUE(CallTimes(rank, call, kCount, 2).ok());
          rank.Leave();
          return;
        }
        const Status end = CallUntilItFails(rank, call, kCount);
        EXPECT_FALSE(end.ok());
        if (backend().names_late_ranks) {
          EXPECT_THAT(Message(end), HasSubstr(fmt::format("rank {}", last())));
        }
      },
      {.call_limit = absl::Seconds(2)});
}

TEST_P(EndTest, NothingIsDoneAfterTheEnd) {
  OnRanks([&](Rank& rank) {
    const Buffers buffers(rank, 10);
    if (rank.number() == 0) rank.communicator().Abort(absl::InternalError("broken"));
    const Status end = rank.member().AwaitEnd(Deadline::After(kPatience));
    EXPECT_EQ(end, absl::AbortedError("rank 0 failed: broken"));
    for (const NamedCall& call : CallsOf(backend())) {
      EXPECT_EQ(rank.Await(call.call(rank, buffers.in, buffers.out, 10)), end) << call.name;
    }
    EXPECT_EQ(rank.communicator().Wait(rank.queue(), Deadline::After(kPatience)), end);
    rank.communicator().Abort(absl::InternalError("again"));
    EXPECT_EQ(rank.communicator().status(), end);
  });
}

// Nobody waits for anybody: whoever has made its calls goes.
TEST_P(EndTest, RanksLeaveInAnyOrder) {
  for (uint64_t repeat = 0; repeat < 20; ++repeat) {
    OnRanks([&](Rank& rank) {
      RunCase(rank, {.op = Op::kAllReduce, .dtype = Dtype::kBf16, .count = 5'000, .seed = repeat});
      RunCase(rank, {.op = Op::kBroadcast, .dtype = Dtype::kBf16, .count = 50, .seed = repeat});
      rank.Leave();
    });
  }
}

TEST_P(EndTest, AGroupBesideAnEndedOneGoesOn) {
  std::thread other([&] {
    for (uint64_t i = 0; i < 5; ++i) {
      OnRanks([](Rank& rank) {
        for (uint64_t seed = 0; seed < 20; ++seed) {
          RunCase(rank,
                  {.op = Op::kAllReduce, .dtype = Dtype::kBf16, .count = 2'000, .seed = seed});
        }
      });
    }
  });
  for (int i = 0; i < 5; ++i) {
    OnRanks([&](Rank& rank) {
      if (IsLast(rank)) rank.communicator().Abort(absl::InternalError("broken"));
      EXPECT_FALSE(rank.Await(rank.communicator().Barrier(rank.queue())).ok());
    });
  }
  other.join();
}

TEST_P(EndTest, ARankThatMakesNoCommunicatorFailsTheOthers) {
  const auto rendezvous = Rendezvous::Open();
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < size(); ++number) {
    threads.emplace_back([&, number] {
      const Place place{number, size()};
      if (number == last()) {
        const auto member = Member::Join((*rendezvous)->id(), place, Deadline::After(kPatience));
        ASSERT_TRUE(member.ok()) << member.status();
        return;
      }
      const auto rank = Rank::Join(backend(), (*rendezvous)->id(), place, {});
      EXPECT_TRUE(absl::IsAborted(rank.status())) << rank.status();
      EXPECT_THAT(Message(rank.status()), HasSubstr(fmt::format("rank {}", last())));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Rank 0 makes the first call, the others make the second.
struct Mismatch {
  std::string name;
  std::function<Status(Rank&, const Buffers&)> first, second;
  std::vector<std::string> words;
};

std::vector<Mismatch> Mismatches() {
  const auto all_reduce = [](uint64_t count, Dtype dtype, Reduction reduction) {
    return [=](Rank& rank, const Buffers& buffers) {
      return rank.communicator().AllReduce(buffers.in, buffers.out, count, dtype, reduction,
                                           rank.queue());
    };
  };
  const auto broadcast = [](uint32_t root) {
    return [=](Rank& rank, const Buffers& buffers) {
      return rank.communicator().Broadcast(buffers.in, 10, Dtype::kF32, root, rank.queue());
    };
  };
  const auto blocks = [](uint64_t sends, uint64_t receives) {
    return [=](Rank& rank, const Buffers& buffers) {
      std::vector<Block> send(rank.size(), {0, sends}), receive(rank.size(), {0, receives});
      send[rank.number()].count = receive[rank.number()].count = 0;
      return rank.communicator().AllToAllV(buffers.in, send, buffers.out, receive, Dtype::kBytes,
                                           rank.queue());
    };
  };
  const auto barrier = [](Rank& rank, const Buffers&) {
    return rank.communicator().Barrier(rank.queue());
  };
  return {
      {"operations",
       all_reduce(10, Dtype::kF32, kSum),
       barrier,
       {"AllReduce(sum) of 10 f32", "Barrier"}},
      {"counts",
       all_reduce(10, Dtype::kF32, kSum),
       all_reduce(11, Dtype::kF32, kSum),
       {"of 10 f32", "of 11 f32"}},
      {"large and small counts",
       all_reduce(10, Dtype::kF32, kSum),
       all_reduce(90'000, Dtype::kF32, kSum),
       {"of 10 f32", "of 90000 f32"}},
      {"dtypes",
       all_reduce(10, Dtype::kF16, kSum),
       all_reduce(10, Dtype::kBf16, kSum),
       {"of 10 f16", "of 10 bf16"}},
      {"reductions",
       all_reduce(10, Dtype::kF32, kSum),
       all_reduce(10, Dtype::kF32, Reduction::kMax),
       {"AllReduce(sum)", "AllReduce(max)"}},
      {"roots", broadcast(0), broadcast(1), {"from rank 0", "from rank 1"}},
      {"blocks", blocks(8, 8), blocks(16, 8), {"counts do not fit", "8"}},
  };
}

TEST_P(EndTest, CallsThatDoNotFitAreToldApart) {
  if (!backend().names_mismatches) GTEST_SKIP() << "the backend has no headers";
  for (const Mismatch& mismatch : Mismatches()) {
    SCOPED_TRACE(mismatch.name);
    std::mutex mutex;
    std::set<std::string> said;
    OnRanks([&](Rank& rank) {
      const Buffers buffers(rank, kCount);
      const auto& call = rank.number() == 0 ? mismatch.first : mismatch.second;
      Status end = rank.Await(call(rank, buffers));
      // Among the others a call that needs nothing of rank 0 may be done.
      if (end.ok()) end = rank.Await(rank.communicator().Barrier(rank.queue()));
      EXPECT_TRUE(absl::IsAborted(end)) << end;
      for (const std::string& word : mismatch.words) EXPECT_THAT(Message(end), HasSubstr(word));
      const std::lock_guard lock(mutex);
      said.emplace(Message(end));
    });
    EXPECT_EQ(said.size(), 1u) << ::testing::PrintToString(said);
  }
}

}  // namespace
}  // namespace longhaul::collective
