// Plans are computed beside the shell's loop: queries are answered meanwhile.
#include "coordinator/rpc/planner_thread.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "coordinator/rpc/shell.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kGatePatience = absl::Seconds(30);

// Computations wait here until they are released, or stopped, or nobody comes for too long.
class Gate {
 public:
  // False: it was stopped.
  bool Wait(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait_for(lock, stop, absl::ToChronoNanoseconds(kGatePatience), [&] { return open_; });
    return !stop.stop_requested();
  }
  bool WaitForEntered(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(kGatePatience),
                             [&] { return entered_ >= count; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int entered() {
    const std::lock_guard lock(mutex_);
    return entered_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int entered_ = 0;
  bool open_ = false;
};

// What came of the computations.
class Answers {
 public:
  void Add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (const auto* plan = std::get_if<event::PlanComputed>(&event)) {
      ids_.push_back(plan->id.value());
      status_ = plan->plan.status();
    } else {
      ids_.push_back(std::get<event::RetuneComputed>(event).id.value());
    }
    changed_.notify_all();
  }
  bool WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(kGatePatience),
                             [&] { return ids_.size() >= count; });
  }
  std::vector<uint64_t> ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }
  Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> ids_;
  Status status_;
};

command::ComputePlan PlanOf(uint64_t id) {
  return {ComputationId(id), {}};
}

class PlannerThreadTest : public ::testing::Test {
 protected:
  Planner Gated() {
    Planner planner;
    planner.plan = [this](const PlanRequest&, const std::stop_token& stop) -> StatusOr<Plan> {
      if (!gate_.Wait(stop)) return absl::CancelledError("stopped");
      return Plan();
    };
    planner.retune = [this](const RunSpec&, const Plan&, const Seen&, const std::stop_token& stop,
                            const schedule::SearchLimit&) -> StatusOr<std::optional<Plan>> {
      if (!gate_.Wait(stop)) return absl::CancelledError("stopped");
      return std::nullopt;
    };
    return planner;
  }
  std::function<void(Event)> Done() {
    return [this](const Event& event) { answers_.Add(event); };
  }
  Gate gate_;
  Answers answers_;
};

// Workers are held for a plan, and for a retune nobody waits.
TEST_F(PlannerThreadTest, ComputesOneAfterTheOtherAndPlansFirst) {
  PlannerThreads thread(Gated(), Done(), /*threads=*/1);
  thread.Add(PlanOf(1));
  thread.Add(command::ComputeRetune{ComputationId(2), {}, {}, {}});
  thread.Add(PlanOf(3));
  ASSERT_TRUE(gate_.WaitForEntered(1));
  EXPECT_EQ(gate_.entered(), 1);
  gate_.Open();
  ASSERT_TRUE(answers_.WaitFor(3));
  EXPECT_THAT(answers_.ids(), ElementsAre(1, 3, 2));
}

TEST_F(PlannerThreadTest, WhatIsCancelledEndsAndIsNotAnswered) {
  PlannerThreads thread(Gated(), Done(), /*threads=*/1);
  for (uint64_t id = 1; id <= 3; ++id) thread.Add(PlanOf(id));
  ASSERT_TRUE(gate_.WaitForEntered(1));
  thread.Cancel(ComputationId(2));  // waits; it does not begin
  thread.Cancel(ComputationId(1));  // under way
  ASSERT_TRUE(gate_.WaitForEntered(2));
  thread.Cancel(ComputationId(9));  // nobody asked for it
  gate_.Open();
  ASSERT_TRUE(answers_.WaitFor(1));
  EXPECT_THAT(answers_.ids(), ElementsAre(3));
  EXPECT_EQ(gate_.entered(), 2);
}

// A long search of one run keeps no other waiting.
TEST_F(PlannerThreadTest, SeveralAreComputedAtATime) {
  PlannerThreads threads(Gated(), Done(), /*threads=*/2);
  for (uint64_t id = 1; id <= 3; ++id) threads.Add(PlanOf(id));
  ASSERT_TRUE(gate_.WaitForEntered(2));
  EXPECT_EQ(gate_.entered(), 2);
  gate_.Open();
  ASSERT_TRUE(answers_.WaitFor(3));
}

