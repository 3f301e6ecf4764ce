// Two workers that read the same data over loopback links, and strangers in the place of one.
#include "worker/epoch/chunk_peers.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/wire/chunk_word.h"
#include "tests/unit/worker/data/chunk_lists.h"
#include "tests/unit/worker/epoch/chunk_stranger.h"
#include "transport/p2p/loopback/factory.h"

namespace longhaul::worker {
namespace {

using transport::Lane;

constexpr uint64_t kChunks = 6, kSize = 200'000;  // many pieces
constexpr uint64_t kMemory = uint64_t{16} << 20;
const CellId kFirst{.replica = 0, .stage = 0}, kLast{.replica = 0, .stage = 1};
const ChunkGivenUp kNever = [] { return false; };

// Where all chunks are, counted by chunk.
class Coordinator {
 public:
  FetchChunk fetch() {
    return [this](const data::Source&, const data::HashedFile&, uint64_t chunk,
                  const ChunkGivenUp&) -> StatusOr<std::vector<std::byte>> {
      const std::lock_guard lock(mutex_);
      ++asked_[chunk];
      return ChunkBytes(chunk, kSize);
    };
  }
  std::map<uint64_t, int> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, int> asked_;
};

// A worker, as far as it reads data. `folder`: the chunks that its folder has.
class Reader {
 public:
  Reader(Coordinator* coordinator, std::set<uint64_t> folder)
      : transport(*transport::loopback::CreateTransport({})),
        chunks(std::make_shared<SetChunks>(SetChunksOptions{
            .mixture = ListOfChunks("/set", kChunks, kSize),
            .memory_bytes = kMemory,
            .from_place = [folder = std::move(folder)](
                              const data::Source&, const data::HashedFile&, uint64_t chunk,
                              const ChunkGivenUp&) -> StatusOr<std::vector<std::byte>> {
              if (!folder.contains(chunk)) return absl::NotFoundError("no such folder");
              return ChunkBytes(chunk, kSize);
            },
            .from_coordinator = coordinator->fetch()})) {}
  ~Reader() { End(); }

  void Meet(const CellId& peer, const std::vector<std::string>& dials,
            absl::Duration silence = absl::Seconds(20)) {
    ChunkPair pair{.peer = peer,
                   .peer_worker = "w",
                   .fetches_for = peer == kLast,
                   .transport = "ucx",
                   .bits_per_second = 1e9,
                   .ways = {{.number = EdgeId(2), .dials = !dials.empty(), .addresses = dials}}};
    peers = std::make_shared<ChunkPeers>(ChunkPeersOptions{.transports = {{"ucx", transport.get()}},
                                                           .traffic = &traffic,
                                                           .run = RunId("tiny"),
                                                           .stamp = Stamp(epoch),
                                                           .link_secret = "a secret",
                                                           .pairs = {std::move(pair)},
                                                           .silence = silence});
    peers->Serve(chunks);
    chunks->SetOthers(peers);
  }
  // As at the end of an epoch.
  void End() {
    chunks->SetOthers(nullptr);
    if (peers) peers->Close();
  }
  void ReadAll() {
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
      const auto got = chunks->Get({.chunk = chunk});
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(**got, ChunkBytes(chunk, kSize));
    }
  }
  uint64_t Tally(const std::string& holder) {
    for (const auto& [name, one] : chunks->TakeTally()) tally[name] += one.chunks;
    return tally.contains(holder) ? tally.at(holder) : 0;
  }

