// `longhaul submit` and `longhaul plan`.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/flags/command_line.h"
#include "base/units.h"
#include "cli/once.h"
#include "cli/plan_view.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/stored_checkpoint.h"
#include "cli/submission.h"
#include "cli/topology.h"
#include "cli/watch.h"
#include "run/plan/proto/plan_proto.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::cli {
namespace {

struct SubmitOptions {
  std::string file, folder;
  std::vector<std::string> overrides;
  bool watch = false;
  bool resume = false;
  uint64_t from_step = 0;
  std::string from_checkpoint, request_id;
  bool show_config = false;
  std::string rate, delay;
};

CLI::Option* AddRunFile(CLI::App* command, SubmitOptions& options) {
  CLI::Option* const file = command->add_option("FILE", options.file, "The run file (YAML)");
  file->required();
  command
      ->add_option("--set", options.overrides,
                   "Override a key of the run file, such as --set train.steps=20 or --set "
                   "links.forward=none; the value is YAML; repeatable")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command
      ->add_option("--relative-to", options.folder,
                   "Folder that paths in the run file are relative to; default: the run file's")
      ->type_name("DIR");
  return file;
}

// The run file may be left out where the checkpoint has one.
StatusOr<Submission> ReadSubmission(const SubmitOptions& options) {
  if (options.from_checkpoint.empty()) {
    return ReadRunAndData(options.file, options.overrides, options.folder);
  }
  LH_ASSIGN_OR_RETURN(FoundCheckpoint found, FindStoredCheckpoint(options.from_checkpoint));
  const std::string name = found.folder + std::string(stored::kDescription);
  StatusOr<Submission> submission =
      options.file.empty() ? ReadTextAndData(found.checkpoint.run_yaml(),
                                             std::string(stored::kDescription), options.overrides)
                           : ReadRunAndData(options.file, options.overrides, options.folder);
  if (!submission.ok()) {
    return options.file.empty() ? Annotate(submission.status(), "the run file in " + name)
                                : submission.status();
  }
  *submission->request.mutable_from_checkpoint() = std::move(found.checkpoint);
  submission->request.set_from_folder(std::move(found.folder));
  return submission;
}

StatusOr<int> Submit(Invocation& invocation, const SubmitOptions& options) {
  LH_ASSIGN_OR_RETURN(Submission submission, ReadSubmission(options));
  submission.request.set_resume(options.resume);
  submission.request.set_from_step(options.from_step);
  LH_RETURN_IF_ERROR(HashData(invocation.terminal(), invocation.interrupt(), submission));
  LH_RETURN_IF_ERROR(HashWeights(invocation.terminal(), invocation.interrupt(), submission));
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  LH_RETURN_IF_ERROR(CheckTopology(submission.spec, client->access()));
  LH_RETURN_IF_ERROR(UploadData(invocation.terminal(), *client, submission));
  // Before the coordinator plans, and workers look at their links.
  LH_RETURN_IF_ERROR(EmulateTopology(invocation.terminal(), submission.spec, client->access(),
                                     invocation.clusters()));
  LH_ASSIGN_OR_RETURN(
      const v1::SubmitReply reply,
      AskOnce(invocation, &v1::ControlService::Stub::Submit, submission.request, options.request_id,
              "whether the run was submitted", absl::Minutes(2)));
  const Terminal& terminal = invocation.terminal();
  const std::string id = Printable(reply.run_id());
  NoteRepeated(terminal, reply.stored());
  if (!invocation.json()) {
    terminal.out << id << std::endl;
    if (options.resume) {
      terminal.err << (reply.resume_step() > 0
                           ? fmt::format("goes on from the checkpoint of step {}",
                                         reply.resume_step())
                           : "no checkpoint was written before, so it starts at the first step")
                   << std::endl;
    }
    for (const std::string& note : reply.notes()) terminal.err << Printable(note) << std::endl;
  } else if (options.watch) {
    invocation.PrintJsonLine(reply);
  } else {
    invocation.PrintJson(reply);
  }
  if (options.watch) return WatchRun(invocation, *client, reply.run_id());
  if (!invocation.json() && terminal.err_is_terminal) {
    terminal.err << fmt::format("Watch it with: longhaul watch {}", id) << std::endl;
  }
  return kDone;
}

Status AddAssumptions(const SubmitOptions& options, v1::SubmitRequest* request) {
  if (!options.rate.empty()) {
    const StatusOr<uint64_t> rate = ParseBitsPerSecond(options.rate);
    if (!rate.ok()) return Annotate(rate.status(), "--rate");
    if (*rate == 0) return absl::InvalidArgumentError("--rate: expected more than 0 bits a second");
    request->set_assumed_line_bits_per_second(*rate);
  }
  if (!options.delay.empty()) {
    const StatusOr<absl::Duration> delay = ParseDuration(options.delay);
    if (!delay.ok()) return Annotate(delay.status(), "--delay");
    request->set_assumed_delay_seconds(absl::ToDoubleSeconds(*delay));
  }
  return absl::OkStatus();
}

StatusOr<int> ShowPlan(Invocation& invocation, const SubmitOptions& options) {
  if (options.show_config) {
    if (invocation.json()) {
      return absl::InvalidArgumentError(
          "--show-config prints a run file, which is YAML; leave --json out");
    }
    LH_ASSIGN_OR_RETURN(const Submission run, ReadRunFile(options.file, options.overrides));
    invocation.terminal().out << ToYaml(run.spec);
    return kDone;
  }
  LH_ASSIGN_OR_RETURN(Submission submission,
                      ReadRunAndData(options.file, options.overrides, options.folder));
  DescribeModel(submission);
  LH_RETURN_IF_ERROR(AddAssumptions(options, &submission.request));
  LH_RETURN_IF_ERROR(HashData(invocation.terminal(), invocation.interrupt(), submission));
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  LH_RETURN_IF_ERROR(CheckTopology(submission.spec, client->access()));
  if (submission.spec.topology) {
    invocation.terminal().err
        << "the plan is for the links as they are now; `submit` makes them those "
           "of the run's topology"
        << std::endl;
  }
  LH_RETURN_IF_ERROR(UploadData(invocation.terminal(), *client, submission));
  if (invocation.terminal().err_is_terminal) {
    invocation.terminal().err << "measuring the workers' layer times..." << std::endl;
  }
  LH_ASSIGN_OR_RETURN(
      const v1::PlanReply reply,
      client->Get(&v1::ControlService::Stub::PlanRun, submission.request, absl::Minutes(10)));
  if (invocation.json()) {
    invocation.PrintJson(reply.plan());
  } else {
    PrintPlan(invocation.terminal(), FromProto(reply.plan()), submission.spec);
  }
  return kDone;
}

}  // namespace

