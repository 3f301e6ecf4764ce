// `longhaul steps`: a run's steps as a table, as JSON, or in files.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/flags/command_line.h"
#include "cli/format.h"
#include "cli/program.h"
#include "cli/step_files.h"
#include "cli/table.h"
#include "cli/watch_view.h"

namespace longhaul::cli {
namespace {

// Between two questions for new steps, and how long a coordinator may be away meanwhile.
constexpr absl::Duration kFollowPause = absl::Seconds(1);
constexpr absl::Duration kFollowPatience = absl::Minutes(5);

struct StepsOptions {
  std::string run;
  std::optional<uint64_t> after;
  std::string file, tensorboard;
  bool follow = false;
};

using Take = std::function<void(const v1::StepRecord& step)>;

Status EachStep(Client& client, const std::string& run, std::optional<uint64_t> after,
                const Take& take) {
  v1::StepsRequest request;
  request.set_run(run);
  if (after) request.set_after_step(*after);
  return client.Each<v1::StepsRequest, v1::StepRecord>(&v1::ControlService::Stub::ListSteps,
                                                       request, [&](const v1::StepRecord& step) {
                                                         take(step);
                                                         return true;
                                                       });
}

// The newest step's validation comes into its row after the step, and before the next one: a row is
// taken when there is a newer one, or with `TakeNewest`.
class FinishedRows {
 public:
  FinishedRows(std::optional<uint64_t> after, const Take& take) : after_(after), take_(take) {}

  Status Read(Client& client, const std::string& run) {
    return EachStep(client, run, after_, [&](const v1::StepRecord& row) {
      if (newest_ && newest_->step() < row.step()) TakeNewest();
      newest_ = row;
    });
  }
  void TakeNewest() {
    if (!newest_) return;
    after_ = newest_->step();
    take_(*newest_);
    newest_.reset();
  }

