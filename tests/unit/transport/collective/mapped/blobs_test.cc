// Messages whose lengths only the device knows, over GPUs that are threads.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/cuda/stream.h"
#include "tests/support/fake_gpu.h"
#include "transport/collective/mapped/factory.h"

namespace longhaul::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kRanks = 3;

Deadline Soon() {
  return Deadline::After(absl::Seconds(60));
}

struct Ranked {
  std::shared_ptr<Member> member;
  std::unique_ptr<Communicator> communicator;
  std::optional<cuda::Stream> stream;
  Queue queue;
};

void OnRanks(const std::function<void(Ranked&)>& body) {
  auto rendezvous = Rendezvous::Open();
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Ranked ranked;
      const StatusOr<cuda::Device> device = cuda::Device::Open(testing::FakeGpuTable(), rank);
      ASSERT_TRUE(device.ok()) << device.status();
      ranked.stream = cuda::Stream::Create(*device).value();
      ranked.queue = {ranked.stream->handle()};
      ranked.member = Member::Join((*rendezvous)->id(), {rank, kRanks}, Soon()).value();
      auto made = mapped::Create(ranked.member, *device, Soon());
      ASSERT_TRUE(made.ok()) << made.status();
      ranked.communicator = *std::move(made);
      body(ranked);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Rank `from` sends rank `to` so many bytes in call number `call`: less than there is room for.
uint64_t LengthOf(uint32_t from, uint32_t to, uint32_t call) {
  return from == to ? 0 : (from * 7919 + to * 104729 + call * 1'299'709) % 3'000'000;
}
constexpr uint64_t kRoom = 3'000'000;

TEST(Blobs, ArriveAsLongAsTheDeviceSaid) {
  OnRanks([](Ranked& ranked) {
    const uint32_t rank = ranked.communicator->rank();
    Blobs* const blobs = ranked.communicator->blobs();
    ASSERT_NE(blobs, nullptr);
    std::vector<std::byte> in(kRanks * kRoom), out(kRanks * kRoom);
    for (size_t k = 0; k < in.size(); ++k) in[k] = static_cast<std::byte>(k * 31 + rank);
    std::array<uint64_t, kRanks> words{};
    std::vector<SizedBlock> send(kRanks);
    std::vector<Block> receive(kRanks);
    for (uint32_t r = 0; r < kRanks; ++r) {
      if (r == rank) continue;
      send[r] = {r * kRoom, kRoom, &words[r], 100};
      receive[r] = {r * kRoom, kRoom};
    }
    uint64_t sent = 0;
    for (uint32_t call = 0; call < 5; ++call) {
      for (uint32_t r = 0; r < kRanks; ++r) {
        const uint64_t length = std::max<uint64_t>(LengthOf(rank, r, call), 100);
        words[r] = length - 100;
        if (r != rank) sent += length;
      }
      std::memset(out.data(), 0, out.size());
      ASSERT_TRUE(
          blobs->Exchange(Op::kAllToAll, in.data(), send, out.data(), receive, ranked.queue).ok());
      ASSERT_TRUE(ranked.communicator->Wait(ranked.queue, Soon()).ok());
      for (uint32_t r = 0; r < kRanks; ++r) {
        if (r == rank) continue;
        const uint64_t length = std::max<uint64_t>(LengthOf(r, rank, call), 100);
        uint64_t wrong = 0;
        for (uint64_t k = 0; k < kRoom; ++k) {
          const auto wanted =
              k < length ? static_cast<std::byte>((rank * kRoom + k) * 31 + r) : std::byte{0};
          wrong += out[r * kRoom + k] != wanted;
        }
        EXPECT_EQ(wrong, 0u) << "from rank " << r << " in call " << call;
      }
      EXPECT_EQ(blobs->sent_bytes(Op::kAllToAll), sent);
      EXPECT_EQ(blobs->sent_bytes(), sent);
    }
  });
}

TEST(Blobs, AWordThatSaysTooMuchIsCutToTheRoomForIt) {
  OnRanks([](Ranked& ranked) {
    const uint32_t rank = ranked.communicator->rank();
    std::vector<std::byte> in(kRanks * 1000, std::byte{1}), out(kRanks * 1000 + 1);
    const uint64_t word = uint64_t{1} << 40;
    std::vector<SizedBlock> send(kRanks);
    std::vector<Block> receive(kRanks);
    for (uint32_t r = 0; r < kRanks; ++r) {
      if (r != rank) send[r] = {r * 1000, 1000, &word, 0}, receive[r] = {r * 1000, 1000};
    }
    Blobs* const blobs = ranked.communicator->blobs();
    ASSERT_TRUE(
        blobs->Exchange(Op::kAllToAll, in.data(), send, out.data(), receive, ranked.queue).ok());
    EXPECT_TRUE(ranked.communicator->Wait(ranked.queue, Soon()).ok());
    EXPECT_EQ(out.back(), std::byte{0});
  });
}

TEST(Mapped, CallsThatDoNotFitEachOtherEndTheGroup) {
  OnRanks([](Ranked& ranked) {
    std::vector<std::byte> data(100'000);
    // Rank 2 sends and expects less, in fewer lanes: the others wait for what never comes.
    const uint64_t count = ranked.communicator->rank() == 2 ? 8'000 : 100'000;
    const std::vector<Block> blocks(kRanks, Block{0, count});
    std::vector<std::byte> in(100'000);
    static_cast<void>(ranked.communicator->AllToAllV(in.data(), blocks, data.data(), blocks,
                                                     Dtype::kBytes, ranked.queue));
    const Status status = ranked.communicator->Wait(ranked.queue, Soon());
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("is not as long as"), HasSubstr("do not fit each other")));
  });
}

}  // namespace
}  // namespace longhaul::collective
