// `longhaul steps`: a run's steps as a table, as JSON, in files, or in experiment trackers.
#include "cli/steps_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
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
#include "coordinator/view/json.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {
namespace {

StartStepLog start_step_log = nullptr;

// Between two questions for new steps, and how long a coordinator may be away meanwhile.
constexpr absl::Duration kFollowPause = absl::Seconds(1);
constexpr absl::Duration kFollowPatience = absl::Minutes(5);

struct StepsOptions {
  std::string run;
  std::optional<uint64_t> after;
  std::string file, tensorboard;
  StepLogTargets log;
  bool follow = false;

  bool logs() const { return !log.wandb.empty() || !log.mlflow.empty(); }
  bool files() const { return !file.empty() || !tensorboard.empty(); }
};

// `whole`: the step's validation, if there is one, is in the record.
using Take = std::function<void(const v1::StepRecord& step, bool whole)>;

Status EachStep(Client& client, const std::string& run, std::optional<uint64_t> after,
                const std::function<void(const v1::StepRecord& step)>& take) {
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
      if (newest_ && newest_->step() < row.step()) TakeNewest(/*whole=*/true);
      newest_ = row;
    });
  }
  void TakeNewest(bool whole) {
    if (!newest_) return;
    after_ = newest_->step();
    take_(*newest_, whole);
    newest_.reset();
  }

 private:
  std::optional<uint64_t> after_;  // the newest that was taken
  std::optional<v1::StepRecord> newest_;
  const Take& take_;
};

// What Follow calls. All must be set.
struct Follower {
  std::function<void(const v1::RunStatus& run)> see;  // the run as it is now, before its steps
  Take take;
  std::function<Status()> flush;  // whenever there are no more steps yet
};

// All steps, and those to come until the run has ended.
// False: interrupted.
StatusOr<bool> Follow(Invocation& invocation, Client& client, const std::string& run,
                      std::optional<uint64_t> after, const Follower& follower) {
  FinishedRows rows(after, follower.take);
  MonoTime last_contact = Now();
  while (true) {
    // Before the steps: what came with the end is among them.
    const StatusOr<v1::RunStatus> now = client.GetRun(run);
    Status status = now.status();
    if (status.ok()) {
      follower.see(*now);
      status = rows.Read(client, run);
    }
    const bool interrupted = invocation.interrupt().fired();
    const bool away = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    const bool given_up = !status.ok() && (!away || Now() - last_contact > kFollowPatience);
    const bool ended = status.ok() && HasEnded(*now);
    if (interrupted || given_up || ended) rows.TakeNewest(/*whole=*/ended);
    LH_RETURN_IF_ERROR(follower.flush());
    if (interrupted) return false;
    if (given_up) return status;
    if (ended) return true;
    if (status.ok()) last_contact = Now();
    if (invocation.interrupt().WaitFor(kFollowPause)) {
      rows.TakeNewest(/*whole=*/false);
      LH_RETURN_IF_ERROR(follower.flush());
      return false;
    }
    if (!status.ok()) client.AwaitConnection(kFollowPause);
  }
}

