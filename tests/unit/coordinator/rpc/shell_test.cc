// The shell without gRPC: order, bounds, threads, and what happens when the store refuses.
#include "coordinator/rpc/shell.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/hash.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

class FakeSink : public SessionSink {
 public:
  void Send(v1::WorkerCommand command) override {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
    changed_.notify_all();
  }
  void Close(const std::string& why, bool retry) override {
    const std::lock_guard lock(mutex_);
    closed_ = why;
    retry_ = retry;
    changed_.notify_all();
  }
  void Taken(size_t messages) override {
    const std::lock_guard lock(mutex_);
    taken_ += messages;
    changed_.notify_all();
  }

  template <class Condition>
  bool WaitFor(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience),
                             [&] { return condition(*this); });
  }

  std::vector<v1::WorkerCommand> commands_;
  std::string closed_;
  bool retry_ = false;
  size_t taken_ = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

// One answer of the shell, waited for.
template <class Reply>
class Answer {
 public:
  typename PendingCalls<Reply>::Done Callback() {
    return [this](StatusOr<Reply> reply) {
      const std::lock_guard lock(mutex_);
      reply_ = std::move(reply);
      ++times_;
      changed_.notify_all();
    };
  }
  StatusOr<Reply> Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience), [&] { return times_ > 0; });
    EXPECT_EQ(times_, 1);
    return reply_;
  }
  int times() {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StatusOr<Reply> reply_ = absl::DeadlineExceededError("no answer came");
  int times_ = 0;
};

class News : public Notifier::Subscriber {
 public:
  void OnNews() override {
    const std::lock_guard lock(mutex_);
    times_.push_back(Now());
    changed_.notify_all();
  }
  void OnShutdown() override {
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
  }
  bool WaitForNews(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience),
                             [&] { return times_.size() >= count; });
  }
  std::vector<MonoTime> times() {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  bool shut_down() {
    const std::lock_guard lock(mutex_);
    return shut_down_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<MonoTime> times_;
  bool shut_down_ = false;
};

class ShellTest : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = *Store::Open(folder_.path());
    blobs_ = *BlobStore::Open(folder_.path() + "/blobs");
    StateOptions options;
    options.version = "1.2.3";
    auto shell = Shell::Create(options, store_.get(), blobs_.get(), blobs_.get(),
                               *DataPreparer::Open(folder_.path() + "/prepared", blobs_.get()));
    ASSERT_TRUE(shell.ok()) << shell.status();
    shell_ = *std::move(shell);
  }

  StatusOr<v1::SubmitReply> Submit(const std::string& name) {
    Answer<v1::SubmitReply> answer;
    shell_->Submit(SmallSpec(name, 1), {}, {}, answer.Callback());
    return answer.Wait();
  }

  TempDir folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<Shell> shell_;
};

TEST_F(ShellTest, AnAnswerComesAfterItsRecordIsStored) {
  Answer<v1::SubmitReply> answer;
  size_t stored = 0;
  const auto done = answer.Callback();
  shell_->Submit(SmallSpec("tiny", 1), {}, {}, [&](StatusOr<v1::SubmitReply> reply) {
    stored = store_->LoadRuns()->runs.size();
    done(std::move(reply));
  });
  const auto reply = answer.Wait();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(stored, 1u);
  EXPECT_EQ(store_->LoadRuns()->runs.front().id.value(), reply->run_id());
  EXPECT_EQ(store_->LoadRuns()->runs.front().link_secret.size(), 32u);
  EXPECT_EQ(shell_->Read([&](const Views& views) { return views.RunOf("tiny"); })->run_id(),
            reply->run_id());
}

TEST_F(ShellTest, ASessionIsWelcomedCountedAndForgotten) {
  const auto sink = std::make_shared<FakeSink>();
  const auto session = shell_->Join(sink, HelloOf("a"));
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE(sink->WaitFor([](FakeSink& s) { return s.commands_.size() == 1; }));
  EXPECT_TRUE(sink->commands_[0].has_welcome());
  v1::WorkerMessage message;
  message.mutable_heartbeat();
  for (int i = 0; i < 10; ++i) shell_->Say(*session, message);
  EXPECT_TRUE(sink->WaitFor([](FakeSink& s) { return s.taken_ == 10; }));
  shell_->Leave(*session, "it went");
  ASSERT_TRUE(Submit("after").ok());  // the loop has seen the leave before this
  EXPECT_FALSE(
      shell_->Read([&](const Views& views) { return views.Workers(Now()); }).at(0).connected());
  shell_.reset();
  EXPECT_EQ(sink->closed_, "");  // it was forgotten
}