  uint64_t epoch = 3;
  TrafficWatch traffic;
  std::unique_ptr<transport::Transport> transport;
  std::shared_ptr<SetChunks> chunks;
  std::shared_ptr<ChunkPeers> peers;
  std::map<std::string, uint64_t> tally;
};

std::set<uint64_t> AllChunks() {
  std::set<uint64_t> all;
  for (uint64_t chunk = 0; chunk < kChunks; ++chunk) all.insert(chunk);
  return all;
}

void Meet(Reader& first, Reader& last) {
  first.Meet(kLast, {});
  last.Meet(kFirst, {first.transport->address()});
}

TEST(ChunkPeersTest, TheLastStageReadsTheFolderOfTheFirst) {
  Coordinator coordinator;
  Reader first(&coordinator, AllChunks()), last(&coordinator, {});
  Meet(first, last);
  last.ReadAll();
  EXPECT_EQ(last.Tally("stage 0"), kChunks);
  EXPECT_TRUE(coordinator.asked().empty());
}

TEST(ChunkPeersTest, TheFirstStageReadsTheFolderOfTheLast) {
  Coordinator coordinator;
  Reader first(&coordinator, {}), last(&coordinator, AllChunks());
  Meet(first, last);
  first.ReadAll();
  EXPECT_EQ(first.Tally("stage 1"), kChunks);
  EXPECT_TRUE(coordinator.asked().empty());
}

TEST(ChunkPeersTest, WhereNobodyHasTheFolderTheCoordinatorGivesEachChunkOnce) {
  for (int round = 0; round < 5; ++round) {
    Coordinator coordinator;
    Reader first(&coordinator, {}), last(&coordinator, {});
    Meet(first, last);
    std::vector<ChunkId> next;
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) next.push_back({.chunk = chunk});
    first.chunks->Expect(next);
    last.chunks->Expect(next);
    std::thread beside([&] { first.ReadAll(); });
    last.ReadAll();
    beside.join();
    EXPECT_EQ(coordinator.asked().size(), kChunks);
    for (const auto& [chunk, times] : coordinator.asked()) EXPECT_EQ(times, 1) << chunk;
    EXPECT_EQ(last.Tally("stage 0"), kChunks);
    EXPECT_EQ(last.Tally("the coordinator"), 0u);
    EXPECT_EQ(first.Tally("the coordinator"), kChunks);
  }
}

TEST(ChunkPeersTest, PiecesArriveWhereTheLineIsNeverQuiet) {
  Coordinator coordinator;
  Reader first(&coordinator, AllChunks()), last(&coordinator, {});
  Meet(first, last);
  first.traffic.Begin();
  ASSERT_TRUE(last.chunks->Get({.chunk = 1}).ok());
  first.traffic.End();
  EXPECT_EQ(last.Tally("stage 0"), 1u);
}

TEST(ChunkPeersTest, AfterTheHolderHasGoneTheCoordinatorGivesTheRest) {
  Coordinator coordinator;
  auto first = std::make_unique<Reader>(&coordinator, AllChunks());
  Reader last(&coordinator, {});
  Meet(*first, last);
  ASSERT_TRUE(last.chunks->Get({.chunk = 0}).ok());
  first.reset();
  last.ReadAll();
  EXPECT_EQ(last.Tally("stage 0"), 1u);
  EXPECT_EQ(last.Tally("the coordinator"), kChunks - 1);
}

TEST(ChunkPeersTest, ANewEpochMeetsAnew) {
  Coordinator coordinator;
  Reader first(&coordinator, AllChunks()), last(&coordinator, {});
  Meet(first, last);
  ASSERT_TRUE(last.chunks->Get({.chunk = 0}).ok());
  first.End();
  last.End();
  first.epoch = last.epoch = 4;
  Meet(first, last);
  last.ReadAll();
  EXPECT_EQ(last.Tally("stage 0"), kChunks);
}

TEST(ChunkPeersTest, WhoGivesUpWaitsForNobody) {
  Coordinator coordinator;
  Reader last(&coordinator, {});
  last.Meet(kFirst, {"nobody"});
  last.peers->GiveUp();
  last.ReadAll();
  EXPECT_EQ(last.Tally("the coordinator"), kChunks);
}

// ---- In the place of the first stage -----------------------------------------------

class StrangerTest : public ::testing::Test {
 protected:
  void TearDown() override {
    last_.End();
    stranger_->End();
  }
  void Begin(absl::Duration silence = absl::Seconds(20)) {
    stranger_->Expect({RunId("chunks:tiny"), Stamp(3), EdgeId(2)}, "a secret");
    last_.Meet(kFirst, {stranger_->address()}, silence);
    stranger_->AwaitOpen();
  }
  // Asks for a chunk; hands the stranger's turn on; all is well in the end.
  void Ask(const std::function<void(uint32_t request)>& answer) {
    std::thread reader([this] {
      const auto got = last_.chunks->Get({.chunk = 2});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(**got, ChunkBytes(2, kSize));
    });
    const wire::ChunkWord word = stranger_->Hear();
    const auto* ask = std::get_if<wire::ChunkAsk>(&word);
    EXPECT_NE(ask, nullptr);
    if (ask != nullptr) {
      EXPECT_EQ(ask->chunk, 2u);
      answer(ask->request);
    }
    reader.join();
    EXPECT_EQ(last_.Tally("the coordinator"), 1u);
    EXPECT_EQ(coordinator_.asked().at(2), 1);
  }
  void ExpectAskedNoMore() {
    last_.ReadAll();
    EXPECT_TRUE(stranger_->silent());
    EXPECT_EQ(last_.Tally("the coordinator"), kChunks);
  }

