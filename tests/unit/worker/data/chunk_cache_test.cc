#include "worker/data/chunk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace longhaul::worker {
namespace {

constexpr uint64_t kChunkBytes = 100;

ChunkId Id(uint64_t chunk) {
  return {.chunk = chunk};
}
std::vector<ChunkId> Ids(uint64_t first, uint64_t end) {
  std::vector<ChunkId> ids;
  for (uint64_t chunk = first; chunk < end; ++chunk) ids.push_back(Id(chunk));
  return ids;
}

// Hands out chunks that say which they are, once they are let.
class Holder {
 public:
  ChunkCache::Fetch fetch() {
    return [this](const ChunkId& id,
                  const std::function<bool()>& given_up) -> StatusOr<std::vector<std::byte>> {
      std::unique_lock lock(mutex_);
      asked_.push_back(id.chunk);
      changed_.notify_all();
      while (id.chunk >= let_) {
        changed_.wait_for(lock, std::chrono::milliseconds(5));
        lock.unlock();
        const bool gave_up = given_up();
        lock.lock();
        if (gave_up) return absl::CancelledError("given up");
      }
      if (failing_.contains(id.chunk)) return absl::UnavailableError("nobody has it");
      return std::vector<std::byte>(kChunkBytes, std::byte(id.chunk));
    };
  }
  void Let(uint64_t below) {
    const std::lock_guard lock(mutex_);
    let_ = below;
    changed_.notify_all();
  }
  void Fail(std::set<uint64_t> chunks) {
    const std::lock_guard lock(mutex_);
    failing_ = std::move(chunks);
  }
  std::vector<uint64_t> AwaitAsked(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_.size() >= count; });
    return asked_;
  }
  std::vector<uint64_t> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t let_ = UINT64_MAX;
  std::set<uint64_t> failing_;
  std::vector<uint64_t> asked_;
};

std::byte First(ChunkCache& cache, uint64_t chunk) {
  const auto got = cache.Get(Id(chunk));
  EXPECT_TRUE(got.ok()) << got.status();
  return (**got)[0];
}

TEST(ChunkCache, FetchesAChunkOnceWhileThereIsRoom) {
  Holder holder;
  ChunkCache cache(10 * kChunkBytes, holder.fetch());
  for (int round = 0; round < 3; ++round) {
    for (uint64_t chunk = 0; chunk < 10; ++chunk) EXPECT_EQ(First(cache, chunk), std::byte(chunk));
  }
  EXPECT_EQ(holder.asked().size(), 10);
  EXPECT_EQ(cache.bytes(), 10 * kChunkBytes);
  // The one that was used longest ago makes room.
  First(cache, 0);
  First(cache, 10);
  EXPECT_EQ(cache.bytes(), 10 * kChunkBytes);
  First(cache, 0);
  EXPECT_EQ(holder.asked().size(), 11);
  First(cache, 1);
  EXPECT_EQ(holder.asked().size(), 12);
}

TEST(ChunkCache, FetchesAheadAsMuchAsThereIsRoomFor) {
  Holder holder;
  ChunkCache cache(4 * kChunkBytes, holder.fetch());
  First(cache, 100);  // so that it knows how large one is
  cache.Expect(Ids(0, 20));
  holder.AwaitAsked(5);
  for (uint64_t chunk = 0; chunk < 4; ++chunk) First(cache, chunk);
  const auto asked = holder.asked();
  EXPECT_EQ(std::set<uint64_t>(asked.begin(), asked.end()), std::set<uint64_t>({0, 1, 2, 3, 100}));
  EXPECT_EQ(asked.size(), 5);
  EXPECT_EQ(cache.bytes(), 4 * kChunkBytes);
}

TEST(ChunkCache, WhatIsExpectedStaysWhereSomethingElseCanGo) {
  Holder holder;
  ChunkCache cache(4 * kChunkBytes, holder.fetch());
  for (uint64_t chunk = 0; chunk < 4; ++chunk) First(cache, chunk);
  cache.Expect({Id(0), Id(1)});  // used longest ago, until now
  First(cache, 7);
  First(cache, 8);
  const size_t asked = holder.asked().size();
  First(cache, 0);
  First(cache, 1);
  EXPECT_EQ(holder.asked().size(), asked);
}

TEST(ChunkCache, WhoeverAsksForOneOnItsWayWaitsForThatOne) {
  Holder holder;
  holder.Let(0);
  ChunkCache cache(4 * kChunkBytes, holder.fetch());
  cache.Expect({Id(3)});
  EXPECT_THAT(holder.AwaitAsked(1), ::testing::ElementsAre(3));
  std::thread asks([&] { EXPECT_EQ(First(cache, 3), std::byte{3}); });
  holder.Let(10);
  asks.join();
  EXPECT_EQ(holder.asked().size(), 1);
}

TEST(ChunkCache, AFailureIsToldAndMayBeTriedAgain) {
  Holder holder;
  holder.Fail({2});
  ChunkCache cache(4 * kChunkBytes, holder.fetch());
  cache.Expect({Id(2)});
  holder.AwaitAsked(1);
  EXPECT_TRUE(absl::IsUnavailable(cache.Get(Id(2)).status()));
  holder.Fail({});
  EXPECT_EQ(First(cache, 2), std::byte{2});
}

TEST(ChunkCache, WhoMayGiveUpDoesNotWaitForTheRest) {
  Holder holder;
  holder.Let(0);
  ChunkCache cache(4 * kChunkBytes, holder.fetch());
  const auto at_once = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(cache.Get(Id(1), at_once).status())) << "it fetches";
  cache.Expect({Id(3)});
  holder.AwaitAsked(2);
  EXPECT_TRUE(absl::IsCancelled(cache.Get(Id(3), at_once).status())) << "another one fetches";
  EXPECT_EQ(cache.Find(Id(3)), nullptr);
  holder.Let(10);
  EXPECT_EQ(First(cache, 3), std::byte{3});
  ASSERT_NE(cache.Find(Id(3)), nullptr);
  EXPECT_EQ(cache.Find(Id(1)), nullptr);
}

TEST(ChunkCache, EndsWhileAFetchWaits) {
  Holder holder;
  holder.Let(0);
  {
    ChunkCache cache(4 * kChunkBytes, holder.fetch());
    cache.Expect(Ids(0, 4));
    holder.AwaitAsked(2);
  }
  EXPECT_EQ(holder.asked().size(), 2);
}

// With room for one chunk at most each that comes puts another out, and yet nobody gets a wrong one
// or none.
TEST(ChunkCache, ManyReadersOfLittleRoom) {
  for (const uint64_t limit : {uint64_t{1}, kChunkBytes, 3 * kChunkBytes}) {
    Holder holder;
    ChunkCache cache(limit, holder.fetch());
    std::latch begin(4);
    std::vector<std::thread> threads;
    for (uint64_t reader = 0; reader < 4; ++reader) {
      threads.emplace_back([&, reader] {
        std::mt19937_64 random(reader);
        begin.arrive_and_wait();
        for (int i = 0; i < 2000; ++i) {
          const uint64_t chunk = random() % 8;
          if (i % 16 == 0) cache.Expect(Ids(chunk, chunk + 3));
          ASSERT_EQ(First(cache, chunk), std::byte(chunk));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(cache.bytes(), std::max(limit, kChunkBytes));
  }
}

}  // namespace
}  // namespace longhaul::worker