TEST_F(ShellTest, ManyThreadsAtOnce) {
  constexpr int kThreads = 8, kMessages = 500;
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (int i = 0; i < kThreads; ++i) sinks.push_back(std::make_shared<FakeSink>());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto session = shell_->Join(sinks[i], HelloOf(fmt::format("worker{}", i)));
      ASSERT_TRUE(session.ok());
      v1::WorkerMessage message;
      for (int m = 0; m < kMessages; ++m) {
        message.mutable_heartbeat()->set_memory_used_bytes(m);
        shell_->Say(*session, message);
        if (m % 100 == 0) {
          EXPECT_LE(shell_->Read([&](const Views& views) { return views.Workers(Now()); }).size(),
                    size_t{kThreads});
          shell_->Read([&](const Views& views) { return views.Runs(); });
        }
      }
      shell_->Leave(*session, "done");
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Submit(fmt::format("run{}", i)).ok());
  for (std::thread& thread : threads) thread.join();
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->WaitFor([](FakeSink& s) { return s.taken_ == kMessages; }));
  }
  EXPECT_EQ(shell_->Read([&](const Views& views) { return views.Runs(); }).size(), 20u);
  EXPECT_EQ(store_->LoadRuns()->runs.size(), 20u);
}

TEST_F(ShellTest, DataIsPreparedOffTheLoop) {
  const std::string text(5'000, 'x');
  const std::string sha256 = Sha256Hex(text);
  auto upload = blobs_->StartUpload(sha256, text.size());
  ASSERT_TRUE((*upload)->Append(text).ok() && (*upload)->Finish().ok());
  v1::SubmitRequest request;
  v1::DataFile& file = *request.add_data_files();
  file.set_name("x.txt");
  file.set_sha256(sha256);
  file.set_bytes(text.size());

  const auto sink = std::make_shared<FakeSink>();
  const auto session = shell_->Join(sink, HelloOf("a"));
  Answer<v1::SubmitReply> answer;
  shell_->Submit(SmallSpec("tiny", 1), request, {}, answer.Callback());
  const auto reply = answer.Wait();
  ASSERT_TRUE(reply.ok()) << reply.status();
  const auto heard = [](v1::WorkerCommand::BodyCase kind) {
    return [kind](FakeSink& s) { return s.commands_.back().body_case() == kind; };
  };
  ASSERT_TRUE(sink->WaitFor(heard(v1::WorkerCommand::kMeasure)));
  v1::WorkerMessage message;
  message.set_run_id(sink->commands_.back().run_id());
  message.set_epoch(sink->commands_.back().epoch());
  message.set_stamp(sink->commands_.back().stamp());
  *message.mutable_layer_times() = SmallTimes();
  shell_->Say(*session, message);
  ASSERT_TRUE(sink->WaitFor(heard(v1::WorkerCommand::kAssign)));
  const v1::DataSet& data = sink->commands_.back().assign().assignment().data();
  EXPECT_EQ(data.tokens(), 5'000u);
  EXPECT_TRUE(blobs_->Has(data.token_file_sha256()));
}

TEST_F(ShellTest, FollowersHearOfNewsTenTimesASecondAtMost) {
  const auto news = std::make_shared<News>();
  shell_->notifier().Add(news);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Submit(fmt::format("run{}", i)).ok());
  // A busy machine may hear of all of them at once; the last change is heard of, too.
  ASSERT_TRUE(news->WaitForNews(1));
  const size_t heard = news->times().size();
  ASSERT_TRUE(Submit("last").ok());
  ASSERT_TRUE(news->WaitForNews(heard + 1));
  const std::vector<MonoTime> times = news->times();
  for (size_t i = 1; i < times.size(); ++i) {
    EXPECT_GE(times[i] - times[i - 1], absl::Milliseconds(95));
  }
}

TEST_F(ShellTest, TimersRunInTheirOrder) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> order;
  const auto add = [&](int number) {
    return [&, number] {
      const std::lock_guard lock(mutex);
      order.push_back(number);
      changed.notify_all();
    };
  };
  shell_->CallAfter(absl::Milliseconds(40), add(3));
  shell_->CallAfter(absl::Milliseconds(20), add(2));
  shell_->CallAfter(absl::ZeroDuration(), add(1));
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, absl::ToChronoNanoseconds(kPatience),
                               [&] { return order.size() == 3; }));
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3));
}

