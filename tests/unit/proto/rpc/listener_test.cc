// A crowd of strangers that prove who they are loses nobody, although only some have a place at a
// time.
#include "proto/rpc/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <vector>

#include "base/address.h"

namespace longhaul {
namespace {

constexpr absl::Duration kListenerPatience = absl::Seconds(30);
constexpr size_t kCrowd = kMaxStrangers + 100;

class ListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    thread_ = *EventLoopThread::Start();
    OnLoop([this] {
      auto listener = Listener::Create(thread_->loop(), "127.0.0.1:0", [this](int fd) {
        const std::lock_guard lock(mutex_);
        taken_.push_back(fd);
        changed_.notify_all();
      });
      ASSERT_TRUE(listener.ok()) << listener.status();
      listener_ = *std::move(listener);
    });
  }
  void TearDown() override {
    OnLoop([this] { listener_.reset(); });
    for (const int fd : dialled_) close(fd);
    for (const int fd : taken_) close(fd);
  }
  void OnLoop(const std::function<void()>& task) {
    std::promise<void> done;
    thread_->loop()->Post([&] {
      task();
      done.set_value();
    });
    done.get_future().get();
  }
  void Dial() {
    const HostPort at = *ParseHostPort(listener_->address());
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(at.port);
    inet_pton(AF_INET, at.host.c_str(), &address.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    dialled_.push_back(fd);
  }
  // The descriptors that were handed over, once there are so many.
  std::vector<int> Taken(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, absl::ToChronoNanoseconds(kListenerPatience),
                                  [&] { return taken_.size() >= count; }));
    return taken_;
  }
  static bool IsOpen(int fd) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&ready, 1, 0) == 0;
  }

  std::shared_ptr<EventLoopThread> thread_;
  std::unique_ptr<Listener> listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> taken_, dialled_;
};

TEST_F(ListenerTest, ACrowdWaitsForItsTurn) {
  for (size_t i = 0; i < kCrowd; ++i) Dial();
  size_t known = 0;
  while (known < kCrowd) {
    const std::vector<int> taken = Taken(known + 1);
    EXPECT_LE(taken.size() - known, kMaxStrangers);
    OnLoop([&] {
      for (; known < taken.size(); ++known) listener_->Admit(PeerTextOf(taken[known]), "ann");
    });
  }
  EXPECT_TRUE(std::ranges::all_of(dialled_, IsOpen));
}

// After the first turn all others have theirs at once: it is no crowd.
TEST_F(ListenerTest, WhoeverProvesNothingMakesRoom) {
  for (size_t i = 0; i < kCrowd; ++i) Dial();
  EXPECT_EQ(Taken(kCrowd).size(), kCrowd);
  size_t open = 0;
  OnLoop([&] { open = static_cast<size_t>(std::ranges::count_if(dialled_, IsOpen)); });
  EXPECT_EQ(open, kMaxStrangers);
}

// The processor may have many handshakes to do. Who is cut would begin anew.
TEST_F(ListenerTest, WhoeverSaysNothingMakesRoomFirst) {
  constexpr size_t kTalking = kMaxStrangers / 2, kMore = 10;
  for (size_t i = 0; i < kMaxStrangers; ++i) Dial();
  for (size_t i = 0; i < kTalking; ++i) ASSERT_EQ(send(dialled_[i], "x", 1, 0), 1);
  for (size_t i = 0; i < kMore; ++i) Dial();
  Taken(kMaxStrangers + kMore);
  size_t talking = 0, silent = 0;
  OnLoop([&] {
    const auto first = dialled_.begin(), middle = first + kTalking, last = first + kMaxStrangers;
    talking = static_cast<size_t>(std::count_if(first, middle, IsOpen));
    silent = static_cast<size_t>(std::count_if(middle, last, IsOpen));
  });
  EXPECT_EQ(talking, kTalking);
  EXPECT_EQ(silent, kMaxStrangers - kTalking - kMore);
}

}  // namespace
}  // namespace longhaul
