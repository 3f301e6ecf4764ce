// The relay's threads, between sockets that stand for the workers' interfaces.
#include "deploy/cluster/relay/forwarders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>

#include "base/log.h"
#include "deploy/cluster/relay/control.h"

namespace longhaul::relay {
namespace {

constexpr size_t kRoomForAll = size_t{1} << 30;
constexpr uint32_t kEverybody = 0xffff;
constexpr timeval kPatience{.tv_sec = 30, .tv_usec = 0};

struct Message {
  uint32_t from = 0, number = 0;
  int64_t sent_ns = 0;
};
constexpr size_t kMessageBytes = kGsoHeaderBytes + 6 + sizeof(Message);

// Workers, each with its end of a socket; the other end is its port of the relay.
class Workers {
 public:
  explicit Workers(uint32_t count, int port_buffer_bytes = 4 << 20) {
    for (uint32_t i = 0; i < count; ++i) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
      setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
      setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
      setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &port_buffer_bytes, sizeof port_buffer_bytes);
      ends_.emplace_back(ends[0]);
      ports_.push_back(std::make_shared<PacketPort>(UniqueFd(ends[1])));
    }
  }
  uint32_t count() const { return static_cast<uint32_t>(ends_.size()); }

  Routes Paths(const LinkQuality& quality) const {
    return {.ports = ports_,
            .paths = std::vector<LinkQuality>(ports_.size() * ports_.size(), quality),
            .connected = std::vector<bool>(ports_.size(), true)};
  }