// The line that describes a run to a StepLog.
std::string RunLine(const v1::RunStatus& run) {
  const std::string& file = run.plan().assignment().run_yaml();
  const StatusOr<RunSpec> spec = ParseRunSpec(file, "run.yaml", {});
  const int64_t began = run.started_unix_ms() > 0 ? run.started_unix_ms() : run.submitted_unix_ms();
  const nlohmann::json line = {{"run",
                                {{"id", run.run_id()},
                                 {"name", run.name()},
                                 {"state", run.state()},
                                 {"reason", run.reason()},
                                 {"ended", HasEnded(run)},
                                 {"replay", !run.replay_source().empty()},
                                 {"began_unix_ms", began},
                                 {"ended_unix_ms", run.ended_unix_ms()},
                                 {"run_file", file},
                                 {"tokens_of_replica", spec.ok() ? spec->TokensOfReplica() : 0}}}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Files and trackers that get a run's steps. An error is kept, and returned by the next Flush.
class Takers {
 public:
  static StatusOr<Takers> Open(Invocation& invocation, const StepsOptions& options,
                               const v1::RunStatus& run) {
    Takers takers;
    // First: where trackers cannot be had, files stay as they are.
    if (options.logs()) {
      if (start_step_log == nullptr) {
        return FailedPrecondition("this program has no part that knows --wandb and --mlflow");
      }
      takers.run_line_ = RunLine(run);
      std::string where;
      LH_ASSIGN_OR_RETURN(takers.log_, start_step_log(options.log, takers.run_line_,
                                                      invocation.interrupt(), &where));
      invocation.terminal().err << PrintableLines(where) << std::flush;
    }
    LH_ASSIGN_OR_RETURN(takers.files_, StepFiles::Open(options.file, options.tensorboard, run));
    return takers;
  }

  void See(const v1::RunStatus& run) {
    if (!log_) return;
    const std::string line = RunLine(run);
    if (line != run_line_) ToLog(line);
    run_line_ = line;
  }
  void Take(const v1::StepRecord& step, bool whole) {
    files_.Add(step);
    ++count_;
    // Trackers keep the first record of a step: the next call brings a whole one.
    if (log_ && whole) ToLog(ToJson(step, /*indented=*/false));
  }
  Status Flush() {
    LH_RETURN_IF_ERROR(files_.Flush());
    if (log_) ToLog("");
    return log_status_;
  }
  // Call it once, after a last Flush. Returns what there is to say about `run`, in lines.
  StatusOr<std::string> Close(const std::string& run) {
    std::string text;
    if (!files_.paths().empty()) {
      text = fmt::format("{}: {} records in {}\n", Printable(run), count_,
                         absl::StrJoin(files_.paths(), ", "));
    }
    if (!log_) return text;
    LH_RETURN_IF_ERROR(log_status_);
    LH_ASSIGN_OR_RETURN(const std::string logged, log_->Close());
    return text + PrintableLines(logged);
  }

 private:
  void ToLog(std::string_view line) {
    if (log_status_.ok()) log_status_ = log_->Write(line);
  }

  StepFiles files_;
  uint64_t count_ = 0;
  std::unique_ptr<StepLog> log_;  // null: no trackers
  std::string run_line_;
  Status log_status_;
};

StatusOr<int> WriteSteps(Invocation& invocation, Client& client, const StepsOptions& options) {
  LH_ASSIGN_OR_RETURN(const v1::RunStatus run, client.GetRun(options.run));
  LH_ASSIGN_OR_RETURN(Takers takers, Takers::Open(invocation, options, run));
  const Follower follower = {
      .see = [&](const v1::RunStatus& now) { takers.See(now); },
      .take = [&](const v1::StepRecord& step, bool whole) { takers.Take(step, whole); },
      .flush = [&] { return takers.Flush(); }};
  bool whole = true;
  if (options.follow) {
    LH_ASSIGN_OR_RETURN(whole, Follow(invocation, client, run.run_id(), options.after, follower));
  } else {
    FinishedRows rows(options.after, follower.take);
    LH_RETURN_IF_ERROR(rows.Read(client, run.run_id()));
    rows.TakeNewest(/*whole=*/HasEnded(run));
    LH_RETURN_IF_ERROR(takers.Flush());
  }
  LH_ASSIGN_OR_RETURN(const std::string text, takers.Close(run.run_id()));
  invocation.terminal().out << text;
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

Status CheckTogether(const StepsOptions& options, bool json) {
  if (options.follow && !options.files() && !options.logs() && !json) {
    return absl::InvalidArgumentError(
        "--follow is for --json, --file, --tensorboard, --wandb and --mlflow; `longhaul watch` "
        "shows a run to people");
  }
  if (options.after && options.logs()) {
    return absl::InvalidArgumentError(
        "--after is not for --wandb and --mlflow: they get the steps that they have not got yet; "
        "leave it out");
  }
  return absl::OkStatus();
}

StatusOr<int> Steps(Invocation& invocation, const StepsOptions& options) {
  LH_RETURN_IF_ERROR(CheckTogether(options, invocation.json()));
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  if (options.files() || options.logs()) return WriteSteps(invocation, *client, options);
  if (!invocation.json()) return PrintTable(invocation, *client, options);
  const auto print = [&](const v1::StepRecord& step) { invocation.PrintJsonLine(step); };
  if (!options.follow) {
    LH_RETURN_IF_ERROR(EachStep(*client, options.run, options.after, print));
    return kDone;
  }
  // By id: the newest run of a name may become another one.
  LH_ASSIGN_OR_RETURN(const v1::RunStatus run, client->GetRun(options.run));
  const Follower follower = {.see = [](const v1::RunStatus&) {},
                             .take = [&](const v1::StepRecord& step, bool) { print(step); },
                             .flush =
                                 [&] {
                                   invocation.terminal().out.flush();
                                   return absl::OkStatus();
                                 }};
  LH_ASSIGN_OR_RETURN(const bool whole,
                      Follow(invocation, *client, run.run_id(), options.after, follower));
  return whole ? kDone : kInterrupted;
}

void AddTrackers(CLI::App* command, StepLogTargets* log) {
  const CLI::Validator not_empty(
      [](const std::string& text) { return text.empty() ? "expected a text, got none" : ""; }, "");
  command
      ->add_option("--wandb", log->wandb,
                   "Log them to Weights & Biases, into this project, or ENTITY/PROJECT")
      ->type_name("PROJECT")
      ->check(not_empty);
  command
      ->add_option("--mlflow", log->mlflow, "Log them to MLflow: http://HOST:PORT, or file:///DIR")
      ->type_name("URI")
      ->check(not_empty);
}

}  // namespace

void SetStartStepLog(StartStepLog start) {
  start_step_log = start;
}

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
  AddTrackers(command, &options->log);
  command->add_flag("-f,--follow", options->follow,
                    "Go on with new steps as they come, until the run has ended");
  command->footer(
      "Losses have 17 significant digits, so that two runs can be compared bit by bit. With --json "
      "one\nobject a line. Files are written anew by each call. TensorBoard's clock is the time "
      "that steps\ntook, from the run's beginning on. Steps that are trained again after a loss "
      "are not followed again.\nA step is followed when its validation is there too: with the next "
      "step, or the end.\n\n"
      "--wandb and --mlflow log to one run of the tracker, named by the run's id. The same command "
      "again\ncontinues that run: steps that the tracker has are left out. They run Python with "
      "the "
      "packages\nwandb and mlflow, which deploy/setup.sh --log brings; LONGHAUL_PYTHON names "
      "another "
      "Python. These\npackages find the login by themselves (WANDB_API_KEY, `wandb login`, "
      "MLFLOW_TRACKING_TOKEN).");
}

}  // namespace longhaul::cli