// Its time begins when it does, however long it has waited.
TEST_F(PlannerThreadTest, ASearchMayLastFiveSeconds) {
  std::atomic<int64_t> clock_ms = 0;
  std::mutex mutex;
  std::vector<std::string> words;
  const auto search = [&](const schedule::SearchLimit& limit) {
    const int64_t began = clock_ms;
    while (!limit.IsOver()) clock_ms += 100;
    limit.Count(7);
    const std::lock_guard lock(mutex);
    words.push_back(fmt::format("{} ms: {}", clock_ms - began, limit.Words()));
  };
  Planner planner;
  planner.now = [&] { return MonoTime() + absl::Milliseconds(clock_ms.load()); };
  planner.plan = [&](const PlanRequest& request, const std::stop_token&) -> StatusOr<Plan> {
    search(request.limit);
    return Plan();
  };
  planner.retune = [&](const RunSpec&, const Plan&, const Seen&, const std::stop_token&,
                       const schedule::SearchLimit& limit) -> StatusOr<std::optional<Plan>> {
    search(limit);
    return std::nullopt;
  };
  {
    PlannerThreads thread(std::move(planner), Done(), /*threads=*/1);
    thread.Add(PlanOf(1));
    thread.Add(PlanOf(2));
    thread.Add(command::ComputeRetune{ComputationId(3), {}, {}, {}});
    ASSERT_TRUE(answers_.WaitFor(3));
  }
  EXPECT_THAT(words, ::testing::Each("5000 ms: the search ended after 5 s, and took the best of 7 "
                                     "plans that it had looked at"));
  EXPECT_EQ(words.size(), 3u);
}

TEST_F(PlannerThreadTest, TheEndDoesNotWaitForASearch) {
  const MonoTime start = Now();
  {
    PlannerThreads thread(Gated(), Done(), /*threads=*/1);
    thread.Add(PlanOf(1));
    thread.Add(PlanOf(2));
    ASSERT_TRUE(gate_.WaitForEntered(1));
  }
  EXPECT_LT(Now() - start, kGatePatience / 2);
  EXPECT_TRUE(answers_.ids().empty());
}

TEST_F(PlannerThreadTest, WhatIsThrownIsAnAnswer) {
  Planner planner;
  planner.plan = [](const PlanRequest&, const std::stop_token&) -> StatusOr<Plan> {
    throw std::runtime_error("too many stages");
  };
  PlannerThreads thread(std::move(planner), Done());
  thread.Add(PlanOf(1));
  ASSERT_TRUE(answers_.WaitFor(1));
  EXPECT_THAT(std::string(Message(answers_.status())), HasSubstr("too many stages"));
}

// ---- In the shell ------------------------------------------------------------------

// Answers at once whatever it is asked before a plan is made, and keeps count of the rest.
class EagerWorker : public SessionSink {
 public:
  explicit EagerWorker(Shell* shell) : shell_(shell) {}
  void Join(const std::string& name) {
    const std::lock_guard lock(mutex_);  // until its session is known
    session_ = *shell_->Join(shared_, HelloOf(name));
  }
  void Send(v1::WorkerCommand command) override {
    const std::lock_guard lock(mutex_);
    v1::WorkerMessage answer;
    answer.set_run_id(command.run_id());
    answer.set_epoch(command.epoch());
    answer.set_stamp(command.stamp());
    if (command.has_measure()) {
      *answer.mutable_layer_times() = SmallTimes();
    } else if (command.has_probe_link()) {
      answer.mutable_link_probed()->set_probe(command.probe_link().probe());
      answer.mutable_link_probed()->set_goodput_bits_per_second(20e6);
      answer.mutable_link_probed()->set_round_trip_seconds(0.03);
    } else if (command.try_reach().dial()) {
      answer.mutable_reach_tried()->set_check(command.try_reach().check());
      for (int i = 0; i < command.try_reach().addresses_size(); ++i) {
        answer.mutable_reach_tried()->add_problems("");
      }
    } else {
      assigned_ = assigned_ || command.has_assign();
      return;
    }
    shell_->Say(session_, std::move(answer));
  }
  void Close(const std::string&, bool) override {}
  void Taken(size_t) override {}
  void Beat() {
    v1::WorkerMessage message;
    message.mutable_heartbeat();
    shell_->Say(session_, std::move(message));
  }
  void Leave() { shell_->Leave(session_, "it went"); }
  bool assigned() {
    const std::lock_guard lock(mutex_);
    return assigned_;
  }
  std::shared_ptr<EagerWorker> shared_;  // itself, as long as its session lasts

