// The shell while a change waits for the disk or for the other coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/watchdog.h"
#include "coordinator/rpc/shell.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

// Secures a change when it is told to.
class Patient : public Replicator {
 public:
  uint64_t term() const override { return 7; }
  StatusOr<Held> Secure(const v1::StoreChange& change) override {
    std::unique_lock lock(mutex_);
    secures_ = change.number();
    changed_.notify_all();
    changed_.wait(lock, [&] { return !holds_; });
    return Held::kBoth;
  }
  void Committed(const History&) override {}
  void Hold(bool holds) {
    const std::lock_guard lock(mutex_);
    holds_ = holds;
    changed_.notify_all();
  }
  void WaitForChange() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return secures_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false;
  uint64_t secures_ = 0;
};

// A worker's stream, which waits for a beat.
class Beaten : public SessionSink {
 public:
  void Send(v1::WorkerCommand command) override {
    if (command.has_leader_beat() && !std::exchange(beaten_, true)) beat_.set_value();
  }
  void Close(const std::string&, bool) override {}
  void Taken(size_t) override {}
  std::promise<void> beat_;

 private:
  bool beaten_ = false;
};

class ShellStoreTest : public ::testing::Test {
 protected:
  using Reply = std::shared_ptr<std::promise<StatusOr<v1::SubmitReply>>>;

  ShellStoreTest() {
    store_->journal().SetReplicator(&replicator_);
    StateOptions options;
    options.version = "1.2.3";
    shell_ = Shell::Create(options, store_.get(), blobs_.get(), blobs_.get(),
                           *DataPreparer::Open(folder_.path() + "/prepared", blobs_.get()))
                 .value();
  }
  ~ShellStoreTest() override { replicator_.Hold(false); }

  Reply Submit(const std::string& name) {
    const auto reply = std::make_shared<std::promise<StatusOr<v1::SubmitReply>>>();
    shell_->Submit(SmallSpec(name, 1), {}, {},
                   [reply](const StatusOr<v1::SubmitReply>& answer) { reply->set_value(answer); });
    return reply;
  }
  size_t Runs(bool* unstored) {
    return shell_->ReadStored([](const Views& views) { return views.Runs().size(); }, unstored);
  }

  testing::TempDir folder_;
  Patient replicator_;
  std::unique_ptr<Store> store_ = Store::Open(folder_.path()).value();
  std::unique_ptr<BlobStore> blobs_ = BlobStore::Open(folder_.path() + "/blobs").value();
  std::unique_ptr<Shell> shell_;
};

TEST_F(ShellStoreTest, QueriesGoOnAndSayWhatIsNotStored) {
  replicator_.Hold(true);
  const Reply reply = Submit("a");
  replicator_.WaitForChange();
  bool unstored = false;
  EXPECT_EQ(Runs(&unstored), 1u);
  EXPECT_TRUE(unstored);
  EXPECT_TRUE(shell_->unstored_for().has_value());
  EXPECT_TRUE(store_->Events("", 0, 10)->empty());
  replicator_.Hold(false);
  const StatusOr<v1::SubmitReply> answer = reply->get_future().get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->stored().where(), v1::Stored::BOTH);
  EXPECT_GT(answer->stored().change(), 0u);
  EXPECT_EQ(Runs(&unstored), 1u);
  EXPECT_FALSE(unstored);
  EXPECT_FALSE(store_->Events("", 0, 10)->empty());
}

// Another thread's change may wait for the other coordinator as long as it takes, and the loop
// behind it.
TEST_F(ShellStoreTest, TheLoopDoesNotHangBehindAnotherWriter) {
  replicator_.Hold(true);
  std::thread writer([this] { EXPECT_TRUE(store_->Apply({write::LogEvent()}).ok()); });
  replicator_.WaitForChange();
  const Reply reply = Submit("a");
  bool unstored = false;
  while (Runs(&unstored) == 0) std::this_thread::yield();
  EXPECT_TRUE(unstored);
  // It may have some instructions to go until it waits.
  const auto hangs = [] {
    LoopLook look;
    bool found = false;
    for (int second = 0; second < 30; ++second) {
      found |= look.Look(MonoTime() + absl::Seconds(second)).has_value();
    }
    return found;
  };
  const Deadline patience = Deadline::After(absl::Seconds(20));
  while (hangs() && !patience.Expired()) std::this_thread::yield();
  EXPECT_FALSE(hangs());
  replicator_.Hold(false);
  EXPECT_TRUE(reply->get_future().get().ok());
  writer.join();
}

TEST_F(ShellStoreTest, WhoeverIsNotSureToLeadPromisesNothing) {
  replicator_.Hold(true);
  const Reply waiting = Submit("a");
  replicator_.WaitForChange();
  shell_->SetSure(absl::UnavailableError("neither the standby nor the witness is to be heard"));
  EXPECT_THAT(waiting->get_future().get().status().ToString(),
              HasSubstr("to be heard; whether this is stored is not known yet"));
  // Later ones are refused, and are not done later on.
  const Status refused = Submit("b")->get_future().get().status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_FALSE(shell_->Join(std::make_shared<Beaten>(), {}).ok());
  replicator_.Hold(false);
  shell_->SetSure(absl::OkStatus());
  EXPECT_TRUE(Submit("c")->get_future().get().ok());
  bool unstored = true;
  EXPECT_EQ(Runs(&unstored), 2u);
}

TEST_F(ShellStoreTest, WorkersHearThatTheCoordinatorLeads) {
  const auto worker = std::make_shared<Beaten>();
  const StatusOr<SessionId> session = shell_->Join(worker, {});
  ASSERT_TRUE(session.ok());
  worker->beat_.get_future().wait();
}

}  // namespace
}  // namespace longhaul::coordinator