void AddSubmitCommands(Program& program) {
  const auto [submit, of_submit] = program.AddCommand(
      "submit",
      "Check a run file and its data, upload what the coordinator lacks, start the run and print "
      "its id",
      Submit);
  AddRunFile(submit, *of_submit)->required(false);
  submit->add_flag(
      "--watch", of_submit->watch,
      "Stay and show the run; exit 0 when it is done, 1 when it failed or was stopped. "
      "Ctrl-C leaves it running");
  CLI::Option* const resume = submit->add_flag(
      "--resume", of_submit->resume,
      "Go on with the newest unfinished run of that name, or with more steps with the newest that "
      "is "
      "done: same id, from its newest checkpoint that is whole; events say if a newer one is "
      "damaged");
  submit
      ->add_option("--from-step", of_submit->from_step,
                   "With --resume: from the checkpoint of this step and no other; newer ones are "
                   "given up")
      ->type_name("STEP")
      ->check(WholeNumber())
      ->needs(resume);
  submit
      ->add_option("--from-checkpoint", of_submit->from_checkpoint,
                   "Begin a new run from a checkpoint that another coordinator's run left in "
                   "checkpoint.to: the newest in the run's folder, such as s3://bucket/prefix/RUN, "
                   "or the one in RUN/step-50. Without FILE, with the run file of that run")
      ->type_name("ADDRESS")
      ->excludes(resume);
  AddRequestId(submit, &of_submit->request_id);
  submit->parse_complete_callback([of_submit = of_submit] {
    if (of_submit->file.empty() && of_submit->from_checkpoint.empty()) {
      throw CLI::RequiredError("FILE");
    }
  });

  const auto [plan, of_plan] =
      program.AddCommand("plan",
                         "Show where a run's layers would go, how deep its pipeline is and why, "
                         "the predicted step time "
                         "and what bounds it, and what other codecs would do, without starting it",
                         ShowPlan);
  AddRunFile(plan, *of_plan);
  plan->add_flag("--show-config", of_plan->show_config,
                 "Print the run file with every default written out; needs no coordinator");
  plan->add_option("--rate", of_plan->rate,
                   "Assume this rate of every worker's line, each way, whatever was measured; "
                   "such as 100mbit")
      ->type_name("RATE");
  plan->add_option("--delay", of_plan->delay,
                   "Assume this one-way delay of every link, whatever was measured; such as 25ms")
      ->type_name("TIME");
}

}  // namespace longhaul::cli
