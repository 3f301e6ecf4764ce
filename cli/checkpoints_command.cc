// `longhaul checkpoints`.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/time/clock.h"
#include "base/units.h"
#include "cli/format.h"
#include "cli/program.h"
#include "cli/table.h"

namespace longhaul::cli {
namespace {

struct CheckpointsOptions {
  std::string run;
  bool verify = false;
};

// Hashing a checkpoint reads all of it, on the workers' disks.
constexpr absl::Duration kVerifyLimit = absl::Hours(1);

std::string AgeText(int64_t unix_ms) {
  if (unix_ms <= 0) return "";
  const absl::Duration age = absl::Now() - absl::FromUnixMillis(unix_ms);
  return longhaul::FormatDuration(std::max(age, absl::ZeroDuration())) + " ago";
}

// "worker1 worker2 + coordinator": who has the shards.
std::string WhereText(const v1::CheckpointStatus& checkpoint) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  int copies = 0;
  std::map<std::string, int> stored;  // files by folder of an object store
  for (const v1::ShardStatus& shard : checkpoint.shards()) {
    copies += shard.copied() ? 1 : 0;
    for (const v1::ShardHolderStatus& holder : shard.holders()) {
      if (holder.worker_id().find("://") != std::string::npos) {
        ++stored[Printable(holder.worker_id())];
        continue;
      }
      if (holder.worker_id().empty() || !seen.insert(holder.worker_id()).second) continue;
      names.push_back(holder.worker_name() + (holder.connected() ? "" : " (not connected)"));
    }
  }
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  if (copies > 0 && copies == checkpoint.shards_size()) {
    text += "; copy at the coordinator";
  } else if (copies > 0) {
    text += fmt::format("; copies of {} of {} files at the coordinator", copies,
                        checkpoint.shards_size());
  }
  for (const auto& [folder, files] : stored) {
    if (!text.empty()) text += "; ";
    text += files == checkpoint.shards_size()
                ? folder
                : fmt::format("{} of {} files in {}", files, checkpoint.shards_size(), folder);
  }
  return text;
}

Style StyleOf(const std::string& state) {
  if (state == "damaged") return Style::kRed;
  return state == "whole" ? Style::kGreen : Style::kPlain;
}

void Print(const Terminal& terminal, const v1::CheckpointsReply& reply) {
  if (reply.checkpoints().empty()) {
    if (terminal.out_is_terminal) {
      terminal.out << "No checkpoint of " << Printable(reply.run_id()) << " was committed yet.\n";
    }
    return;
  }
  Table table({{"STEP", Align::kRight},
               {"COMMITTED"},
               {"AGE"},
               {"SIZE", Align::kRight},
               {"LAYERS"},
               {"STATE"},
               {"WHERE"},
               {"DETAIL"}});
  for (const v1::CheckpointStatus& one : reply.checkpoints()) {
    table.AddRow({fmt::format("{}", one.step()),
                  TimeText(one.committed_unix_ms(), terminal.out_is_terminal),
                  AgeText(one.committed_unix_ms()), FormatBytes(static_cast<double>(one.bytes())),
                  fmt::format("{}", fmt::join(one.layers(), "+")),
                  TableCell(one.state(), StyleOf(one.state())), WhereText(one), one.detail()});
  }
  table.Print(terminal);
}

StatusOr<int> ListCheckpoints(Invocation& invocation, const CheckpointsOptions& options) {
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  v1::CheckpointsRequest request;
  request.set_run(options.run);
  request.set_verify(options.verify);
  if (options.verify && invocation.terminal().err_is_terminal) {
    invocation.terminal().err << "the workers hash their shards..." << std::endl;
  }
  LH_ASSIGN_OR_RETURN(const v1::CheckpointsReply reply,
                      client->Get(&v1::ControlService::Stub::ListCheckpoints, request,
                                  options.verify ? kVerifyLimit : absl::Seconds(30)));
  if (invocation.json()) {
    invocation.PrintJson(reply);
  } else {
    Print(invocation.terminal(), reply);
  }
  if (!options.verify) return kDone;
  for (const v1::CheckpointStatus& one : reply.checkpoints()) {
    if (one.state() != "whole") return kFailed;
  }
  return kDone;
}

}  // namespace

void AddCheckpointsCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "checkpoints", "List a run's checkpoints: step, age, size, split, where they are, state",
      ListCheckpoints);
  AddRunArgument(command, &options->run);
  command->add_flag("--verify", options->verify,
                    "Have the workers and the coordinator hash what they hold; exit 1 unless every "
                    "checkpoint is whole");
  command->footer(
      "whole: every shard was hashed just now; committed: nothing speaks against it; unreachable: "
      "the\nonly file of a shard is on a worker that is not connected; damaged: a shard is nowhere "
      "whole.\nOf files in an object store only names and sizes are looked at; their hashes are "
      "checked when they\nare fetched.");
}

}  // namespace longhaul::cli
