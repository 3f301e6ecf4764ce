#include "tests/sim/coordinator/sim_store.h"

#include <map>
#include <utility>

#include "base/check.h"
#include "coordinator/store/store.h"

namespace longhaul::coordinator::sim {
namespace {

class ModelStore final : public SimStore {
 public:
  void Apply(const std::vector<Write>& writes) override {
    for (const Write& write : writes) {
      if (const auto* run = std::get_if<write::Run>(&write)) {
        const auto [place, added] = places_.try_emplace(run->record.id, records_.size());
        if (added) records_.emplace_back();
        records_[place->second] = run->record;
      } else if (const auto* log = std::get_if<write::LogEvent>(&write)) {
        LH_CHECK(log->event.sequence() >= next_event_, "event {} is there already",
                 log->event.sequence());
        next_event_ = log->event.sequence() + 1;
      } else if (const auto* done = std::get_if<write::StepDone>(&write)) {
        steps_[done->run][done->step.step()] = done->step;
      } else if (const auto* answered = std::get_if<write::Answered>(&write)) {
        answered_[{answered->call.owner, answered->call.id}] = answered->call;
      } else if (const auto* gone = std::get_if<write::AnswerForgotten>(&write)) {
        answered_.erase({gone->owner, gone->id});
      }
    }
  }
  void Reopen() override {}
  StoredRuns LoadRuns() const override {
    StoredRuns stored{.runs = records_};
    for (const auto& [key, call] : answered_) stored.answered.push_back(call);
    for (const RunRecord& record : records_) {
      const auto rows = steps_.find(record.id);
      if (HasEnded(record.state) || rows == steps_.end()) continue;
      const uint64_t from = record.checkpoints.empty() ? 0 : record.checkpoints.front().step();
      for (auto row = rows->second.lower_bound(from); row != rows->second.end(); ++row) {
        stored.steps[record.id].push_back(row->second);
      }
    }
    return stored;
  }
  uint64_t NextEventSequence() const override { return next_event_; }

 private:
  std::vector<RunRecord> records_;  // in the order in which they came
  std::map<RunId, size_t> places_;
  std::map<RunId, std::map<uint64_t, v1::StepRecord>> steps_;
  std::map<std::pair<std::string, std::string>, AnsweredCall> answered_;
  uint64_t next_event_ = 1;
};

class RealStore final : public SimStore {
 public:
  explicit RealStore(std::string folder) : folder_(std::move(folder)) { Reopen(); }
  void Apply(const std::vector<Write>& writes) override {
    const Status status = store_->Apply(writes);
    LH_CHECK(status.ok(), "the store refused a write: {}", Message(status));
  }
  void Reopen() override {
    store_.reset();
    auto store = Store::Open(folder_);
    LH_CHECK(store.ok(), "the store cannot be opened: {}", Message(store.status()));
    store_ = *std::move(store);
  }
  StoredRuns LoadRuns() const override {
    auto stored = store_->LoadRuns();
    LH_CHECK(stored.ok(), "{}", Message(stored.status()));
    LH_CHECK(stored->unreadable.empty(), "{} runs cannot be read", stored->unreadable.size());
    return *std::move(stored);
  }
  uint64_t NextEventSequence() const override { return *store_->NextEventSequence(); }

 private:
  const std::string folder_;
  std::unique_ptr<Store> store_;
};

}  // namespace

std::unique_ptr<SimStore> MakeModelStore() {
  return std::make_unique<ModelStore>();
}

std::unique_ptr<SimStore> MakeRealStore(const std::string& folder) {
  return std::make_unique<RealStore>(folder);
}

}  // namespace longhaul::coordinator::sim
