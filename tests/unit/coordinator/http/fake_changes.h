// Somebody who changes runs, as the dashboard sees it: keys are names, and what is asked is kept.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "coordinator/http/changes.h"

namespace longhaul::coordinator {

class FakeChanges : public Changes {
 public:
  // "admin" may all; "user" has runs of its own; other keys are none.
  StatusOr<Viewer> Identify(const Asker& asker) override {
    if (asker.key == "admin") return Viewer{.all = true, .name = "ada", .role = "admin"};
    if (asker.key == "user") return Viewer{.all = false, .name = "ulla", .role = "user"};
    return absl::UnauthenticatedError("no such key");
  }
  StatusOr<v1::SubmitRequest> Submission(const Asker& asker, const std::string& run) override {
    LH_RETURN_IF_ERROR(Identify(asker).status());
    if (run != "tiny") return absl::NotFoundError("there is no such run");
    v1::SubmitRequest submission;
    submission.set_run_yaml("name: tiny\n");
    submission.add_data_files()->set_name("text.txt");
    return submission;
  }
  StatusOr<v1::SubmitReply> Submit(const Asker& asker, const Wanted& wanted, Deadline) override {
    LH_RETURN_IF_ERROR(Identify(asker).status());
    Note("submit " + wanted.run + (wanted.resume ? " again: " : ": ") + wanted.yaml);
    v1::SubmitReply reply;
    reply.set_run_id("tiny-new");
    reply.add_notes("waiting for 2 more workers");
    return reply;
  }
  StatusOr<v1::StopReply> Stop(const Asker& asker, const std::string& run, bool now,
                               Deadline) override {
    LH_RETURN_IF_ERROR(Identify(asker).status());
    Note((now ? "stop now " : "stop ") + run);
    v1::StopReply reply;
    reply.set_message("stops after its current step");
    return reply;
  }

  std::vector<std::string> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void Note(std::string text) {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(text));
  }
  mutable std::mutex mutex_;
  std::vector<std::string> asked_;
};

}  // namespace longhaul::coordinator