  void Send(uint32_t from, uint32_t to, uint32_t number) const {
    std::array<std::byte, kMessageBytes> bytes{};
    std::array<uint8_t, 6> address;
    address.fill(0xff);
    if (to != kEverybody) address = {0x02, 0x6c, 0x68, 0x00, 0, static_cast<uint8_t>(to + 1)};
    const Message message{from, number, Now().nanoseconds()};
    std::memcpy(bytes.data() + kGsoHeaderBytes, address.data(), address.size());
    std::memcpy(bytes.data() + kGsoHeaderBytes + address.size(), &message, sizeof message);
    ASSERT_EQ(send(ends_[from].get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  // The next one; nullopt after half a minute without any.
  std::optional<Message> Receive(uint32_t at) const {
    std::array<std::byte, kMessageBytes> bytes{};
    if (recv(ends_[at].get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(kMessageBytes))
      return std::nullopt;
    Message message;
    std::memcpy(&message, bytes.data() + kGsoHeaderBytes + 6, sizeof message);
    return message;
  }
  // From now on nothing can be sent there.
  void Close(uint32_t at) { ends_[at].Reset(); }
  bool NothingCame(uint32_t at) const {
    std::byte byte;
    return recv(ends_[at].get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

 private:
  std::vector<UniqueFd> ends_;
  std::vector<std::shared_ptr<PacketPort>> ports_;
};

std::unique_ptr<Forwarders> Start(uint32_t threads, size_t most_bytes = kRoomForAll) {
  auto forwarders = Forwarders::Start(threads, most_bytes);
  EXPECT_TRUE(forwarders.ok()) << forwarders.status();
  return *std::move(forwarders);
}

// Once the relay has seen `arrived` frames and `done` says that it is through with them.
ForwardCounts CountsOf(
    Forwarders* forwarders, uint64_t arrived,
    const std::function<bool(const QueueCounts&)>& done = [](const QueueCounts&) { return true; }) {
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  while (true) {
    const ForwardCounts counts = forwarders->Counts();
    if ((counts.queue.arrived >= arrived && done(counts.queue)) || deadline.Expired()) {
      return counts;
    }
    std::this_thread::yield();
  }
}

bool NothingUnderWay(const QueueCounts& counts) {
  return counts.released + counts.lost + counts.overflowed == counts.arrived;
}

class Threads : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Forwarders, Threads, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(Threads, FramesBetweenAllPairsKeepTheirOrderAndTheirDelay) {
  constexpr uint32_t kFrames = 300;
  constexpr absl::Duration kDelay = absl::Milliseconds(3);
  const Workers workers(5);
  const auto forwarders = Start(GetParam());
  EXPECT_EQ(forwarders->threads(), GetParam());
  ASSERT_TRUE(
      forwarders->Configure(workers.Paths({.delay = kDelay, .jitter = {}, .loss = 0})).ok());
  const uint32_t others = workers.count() - 1;
  // As many frames as have room before a worker, whatever the machine's sockets hold.
  std::deque<std::counting_semaphore<>> room;
  for (uint32_t i = 0; i < workers.count(); ++i) room.emplace_back(64);
  std::vector<std::thread> threads;
  for (uint32_t worker = 0; worker < workers.count(); ++worker) {
    threads.emplace_back([&, worker] {
      for (uint32_t i = 0; i < kFrames * workers.count(); ++i) {
        const uint32_t to = i % workers.count();
        if (to == worker) continue;
        room[to].acquire();
        workers.Send(worker, to, i / workers.count());
      }
    });
    threads.emplace_back([&, worker] {
      std::vector<uint32_t> next(workers.count());
      for (uint32_t i = 0; i < kFrames * others; ++i) {
        const auto message = workers.Receive(worker);
        ASSERT_TRUE(message.has_value()) << "worker " << worker << " after " << i;
        room[worker].release();
        ASSERT_EQ(message->number, next[message->from]++) << "from " << message->from;
        ASSERT_GE(absl::Nanoseconds(Now().nanoseconds() - message->sent_ns), kDelay);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ForwardCounts counts = forwarders->Counts();
  EXPECT_EQ(counts.queue.arrived, uint64_t{kFrames} * others * workers.count());
  EXPECT_EQ(counts.queue.released, counts.queue.arrived);
  EXPECT_EQ(counts.queue.lost + counts.queue.overflowed + counts.missed + counts.unsent.refused +
                counts.unsent.failed,
            0u);
  EXPECT_EQ(forwarders->held_bytes(), 0u);
}

TEST_P(Threads, WhatIsForEverybodyReachesAllOthers) {
  const Workers workers(3);
  const auto forwarders = Start(GetParam());
  ASSERT_TRUE(forwarders->Configure(workers.Paths({})).ok());
  workers.Send(1, kEverybody, 7);
  for (const uint32_t at : {0u, 2u}) {
    const auto message = workers.Receive(at);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->from, 1u);
    EXPECT_EQ(message->number, 7u);
  }
  EXPECT_TRUE(workers.NothingCame(1));
}

TEST_P(Threads, NoFrameIsUnaccountedForWhilePathsChange) {
  constexpr uint32_t kFrames = 3000;
  const Workers workers(4);
  const auto forwarders = Start(GetParam());
  const std::array<LinkQuality, 3> qualities = {
      LinkQuality{absl::Milliseconds(2), {}, 0},
      LinkQuality{absl::Milliseconds(1), absl::Milliseconds(1), 0.2}, LinkQuality{}};
  ASSERT_TRUE(forwarders->Configure(workers.Paths(qualities[1])).ok());
  std::vector<std::thread> senders;
  for (uint32_t worker = 0; worker < workers.count(); ++worker) {
    senders.emplace_back([&, worker] {
      for (uint32_t i = 0; i < kFrames; ++i) workers.Send(worker, (worker + 1) % 4, i);
    });
  }
  std::vector<std::thread> readers;
  std::array<uint32_t, 4> came{};
  for (uint32_t worker = 0; worker < workers.count(); ++worker) {
    readers.emplace_back([&, worker] {
      std::optional<uint32_t> last;
      while (const auto message = workers.Receive(worker)) {
        if (message->from == worker) return;  // sent below, behind all others
        ASSERT_TRUE(!last || message->number > *last) << message->number << " after " << *last;
        last = message->number;
        ++came[worker];
      }
    });
  }
  ASSERT_GT(CountsOf(forwarders.get(), 1, [](const QueueCounts& counts) { return counts.lost > 0; })
                .queue.lost,
            0u);
  for (uint32_t round = 0; round < 50; ++round) {
    Routes routes = workers.Paths(qualities[round % 3]);
    routes.connected[round % 4] = round % 5 != 0;
    ASSERT_TRUE(forwarders->Configure(std::move(routes)).ok());
  }
  for (std::thread& sender : senders) sender.join();
  ASSERT_TRUE(forwarders->Configure(workers.Paths({})).ok());
  const ForwardCounts counts = CountsOf(forwarders.get(), uint64_t{4} * kFrames, NothingUnderWay);
  for (uint32_t worker = 0; worker < workers.count(); ++worker) workers.Send(worker, worker, 0);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(counts.queue.arrived, uint64_t{4} * kFrames);
  EXPECT_TRUE(NothingUnderWay(counts.queue));
  EXPECT_EQ(std::accumulate(came.begin(), came.end(), uint64_t{0}),
            counts.queue.released - counts.unsent.refused);
}

TEST(Forwarders, WhatThereIsNoRoomForIsCounted) {
  const Workers workers(2);
  const auto forwarders = Start(2, 10 * kMessageBytes);
  ASSERT_TRUE(
      forwarders->Configure(workers.Paths({.delay = absl::Hours(1), .jitter = {}, .loss = 0}))
          .ok());
  for (uint32_t i = 0; i < 8; ++i) {
    workers.Send(0, 1, i);
    workers.Send(1, 0, i);
  }
  const ForwardCounts counts = CountsOf(forwarders.get(), 16);
  EXPECT_EQ(counts.queue.arrived, 16u);
  EXPECT_EQ(counts.queue.overflowed, 6u);  // of both threads together
  EXPECT_EQ(forwarders->held_bytes(), 10 * kMessageBytes);
}

TEST(Forwarders, WhatAReceiverHasNoRoomForIsCounted) {
  constexpr uint32_t kFrames = 2000;
  const Workers workers(2, /*port_buffer_bytes=*/4096);
  const auto forwarders = Start(2);
  ASSERT_TRUE(forwarders->Configure(workers.Paths({})).ok());
  for (uint32_t i = 0; i < kFrames; ++i) workers.Send(0, 1, i);
  const ForwardCounts counts = CountsOf(forwarders.get(), kFrames, NothingUnderWay);
  ASSERT_EQ(counts.queue.released, kFrames);
  ASSERT_GT(counts.unsent.refused, 0u);
  for (uint64_t i = 0; i < kFrames - counts.unsent.refused; ++i) {
    ASSERT_TRUE(workers.Receive(1).has_value());
  }
  EXPECT_TRUE(workers.NothingCame(1));
}

TEST(Forwarders, NewPortsTakeTheOldOnesPlace) {
  const auto forwarders = Start(2);
  const Workers first(2), second(3);
  ASSERT_TRUE(forwarders->Configure(first.Paths({})).ok());
  first.Send(0, 1, 1);
  EXPECT_TRUE(first.Receive(1).has_value());
  ASSERT_TRUE(forwarders->Configure(second.Paths({})).ok());
  first.Send(0, 1, 2);
  second.Send(2, 0, 3);
  const auto message = second.Receive(0);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->number, 3u);
  EXPECT_TRUE(first.NothingCame(1));
  EXPECT_EQ(forwarders->Counts().queue.arrived, 2u);
}

// A file cannot be waited for, so a thread refuses it; the ports before it are of either thread.
TEST_P(Threads, AChangeThatFailedLeavesAllAsItWasAndCanBeRepeated) {
  const Workers first(4), second(4);
  const auto forwarders = Start(GetParam());
  ASSERT_TRUE(forwarders->Configure(first.Paths({})).ok());
  Routes broken = second.Paths({.delay = absl::Hours(1), .jitter = {}, .loss = 0});
  broken.ports[3] = std::make_shared<PacketPort>(UniqueFd(memfd_create("no socket", MFD_CLOEXEC)));
  second.Send(0, 1, 7);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(forwarders->Configure(broken).ok());
    for (uint32_t from = 0; from < 4; ++from) {
      first.Send(from, (from + 1) % 4, 1);
      ASSERT_TRUE(first.Receive((from + 1) % 4).has_value()) << "from " << from;
    }
  }
  ASSERT_TRUE(forwarders->Configure(second.Paths({})).ok());
  const auto message = second.Receive(1);  // it has waited
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->number, 7u);
  first.Send(0, 1, 2);
  second.Send(3, 2, 3);
  EXPECT_TRUE(second.Receive(2).has_value());
  EXPECT_TRUE(first.NothingCame(1));
}

TEST(Forwarders, WhatCannotBeSentIsNoFullQueueAndIsLoggedOnce) {
  constexpr uint32_t kFrames = 100;
  std::vector<std::string> lines;
  std::mutex mutex;
  ASSERT_TRUE(InitLogging("warn").ok());
  SetLogTap([&](std::string_view, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  });
  {
    Workers workers(2);
    const auto forwarders = Start(2);
    ASSERT_TRUE(forwarders->Configure(workers.Paths({})).ok());
    workers.Close(1);
    for (uint32_t i = 0; i < kFrames; ++i) workers.Send(0, 1, i);
    const ForwardCounts counts = CountsOf(forwarders.get(), kFrames, NothingUnderWay);
    EXPECT_EQ(counts.unsent.failed, kFrames);
    EXPECT_EQ(counts.unsent.refused, 0u);
  }
  SetLogTap({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("Broken pipe"));
}

TEST(Forwarders, EndsWithFramesUnderWay) {
  const Workers workers(2);
  {
    const auto forwarders = Start(2);
    ASSERT_TRUE(
        forwarders->Configure(workers.Paths({.delay = absl::Hours(1), .jitter = {}, .loss = 0}))
            .ok());
    workers.Send(0, 1, 1);
    EXPECT_EQ(CountsOf(forwarders.get(), 1).queue.arrived, 1u);
  }
  EXPECT_TRUE(workers.NothingCame(1));
}

TEST(Forwarders, AMachineHasAtLeastOneThreadAndAFewAtMost) {
  EXPECT_GE(ForwarderThreads(), 1u);
  EXPECT_LE(ForwarderThreads(), 4u);
}

}  // namespace
}  // namespace longhaul::relay
