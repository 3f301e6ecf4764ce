// A coordinator of one run, as the dashboard sees it.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/http/source.h"

namespace longhaul::coordinator {

class FakeSource : public Source {
 public:
  FakeSource() {
    run_.set_run_id("tiny-abcdef");
    run_.set_name("tiny");
    run_.set_state("running");
    run_.set_epoch(1);
  }

  std::vector<v1::RunStatus> Runs() const override {
    ++asked_;
    const std::lock_guard lock(mutex_);
    return {run_};
  }
  StatusOr<v1::RunStatus> Run(std::string_view id_or_name) const override {
    const std::lock_guard lock(mutex_);
    if (id_or_name == run_.run_id() || id_or_name == run_.name()) return run_;
    return absl::NotFoundError("there is no such run");
  }
  std::vector<v1::WorkerStatus> Workers() const override { return workers_; }
  std::vector<v1::MeasuredLink> Links() const override { return links_; }
  StatusOr<std::vector<v1::Event>> NewestEvents(std::string_view, uint64_t after,
                                                size_t) const override {
    std::vector<v1::Event> events;
    for (const v1::Event& event : events_) {
      if (event.sequence() > after) events.push_back(event);
    }
    return events;
  }
  StatusOr<std::vector<v1::StepRecord>> Steps(const RunId&, uint64_t step,
                                              size_t limit) const override {
    const std::lock_guard lock(mutex_);
    std::vector<v1::StepRecord> page;
    for (const v1::StepRecord& row : rows_) {
      if (row.step() >= step && page.size() < limit) page.push_back(row);
    }
    rows_read_ += page.size();
    return page;
  }
  StatusOr<v1::CheckpointsReply> Checkpoints(const std::string&, Deadline) override {
    return checkpoints_;
  }
  StatusOr<v1::TraceReply> Trace(const std::string&, Deadline) override {
    return absl::FailedPreconditionError("the run does not train");
  }

  // The run finishes its next step.
  v1::StepRecord& AddStep(double loss) {
    const std::lock_guard lock(mutex_);
    v1::StepRecord row;
    row.set_step(run_.step() + 1);
    row.set_epoch(run_.epoch());
    row.set_loss(loss);
    row.set_seconds(0.5);
    run_.set_step(row.step());
    // In place of one that was given up.
    std::erase_if(rows_, [&](const v1::StepRecord& one) { return one.step() == row.step(); });
    const auto after = std::ranges::find_if(
        rows_, [&](const v1::StepRecord& one) { return one.step() > row.step(); });
    return *rows_.insert(after, row);
  }
  void SetOwner(const std::string& name) {
    const std::lock_guard lock(mutex_);
    run_.set_owner(name);
  }
  void GoBackTo(uint64_t step) {
    const std::lock_guard lock(mutex_);
    run_.set_step(step);
    run_.set_epoch(run_.epoch() + 1);
  }
  v1::RunStatus run() const {
    const std::lock_guard lock(mutex_);
    return run_;
  }

  std::vector<v1::WorkerStatus> workers_;
  std::vector<v1::MeasuredLink> links_;
  std::vector<v1::Event> events_;
  v1::CheckpointsReply checkpoints_;
  mutable std::atomic<size_t> asked_ = 0, rows_read_ = 0;

 private:
  mutable std::mutex mutex_;  // of both below
  v1::RunStatus run_;
  std::vector<v1::StepRecord> rows_;
};

}  // namespace longhaul::coordinator