  Coordinator coordinator_;
  std::shared_ptr<ChunkStranger> stranger_ = std::make_shared<ChunkStranger>();
  Reader last_{&coordinator_, {}};
};

TEST_F(StrangerTest, OtherBytesAreNotTaken) {
  Begin();
  Ask([&](uint32_t request) {
    for (uint64_t sent = 0; sent < kSize; sent += 50'000) {
      stranger_->SayPiece(request, std::string(50'000, 'x'));
    }
  });
  EXPECT_TRUE(stranger_->AwaitClosed());
  ExpectAskedNoMore();
}

TEST_F(StrangerTest, MoreBytesThanWereAskedForEndTheLink) {
  Begin();
  Ask([&](uint32_t request) {
    for (uint64_t sent = 0; sent <= kSize; sent += 50'000) {
      stranger_->SayPiece(request, std::string(50'001, '\2'));
    }
  });
  EXPECT_TRUE(stranger_->AwaitClosed());
  ExpectAskedNoMore();
}

TEST_F(StrangerTest, WhatNobodyAskedForEndsTheLink) {
  Begin();
  Ask([&](uint32_t request) { stranger_->SayPiece(request + 1, "x"); });
  EXPECT_TRUE(stranger_->AwaitClosed());
  ExpectAskedNoMore();
}

TEST_F(StrangerTest, AWordThatIsNoneEndsTheLink) {
  Begin();
  Ask([&](uint32_t) { stranger_->Say(Lane::kControl, "nonsense"); });
  EXPECT_TRUE(stranger_->AwaitClosed());
  ExpectAskedNoMore();
}

TEST_F(StrangerTest, WhoIsSilentIsNotAskedForAWhile) {
  Begin(/*silence=*/absl::Milliseconds(100));
  Ask([&](uint32_t request) { stranger_->SayPiece(request, "x"); });
  ExpectAskedNoMore();
}

TEST_F(StrangerTest, WhoDoesNotHaveTheDataIsAskedOnce) {
  Begin();
  Ask([&](uint32_t request) {
    stranger_->Say(Lane::kControl, wire::EncodeChunkWord(wire::ChunkNotHere{request}));
  });
  ExpectAskedNoMore();
}

TEST_F(StrangerTest, WhatTheListDoesNotHaveIsNotHere) {
  Begin();
  const wire::ChunkAsk asks[] = {{.request = 0, .source = 1},
                                 {.request = 1, .shard = 1},
                                 {.request = 2, .chunk = kChunks},
                                 {.request = 3, .mask = true},
                                 {.request = 4, .validation = true},
                                 // The last stage fetches nothing for others.
                                 {.request = 5, .chunk = 1}};
  for (const wire::ChunkAsk& ask : asks) {
    stranger_->Say(Lane::kControl, wire::EncodeChunkWord(ask));
    const wire::ChunkWord answer = stranger_->Hear();
    const auto* not_here = std::get_if<wire::ChunkNotHere>(&answer);
    ASSERT_NE(not_here, nullptr);
    EXPECT_EQ(not_here->request, ask.request);
  }
  EXPECT_TRUE(coordinator_.asked().empty());
  EXPECT_EQ(stranger_->pieces(), 0u);
}

TEST_F(StrangerTest, WhoAsksForTooMuchAtATimeIsNotAnswered) {
  ASSERT_TRUE(last_.chunks->Get({.chunk = 0}).ok());
  last_.traffic.Begin();  // pieces take their time
  Begin();
  for (uint32_t request = 0; request < 100; ++request) {
    stranger_->Say(Lane::kControl, wire::EncodeChunkWord(wire::ChunkAsk{.request = request}));
  }
  EXPECT_TRUE(stranger_->AwaitClosed());
  EXPECT_LT(stranger_->pieces(), (ChunkPeers::kMostAsks + 1) * kSize);
  last_.traffic.End();
}

}  // namespace
}  // namespace longhaul::worker
