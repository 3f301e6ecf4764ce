#include "base/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "base/notification.h"

namespace longhaul {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override { thread_ = *EventLoopThread::Start(); }
  std::shared_ptr<EventLoopThread> thread_;
};

TEST_F(EventLoopTest, RunsTasksInOrderOnItsThread) {
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(thread_->loop()->Post([&, i] {
      EXPECT_TRUE(thread_->loop()->InLoop());
      order.push_back(i);
    }));
  }
  EXPECT_FALSE(thread_->loop()->InLoop());
  thread_->RunAndWait([] {});
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(EventLoopTest, RunsTimersInOrderOfTimeAndNotBefore) {
  Notification done;
  std::vector<int> order;
  const MonoTime start = Now();
  thread_->RunAndWait([&] {
    EventLoop& loop = *thread_->loop();
    loop.AddTimer(start + absl::Milliseconds(30), [&] {
      order.push_back(3);
      done.Notify();
    });
    loop.AddTimer(start + absl::Milliseconds(10), [&] { order.push_back(1); });
    loop.CancelTimer(loop.AddTimer(start + absl::Milliseconds(20), [&] { order.push_back(2); }));
  });
  ASSERT_TRUE(done.WaitFor(kPatience));
  EXPECT_GE(Now() - start, absl::Milliseconds(30));
  thread_->RunAndWait([&] { EXPECT_EQ(order, (std::vector<int>{1, 3})); });
}

TEST_F(EventLoopTest, WakesForAnEarlierTimerThanItSleepsFor) {
  EventLoop::TimerId late;
  thread_->RunAndWait([&] {
    late = thread_->loop()->AddTimer(Now() + absl::Hours(1), [] { ADD_FAILURE() << "an hour?"; });
  });
  // Twice: the loop goes back to sleep for the later one.
  for (int i = 0; i < 2; ++i) {
    Notification early;
    thread_->RunAndWait(
        [&] { thread_->loop()->AddTimer(Now() + absl::Milliseconds(1), [&] { early.Notify(); }); });
    ASSERT_TRUE(early.WaitFor(kPatience));
  }
  thread_->RunAndWait([&] { thread_->loop()->CancelTimer(late); });
  Notification last;
  thread_->RunAndWait(
      [&] { thread_->loop()->AddTimer(Now() + absl::Milliseconds(1), [&] { last.Notify(); }); });
  EXPECT_TRUE(last.WaitFor(kPatience));
}

// A task that posts itself again must not starve timers.
TEST_F(EventLoopTest, AFloodOfTasksLeavesRoomForTimers) {
  std::atomic<bool> stop{false};
  Notification fired;
  std::function<void()> flood = [&] {
    if (!stop) thread_->loop()->Post(flood);
  };
  thread_->RunAndWait([&] {
    flood();
    thread_->loop()->AddTimer(Now() + absl::Milliseconds(5), [&] {
      stop = true;
      fired.Notify();
    });
  });
  EXPECT_TRUE(fired.WaitFor(kPatience));
  thread_->RunAndWait([] {});
}

// A poller that always has work leaves room for tasks.
TEST_F(EventLoopTest, ABusyPollerLeavesRoomForTasks) {
  class Busy : public Poller {
   public:
    Busy() : fd_(eventfd(0, EFD_CLOEXEC)) {}
    ~Busy() override { close(fd_); }
    int fd() const override { return fd_; }
    bool Progress() override {
      ++calls;
      return true;
    }
    bool Arm() override { return true; }
    std::atomic<int> calls{0};

   private:
    const int fd_;
  } busy;
  thread_->RunAndWait([&] { EXPECT_TRUE(thread_->loop()->SetPoller(&busy).ok()); });
  thread_->RunAndWait([&] { EXPECT_TRUE(thread_->loop()->SetPoller(nullptr).ok()); });
  EXPECT_GT(busy.calls, 0);
}

TEST_F(EventLoopTest, WatchesADescriptor) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  Notification ready;
  thread_->RunAndWait([&] {
    EXPECT_TRUE(thread_->loop()
                    ->Watch(fd, EPOLLIN,
                            [&](uint32_t) {
                              thread_->loop()->Unwatch(fd);
                              ready.Notify();
                            })
                    .ok());
  });
  const uint64_t one = 1;
  ASSERT_EQ(write(fd, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  EXPECT_TRUE(ready.WaitFor(kPatience));
  thread_->RunAndWait([&] { EXPECT_FALSE(thread_->loop()->Watch(-1, EPOLLIN, nullptr).ok()); });
  close(fd);
}

// Both are ready at once. Whichever is told first puts a descriptor that is not ready in the other
// one's place.
TEST_F(EventLoopTest, EventsOfAClosedDescriptorAreNotForTheNextOneOfItsNumber) {
  const std::shared_ptr<EventLoop> loop = thread_->loop();
  const int one = eventfd(1, EFD_CLOEXEC), other = eventfd(1, EFD_CLOEXEC);
  const int quiet = eventfd(0, EFD_CLOEXEC);
  int told = 0, told_of_quiet = 0;
  Notification replaced;
  const auto on_ready = [&](int ready, int victim) {
    if (++told > 1) return;
    loop->Unwatch(ready);
    loop->Unwatch(victim);
    ASSERT_EQ(dup2(quiet, victim), victim);
    ASSERT_TRUE(loop->Watch(victim, EPOLLIN, [&](uint32_t) { ++told_of_quiet; }).ok());
    loop->Post([&] { replaced.Notify(); });  // behind the round in which both are ready
  };
  thread_->RunAndWait([&] {
    EXPECT_TRUE(loop->Watch(one, EPOLLIN, [&](uint32_t) { on_ready(one, other); }).ok());
    EXPECT_TRUE(loop->Watch(other, EPOLLIN, [&](uint32_t) { on_ready(other, one); }).ok());
  });
  ASSERT_TRUE(replaced.WaitFor(kPatience));
  thread_.reset();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(told_of_quiet, 0);
  for (const int fd : {one, other, quiet}) close(fd);
}

TEST_F(EventLoopTest, WhatWasPostedBeforeTheStopRuns) {
  const std::shared_ptr<EventLoop> loop = thread_->loop();
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) loop->Post([&] { ++ran; });
  thread_.reset();
  EXPECT_EQ(ran, 100);
  EXPECT_FALSE(loop->Post([&] { ++ran; }));
  EXPECT_EQ(ran, 100);
}

TEST_F(EventLoopTest, MayBeLetGoOfOnItsOwnThread) {
  Notification done;
  std::shared_ptr<EventLoop> loop = thread_->loop();
  loop->Post([thread = std::move(thread_), &done]() mutable {
    thread.reset();
    done.Notify();
  });
  EXPECT_TRUE(done.WaitFor(kPatience));
}

}  // namespace
}  // namespace longhaul