TEST_F(ShellTest, StoppingAnswersEverybodyOnce) {
  const auto sink = std::make_shared<FakeSink>();
  const auto session = shell_->Join(sink, HelloOf("a"));
  const auto news = std::make_shared<News>();
  shell_->notifier().Add(news);
  // Waits for the worker's layer times, which never come.
  Answer<v1::PlanReply> waiting;
  shell_->PlanRun(SmallSpec("plan", 1), {}, waiting.Callback());
  ASSERT_TRUE(sink->WaitFor([](FakeSink& s) { return s.commands_.size() >= 2; }));

  EXPECT_TRUE(shell_->Stop(Deadline::After(kPatience)));
  EXPECT_EQ(waiting.Wait().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(news->shut_down());
  EXPECT_THAT(sink->closed_, HasSubstr("shutting down"));
  EXPECT_TRUE(sink->retry_);
  EXPECT_EQ(waiting.times(), 1);

  // And afterwards: at once.
  EXPECT_EQ(Submit("late").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(shell_->Join(sink, HelloOf("b")).status().code(), absl::StatusCode::kUnavailable);
  shell_->Say(*session, {});
  shell_->Leave(*session, "late");
  shell_->CallAfter(absl::ZeroDuration(), [] { FAIL() << "ran after the end"; });
  const auto late = std::make_shared<News>();
  shell_->notifier().Add(late);
  EXPECT_TRUE(late->shut_down());
}

TEST_F(ShellTest, ACallThatWasDroppedIsNotAnswered) {
  const auto sink = std::make_shared<FakeSink>();
  ASSERT_TRUE(shell_->Join(sink, HelloOf("a")).ok());
  // The loop stands still, so that it is not answered before it is dropped.
  std::mutex standstill;
  std::unique_lock lock(standstill);
  shell_->CallAfter(absl::ZeroDuration(), [&] { const std::lock_guard wait(standstill); });
  Answer<v1::PlanReply> waiting;
  const RequestId request = shell_->PlanRun(SmallSpec("plan", 1), {}, waiting.Callback());
  EXPECT_TRUE(shell_->Drop(request));
  EXPECT_FALSE(shell_->Drop(request));
  lock.unlock();
  shell_.reset();
  EXPECT_EQ(waiting.times(), 0);
}

TEST_F(ShellTest, TooManyWaitingCallsAreRefused) {
  // The loop stands still, so that nothing is answered meanwhile.
  std::mutex standstill;
  std::unique_lock lock(standstill);
  shell_->CallAfter(absl::ZeroDuration(), [&] { const std::lock_guard wait(standstill); });
  std::vector<std::unique_ptr<Answer<v1::StopReply>>> answers;
  for (size_t i = 0; i < Shell::kMaxPendingCalls + 2; ++i) {
    answers.push_back(std::make_unique<Answer<v1::StopReply>>());
    shell_->Ask(event::StopAsked{.run = "nobody"}, answers.back()->Callback());
  }
  for (size_t i = Shell::kMaxPendingCalls; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]->Wait().status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(answers[0]->times(), 0);
  lock.unlock();
  for (size_t i = 0; i < Shell::kMaxPendingCalls; ++i) {
    EXPECT_EQ(answers[i]->Wait().status().code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(ShellTest, AStoreThatRefusesAWriteEndsTheLoop) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((folder_.path() + "/store.db").c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "DROP TABLE runs", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  Answer<v1::SubmitReply> answer;
  shell_->Submit(SmallSpec("tiny", 1), {}, {}, answer.Callback());
  const Deadline deadline = Deadline::After(kPatience);
  while (shell_->failure().ok() && !deadline.Expired()) std::this_thread::yield();
  EXPECT_FALSE(shell_->failure().ok());
  // Nothing was promised that is not stored.
  EXPECT_EQ(answer.times(), 0);
  shell_->Stop(Deadline::After(kPatience));
  EXPECT_EQ(answer.Wait().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace longhaul::coordinator
