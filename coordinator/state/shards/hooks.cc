#include "coordinator/state/shards/hooks.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

namespace {

// How often workers are asked for the parameters of one checkpoint.
constexpr int kMostTries = 3;
// Lines of the program's output in the run's log.
constexpr size_t kMostLines = 1000, kLongestLine = 2000;
constexpr std::string_view kLogName = "hook";  // in place of a worker's name

// The last line that is not empty.
std::string LastLine(std::string_view output) {
  while (!output.empty() && (output.back() == '\n' || output.back() == '\r')) {
    output.remove_suffix(1);
  }
  const size_t end = output.rfind('\n');
  return Quoted(end == output.npos ? output : output.substr(end + 1));
}

std::vector<std::string_view> LinesOf(std::string_view output) {
  std::vector<std::string_view> lines;
  while (!output.empty()) {
    const size_t end = output.find('\n');
    lines.push_back(output.substr(0, end));
    output.remove_prefix(end == output.npos ? output.size() : end + 1);
  }
  if (lines.size() > kMostLines) lines.erase(lines.begin(), lines.end() - kMostLines);
  return lines;
}

}  // namespace

Hooks::Hooks(Ledger& ledger, Shards& shards) : ledger_(ledger), shards_(shards) {
  shards_.WhenDone(ShardCheck::Purpose::kHook,
                   [this](Run& run, const ShardCheck& check, const std::string& failure) {
                     OfRun& of = of_[run];
                     if (check.step == of.gathering && !failure.empty()) of.problem = failure;
                   });
}

Status Hooks::CheckAllowed(const StateOptions& options, const RunSpec& spec,
                           const Submitter& submitter) {
  if (spec.hooks.on_checkpoint.empty()) return absl::OkStatus();
  if (!options.allow_hooks) {
    return absl::FailedPreconditionError(
        "hooks.on_checkpoint: this coordinator runs no programs for run files; start "
        "longhaul-coordinator with --allow-hooks, or leave the hook out");
  }
  if (submitter.may_all) return absl::OkStatus();
  return PermissionDenied(
      "hooks.on_checkpoint: {} is no admin, and a hook may do what the coordinator may do; ask an "
      "admin to submit the run, or leave the hook out",
      submitter.name);
}

void Hooks::OnCommit(const Run& run, uint64_t step) {
  if (run.record.spec.hooks.on_checkpoint.empty()) return;
  if (!ledger_.options().allow_hooks) {
    ledger_.Log(&run, "hook",
                "the checkpoint of step {} gets no hook: this coordinator was started without "
                "--allow-hooks",
                step);
    return;
  }
  OfRun& of = of_[run];
  if (of.waiting > 0) {
    ledger_.Log(&run, "hook", "the checkpoint of step {} gets no hook: that of step {} is newer",
                of.waiting, step);
  }
  of.waiting = step;
}

void Hooks::On(const event::HookEnded& ended) {
  const Run* const run = ledger_.FindRun(ended.run);
  if (run == nullptr) return;  // removed meanwhile
  OfRun& of = of_[*run];
  if (of.running != ended.step) return;
  of.running = 0;
  for (const std::string_view line : LinesOf(ended.output)) {
    v1::LogLine log;
    log.set_unix_ms(ledger_.unix_ms());
    log.set_level("info");
    log.set_text(Printable(line, kLongestLine));
    ledger_.Write(write::WorkerLog{run->record.id, std::string(kLogName), std::move(log)});
  }
  const std::string last = LastLine(ended.output);
  ledger_.Log(run, "hook", "the hook on the checkpoint of step {} {}{}{}", ended.step,
              Quoted(ended.how), last.empty() ? "" : ": ", last);
}

void Hooks::Advance() {
  for (const Run* run : ledger_.WithCheckpointWork()) {
    if (!run->record.spec.hooks.on_checkpoint.empty()) Advance(*run, of_[*run]);
  }
}

void Hooks::Advance(const Run& run, OfRun& of) {
  if (of.running > 0) return;
  if (of.waiting > 0 && !shards_.book().IsGatheringForHook(run.record.id)) {
    if (of.gathering > 0) {
      ledger_.Log(&run, "hook", "the checkpoint of step {} gets no hook: that of step {} is newer",
                  of.gathering, of.waiting);
    }
    of = {.gathering = of.waiting};
  }
  if (of.gathering > 0) Gather(run, of);
}

void Hooks::Gather(const Run& run, OfRun& of) {
  const ShardBook& book = shards_.book();
  const RunId& id = run.record.id;
  // With checkpoint.keep_copy the parameters come anyway.
  if (book.IsGatheringForHook(id) || book.IsCopying(id, of.gathering)) return;
  const v1::CheckpointManifest* const manifest = FindCheckpoint(run.record, of.gathering);
  std::vector<v1::CheckpointFile> all, missing;
  if (manifest != nullptr) {
    for (const v1::CheckpointFile& file : manifest->files()) {
      if (!HoldsParameters(file)) continue;
      all.push_back(file);
      if (!IsCopied(file)) missing.push_back(file);
    }
  }
  const bool is_lost = manifest == nullptr || all.empty();
  if (is_lost || (!missing.empty() && of.tries == kMostTries)) {
    ledger_.Log(&run, "hook", "the checkpoint of step {} gets no hook: {}", of.gathering,
                is_lost ? "it was dropped meanwhile" : of.problem);
    of = {.waiting = of.waiting};
    return;
  }
  if (!missing.empty()) {
    shards_.AskForCopies(run, of.gathering, missing, ShardCheck::Purpose::kHook);
    if (book.IsGatheringForHook(id)) {
      ++of.tries;
    } else if (!std::exchange(of.waits, true)) {
      ledger_.Log(&run, "hook",
                  "the hook on the checkpoint of step {} waits for {}, which holds {}",
                  of.gathering, HoldersText(missing.front()), missing.front().name());
    }
    return;
  }
  ledger_.Do(command::RunHook{.run = id,
                              .step = of.gathering,
                              .spec = run.record.spec,
                              .vocabulary = run.assignment().data.vocabulary,
                              .files = std::move(all)});
  ledger_.Log(&run, "hook", "the hook runs on the checkpoint of step {}", of.gathering);
  of = {.waiting = of.waiting, .running = of.gathering};
}

}  // namespace longhaul::coordinator