 private:
  Shell* const shell_;
  std::mutex mutex_;
  SessionId session_;
  bool assigned_ = false;
};

class PlanningShell : public ::testing::Test {
 protected:
  static constexpr uint32_t kStages = 64;

  void SetUp() override {
    store_ = *Store::Open(folder_.path());
    blobs_ = *BlobStore::Open(folder_.path() + "/blobs");
    Planner planner;
    planner.plan = [this](const PlanRequest& request,
                          const std::stop_token& stop) -> StatusOr<Plan> {
      if (!gate_.Wait(stop)) {
        was_stopped_ = true;
        return absl::CancelledError("stopped");
      }
      const MonoTime start = Now();
      StatusOr<Plan> plan = MakePlan(request, stop);
      took_ = Now() - start;
      return plan;
    };
    planner.now = [this] { return is_late_ ? MonoTime() + absl::Hours(++clock_) : ThreadTime(); };
    auto shell =
        Shell::Create({}, store_.get(), blobs_.get(), blobs_.get(),
                      *DataPreparer::Open(folder_.path() + "/prepared", blobs_.get()), planner);
    ASSERT_TRUE(shell.ok()) << shell.status();
    shell_ = *std::move(shell);
    for (uint32_t i = 0; i < kStages; ++i) {
      workers_.push_back(std::make_shared<EagerWorker>(shell_.get()));
      workers_.back()->shared_ = workers_.back();
      workers_.back()->Join(fmt::format("w{}", i));
    }
  }
  void TearDown() override {
    gate_.Open();
    if (shell_ != nullptr) shell_->Stop(Deadline::After(kGatePatience));
    for (const auto& worker : workers_) worker->shared_.reset();
  }

