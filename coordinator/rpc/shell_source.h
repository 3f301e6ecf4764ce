// Reads the shell and its store for the dashboard. Thread-safe. Functions are documented at Source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/http/dashboard_server.h"
#include "coordinator/http/source.h"
#include "coordinator/rpc/notifier.h"
#include "coordinator/rpc/shell.h"

namespace longhaul::coordinator {

class ShellSource : public Source {
 public:
  // Nobody looks through more, and ticks wait while thousands are listed.
  static constexpr uint32_t kMostEnded = 500;
  // `shell` must outlive this object.
  explicit ShellSource(Shell* shell) : shell_(shell) {}

  std::vector<v1::RunStatus> Runs() const override {
    return shell_->Read(
        [&](const Views& views) { return views.ListRuns({.most_ended = kMostEnded}).runs; });
  }
  StatusOr<v1::RunStatus> Run(std::string_view id_or_name) const override {
    return shell_->Read([&](const Views& views) { return views.RunOf(id_or_name); });
  }
  std::vector<v1::WorkerStatus> Workers() const override {
    return shell_->Read([&](const Views& views) { return views.Workers(Now()); });
  }
  std::vector<v1::MeasuredLink> Links() const override {
    return shell_->Read([&](const Views& views) { return views.Links(Now()); });
  }
  StatusOr<std::vector<v1::Event>> NewestEvents(std::string_view run, uint64_t after,
                                                size_t limit) const override {
    return shell_->store().NewestEvents(run, after, limit);
  }
  StatusOr<std::vector<v1::StepRecord>> Steps(const RunId& run, uint64_t step,
                                              size_t limit) const override {
    return shell_->store().Steps(run, step, limit);
  }
  StatusOr<v1::CheckpointsReply> Checkpoints(const std::string& run, Deadline deadline) override;
  StatusOr<v1::TraceReply> Trace(const std::string& run, Deadline deadline) override;

 private:
  Shell* const shell_;
};

// Passes the shell's news on to a dashboard.
class NewsForDashboard : public Notifier::Subscriber {
 public:
  explicit NewsForDashboard(std::unique_ptr<DashboardServer> server) : server_(std::move(server)) {}
  DashboardServer& server() { return *server_; }

  void OnNews() override { server_->OnNews(); }
  void OnShutdown() override { server_->Stop(Deadline::After(absl::ZeroDuration())); }

 private:
  const std::unique_ptr<DashboardServer> server_;
};

}  // namespace longhaul::coordinator