 private:
  std::optional<uint64_t> after_;  // the newest that was taken
  std::optional<v1::StepRecord> newest_;
  const Take& take_;
};

// All steps, and those to come until the run has ended. `flush` is called whenever there are no
// more yet.
// False: interrupted.
StatusOr<bool> Follow(Invocation& invocation, Client& client, const std::string& run,
                      std::optional<uint64_t> after, const Take& take,
                      const std::function<Status()>& flush) {
  FinishedRows rows(after, take);
  MonoTime last_contact = Now();
  while (true) {
    // Before the steps: what came with the end is among them.
    const StatusOr<v1::RunStatus> now = client.GetRun(run);
    Status status = now.status();
    if (status.ok()) status = rows.Read(client, run);
    const bool interrupted = invocation.interrupt().fired();
    const bool away = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    const bool given_up = !status.ok() && (!away || Now() - last_contact > kFollowPatience);
    const bool ended = status.ok() && HasEnded(*now);
    if (interrupted || given_up || ended) rows.TakeNewest();
    LH_RETURN_IF_ERROR(flush());
    if (interrupted) return false;
    if (given_up) return status;
    if (ended) return true;
    if (status.ok()) last_contact = Now();
    if (invocation.interrupt().WaitFor(kFollowPause)) {
      rows.TakeNewest();
      LH_RETURN_IF_ERROR(flush());
      return false;
    }
    if (!status.ok()) client.AwaitConnection(kFollowPause);
  }
}

StatusOr<int> WriteSteps(Invocation& invocation, Client& client, const StepsOptions& options) {
  LH_ASSIGN_OR_RETURN(const v1::RunStatus run, client.GetRun(options.run));
  LH_ASSIGN_OR_RETURN(StepFiles files, StepFiles::Open(options.file, options.tensorboard, run));
  uint64_t count = 0;
  const auto take = [&](const v1::StepRecord& step) {
    files.Add(step);
    ++count;
  };
  bool whole = true;
  if (options.follow) {
    LH_ASSIGN_OR_RETURN(whole, Follow(invocation, client, run.run_id(), options.after, take,
                                      [&] { return files.Flush(); }));
  } else {
    LH_RETURN_IF_ERROR(EachStep(client, run.run_id(), options.after, take));
    LH_RETURN_IF_ERROR(files.Flush());
  }
  invocation.terminal().out << fmt::format("{}: {} records in {}\n", Printable(run.run_id()), count,
                                           absl::StrJoin(files.paths(), ", "));
  return whole ? kDone : kInterrupted;
}

StatusOr<int> PrintTable(Invocation& invocation, Client& client, const StepsOptions& options) {
  Table table({{"STEP", Align::kRight},
               {"EPOCH", Align::kRight},
               {"LOSS"},
               {"VALIDATION"},
               {"CLEAN VALIDATION"},
               {"GRADIENT NORM"},
               {"LEARNING RATE"},
               {"SECONDS"},
               {"LINK BYTES", Align::kRight},
               {"PAYLOAD BYTES", Align::kRight}});
  LH_RETURN_IF_ERROR(EachStep(client, options.run, options.after, [&](const v1::StepRecord& step) {
    const auto exact = [](bool known, double value) { return known ? ExactText(value) : ""; };
    table.AddRow({fmt::format("{}", step.step()), fmt::format("{}", step.epoch()),
                  exact(step.has_loss(), step.loss()),
                  exact(step.has_validation(), step.validation_loss()),
                  exact(step.has_clean_validation_loss(), step.clean_validation_loss()),
                  ExactText(step.gradient_norm()), ExactText(step.learning_rate()),
                  fmt::format("{:.6g}", step.seconds()), fmt::format("{}", step.link_bytes()),
                  fmt::format("{}", step.payload_bytes())});
  }));
  table.Print(invocation.terminal());
  return kDone;
}

StatusOr<int> Steps(Invocation& invocation, const StepsOptions& options) {
  const bool files = !options.file.empty() || !options.tensorboard.empty();
  if (options.follow && !files && !invocation.json()) {
    return absl::InvalidArgumentError(
        "--follow is for --json, --file and --tensorboard; `longhaul watch` shows a run to people");
  }
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  if (files) return WriteSteps(invocation, *client, options);
  if (!invocation.json()) return PrintTable(invocation, *client, options);
  const auto print = [&](const v1::StepRecord& step) { invocation.PrintJsonLine(step); };
  if (!options.follow) {
    LH_RETURN_IF_ERROR(EachStep(*client, options.run, options.after, print));
    return kDone;
  }
  // By id: the newest run of a name may become another one.
  LH_ASSIGN_OR_RETURN(const v1::RunStatus run, client->GetRun(options.run));
  LH_ASSIGN_OR_RETURN(const bool whole,
                      Follow(invocation, *client, run.run_id(), options.after, print, [&] {
                        invocation.terminal().out.flush();
                        return absl::OkStatus();
                      }));
  return whole ? kDone : kInterrupted;
}

}  // namespace

void AddStepsCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "steps", "List every step's losses and times, with all their digits", Steps);
  AddRunArgument(command, &options->run);
  command->add_option("--after", options->after, "Only steps after this one")
      ->type_name("STEP")
      ->check(WholeNumber());
  command->add_option("--file", options->file, "Write them to this file, one JSON object a line");
  command
      ->add_option("--tensorboard", options->tensorboard,
                   "Write them as TensorBoard reads them, into a folder named by the run's id in "
                   "this one")
      ->type_name("DIR");
  command->add_flag("-f,--follow", options->follow,
                    "Go on with new steps as they come, until the run has ended");
  command->footer(
      "Losses have 17 significant digits, so that two runs can be compared bit by bit. With --json "
      "one\nobject a line. Files are written anew by each call. TensorBoard's clock is the time "
      "that steps\ntook, from the run's beginning on. Steps that are trained again after a loss "
      "are not followed again.\nA step is followed when its validation is there too: with the next "
      "step, or the end.");
}

}  // namespace longhaul::cli
