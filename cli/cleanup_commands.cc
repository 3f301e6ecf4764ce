// `longhaul rm` and `gc`: what a coordinator need not keep.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "base/flags/command_line.h"
#include "base/units.h"
#include "cli/format.h"
#include "cli/once.h"
#include "cli/program.h"

namespace longhaul::cli {
namespace {

// Blobs are looked through, and some deleted, while the caller waits.
constexpr absl::Duration kGarbageLimit = absl::Minutes(10);

struct RemoveOptions {
  std::string run, request_id;
};

StatusOr<int> RemoveRun(Invocation& invocation, const RemoveOptions& options) {
  v1::RemoveRunRequest request;
  request.set_run(options.run);
  LH_ASSIGN_OR_RETURN(const v1::RemoveRunReply reply,
                      AskOnce(invocation, &v1::ControlService::Stub::RemoveRun, request,
                              options.request_id, "whether the run was removed"));
  NoteRepeated(invocation.terminal(), reply.stored());
  if (invocation.json()) {
    invocation.PrintJson(reply);
    return kDone;
  }
  const std::string id = Printable(reply.run_id());
  const Terminal& terminal = invocation.terminal();
  terminal.out << fmt::format("{} is removed, with its checkpoints\n", id);
  if (!reply.stored_in().empty()) {
    terminal.out << fmt::format("copies in {} stay; delete them there\n",
                                Printable(reply.stored_in()));
  }
  if (!reply.away().empty()) {
    terminal.out << fmt::format(
        "not connected, and so left with files of it: {}; there delete checkpoints/{} and "
        "messages/{} in the state directory\n",
        Printable(absl::StrJoin(reply.away(), ", ")), id, id);
  }
  return kDone;
}

struct GarbageOptions {
  bool dry_run = false;
  std::string ended = "30d";
  std::string unnamed = "24h";
  uint64_t keep_steps = 10'000;
};

StatusOr<int> CollectGarbage(Invocation& invocation, const GarbageOptions& options) {
  LH_ASSIGN_OR_RETURN(const absl::Duration ended, ParseDuration(options.ended));
  LH_ASSIGN_OR_RETURN(const absl::Duration unnamed, ParseDuration(options.unnamed));
  v1::CollectGarbageRequest request;
  request.set_dry_run(options.dry_run);
  request.set_ended_seconds(absl::ToDoubleSeconds(ended));
  request.set_keep_steps(options.keep_steps);
  request.set_unnamed_seconds(absl::ToDoubleSeconds(unnamed));
  LH_ASSIGN_OR_RETURN(
      const v1::CollectGarbageReply reply,
      invocation.Get(&v1::ControlService::Stub::CollectGarbage, request, kGarbageLimit));
  if (invocation.json()) {
    invocation.PrintJson(reply);
    return kDone;
  }
  const Terminal& terminal = invocation.terminal();
  const auto size = [](uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); };
  for (const v1::CollectGarbageReply::Checkpoint& one : reply.checkpoints()) {
    terminal.out << fmt::format("checkpoint of step {} of {} ({})\n", one.step(),
                                Printable(one.run_id()), size(one.bytes()));
  }
  terminal.out << fmt::format(
      "{} {} checkpoints, {} step records, {} blobs ({}), {} copies of shards ({})\n",
      options.dry_run ? "would delete" : "deleted", reply.checkpoints_size(), reply.step_records(),
      reply.blobs(), size(reply.blob_bytes()), reply.copies(), size(reply.copy_bytes()));
  if (!reply.blobs_kept_because().empty()) {
    terminal.out << "all blobs and copies stay: " << PrintableLines(reply.blobs_kept_because())
                 << '\n';
  }
  return kDone;
}

}  // namespace

void AddCleanupCommands(Program& program) {
  const auto [rm, of_rm] =
      program.AddCommand("rm", "Forget a run that has ended, with its checkpoints", RemoveRun);
  AddRunArgument(rm, &of_rm->run);
  AddRequestId(rm, &of_rm->request_id);
  rm->footer("Its steps, events and logs go, too, and it cannot be resumed or exported.");

  const auto [gc, options] =
      program.AddCommand("gc", "Delete what no run needs; for admins", CollectGarbage);
  gc->add_flag("--dry-run", options->dry_run, "Say what would be deleted, and delete nothing");
  gc->add_option(
        "--ended", options->ended,
        "Delete checkpoints that no resume takes, and old step records, of runs that ended at "
        "least this long ago")
      ->type_name("TIME")
      ->capture_default_str();
  gc->add_option("--unnamed", options->unnamed,
                 "Delete data that no run names and that was uploaded, or asked for, at least this "
                 "long ago; with less than an upload and its submission take, they have to begin "
                 "anew")
      ->type_name("TIME")
      ->capture_default_str();
  gc->add_option("--keep-steps", options->keep_steps,
                 "Number of newest step records of each run that stay")
      ->type_name("N")
      ->check(WholeNumber())
      ->capture_default_str();
  gc->footer(
      "Besides, uploaded data and copies of shards that no run names. Every run can be resumed as "
      "before.");
}

}  // namespace longhaul::cli