  void Submit(uint32_t stages = kStages, PlacementKind placement = PlacementKind::kNames) {
    RunSpec spec = SmallSpec("deep", stages);
    spec.model.layers = kStages;
    spec.train.microbatches = stages;
    spec.pipeline.placement = placement;
    spec.session_timeout = absl::Hours(1);  // these workers send no heartbeats
    const std::string text(20'000, 'x');
    const std::string sha256 = Sha256Hex(text);
    auto upload = blobs_->StartUpload(sha256, text.size());
    ASSERT_TRUE((*upload)->Append(text).ok() && (*upload)->Finish().ok());
    v1::SubmitRequest request;
    v1::DataFile& file = *request.add_data_files();
    file.set_name("x.txt");
    file.set_sha256(sha256);
    file.set_bytes(text.size());
    shell_->Submit(std::move(spec), request, {}, [](const StatusOr<v1::SubmitReply>&) {});
    ASSERT_TRUE(gate_.WaitForEntered(1))
        << shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->DebugString();
  }
  // Waits until the run is in this state.
  bool Becomes(const std::string& state) {
    const Deadline deadline = Deadline::After(absl::Minutes(10));  // sanitizers plan for minutes
    while (shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->state() !=
           state) {
      if (deadline.Expired()) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  TempDir folder_;
  Gate gate_;
  std::atomic<bool> was_stopped_ = false;
  std::atomic<bool> is_late_ = false;  // each look at the clock of searches finds an hour gone
  std::atomic<int64_t> clock_ = 0;
  absl::Duration took_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<Shell> shell_;
  std::vector<std::shared_ptr<EagerWorker>> workers_;
};

// The plan is not made before the last query is answered: were it made under the queries' lock, the
// first of them would wait for as long as the gate does.
TEST_F(PlanningShell, QueriesAreAnsweredWhileAPlanIsMade) {
  Submit();
  std::vector<absl::Duration> waits;
  const auto timed = [&](const auto& query) {
    const MonoTime start = Now();
    query();
    waits.push_back(Now() - start);
  };
  for (int i = 0; i < 20; ++i) {
    timed([&] {
      EXPECT_EQ(shell_->Read([&](const Views& views) { return views.Workers(Now()); }).size(),
                kStages);
    });
    timed([&] {
      EXPECT_EQ(shell_->Read([&](const Views& views) { return views.Runs(); }).size(), 1u);
    });
    timed([&] {
      EXPECT_EQ(shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->state(),
                "planning");
    });
  }
  std::ranges::sort(waits);
  EXPECT_LT(waits.back(), kGatePatience / 2);
  gate_.Open();
  ASSERT_TRUE(Becomes("preparing"))
      << shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->reason();
  RecordProperty("plan_seconds", fmt::format("{:.3f}", absl::ToDoubleSeconds(took_)));
  fmt::print("a plan of {} stages took {:.3f} s; queries meanwhile at most {:.1f} ms\n", kStages,
             absl::ToDoubleSeconds(took_), absl::ToDoubleMilliseconds(waits.back()));
}

// Some of the workers are placed, in earnest: their links are surveyed, and plans are made.
TEST_F(PlanningShell, QueriesAreAnsweredWhileWorkersArePlaced) {
  constexpr uint32_t kPlaced = 16;
  gate_.Open();
  Submit(kPlaced, PlacementKind::kAuto);
  std::vector<absl::Duration> waits;
  const Deadline deadline = Deadline::After(absl::Minutes(10));
  for (bool is_planning = true; is_planning && !deadline.Expired();) {
    const MonoTime start = Now();
    is_planning = shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->state() ==
                  "planning";
    EXPECT_EQ(shell_->Read([&](const Views& views) { return views.Workers(Now()); }).size(),
              kStages);
    waits.push_back(Now() - start);
    if (waits.size() % 500 == 0) {
      for (const auto& worker : workers_) worker->Beat();
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_TRUE(Becomes("preparing"))
      << shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->reason();
  ASSERT_GT(waits.size(), 100u);
  std::ranges::sort(waits);
  const auto milliseconds = [](absl::Duration wait) { return absl::ToDoubleMilliseconds(wait); };
  fmt::print(
      "{} queries while {} of {} workers were placed, the last plan in {:.3f} s: 99% within {:.1f} "
      "ms, at most {:.1f} ms\n",
      waits.size(), kPlaced, kStages, absl::ToDoubleSeconds(took_),
      milliseconds(waits[waits.size() * 99 / 100]), milliseconds(waits.back()));
  // A query that waited for a plan would take as long as that.
  EXPECT_LT(waits[waits.size() * 9 / 10], took_ / 4);
}

// Users see it where they see the plan.
TEST_F(PlanningShell, APlanSaysThatItsSearchEnded) {
  is_late_ = true;
  gate_.Open();
  Submit(kStages / 2, PlacementKind::kAuto);
  ASSERT_TRUE(Becomes("preparing"))
      << shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->reason();
  const std::string said = "the search ended after 5 s, and took the best of ";
  const v1::RunStatus run = *shell_->Read([](const Views& views) { return views.RunOf("deep"); });
  EXPECT_THAT(run.plan().explanation(), HasSubstr("More was not tried: " + said));
  EXPECT_THAT(run.plan().prediction().cut_short(), HasSubstr(said));
  // The event is stored after the tick.
  const auto is_stored = [&] {
    const auto events = shell_->store().NewestEvents(run.run_id(), 0, 100);
    return events.ok() && std::ranges::any_of(*events, [&](const v1::Event& event) {
             return event.text().starts_with("the plan may not be the best: " + said);
           });
  };
  const Deadline deadline = Deadline::After(kGatePatience);
  while (!is_stored() && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(is_stored());
}

TEST_F(PlanningShell, AStoppedRunStopsItsPlan) {
  Submit();
  shell_->Ask(event::StopAsked{.run = "deep", .now = true}, [](const StatusOr<v1::StopReply>&) {});
  ASSERT_TRUE(Becomes("stopped"));
  const Deadline deadline = Deadline::After(kGatePatience / 2);
  while (!was_stopped_ && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(was_stopped_);
}

TEST_F(PlanningShell, ALostWorkerStopsThePlan) {
  Submit();
  workers_[17]->Leave();
  ASSERT_TRUE(Becomes("failed"));
  EXPECT_THAT(shell_->Read([&](const Views& views) { return views.RunOf("deep"); })->reason(),
              HasSubstr("worker w17 was lost while the plan was made"));
  const Deadline deadline = Deadline::After(kGatePatience / 2);
  while (!was_stopped_ && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(was_stopped_);
}

}  // namespace
}  // namespace longhaul::coordinator
