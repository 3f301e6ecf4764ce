// `longhaul ps`, `status`, `stop` and `replicas`.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/flags/command_line.h"
#include "cli/format.h"
#include "cli/leadership_view.h"
#include "cli/once.h"
#include "cli/program.h"
#include "cli/table.h"
#include "cli/watch_view.h"

namespace longhaul::cli {
namespace {

struct ListOptions {
  std::optional<uint32_t> ended;
};
struct StopOptions {
  std::string run, request_id;
  bool now = false;
};
struct ReplicasOptions {
  std::string run, request_id;
  uint32_t replicas = 0;
};

// A table of thousands of old runs helps nobody, and programs read JSON.
constexpr uint32_t kEndedInATable = 50;

StatusOr<int> ListRuns(Invocation& invocation, const ListOptions& options) {
  v1::ListRunsRequest request;
  if (options.ended) {
    request.set_most_ended(*options.ended);
  } else if (!invocation.json()) {
    request.set_most_ended(kEndedInATable);
  }
  LH_ASSIGN_OR_RETURN(const v1::ListRunsReply reply,
                      invocation.Get(&v1::ControlService::Stub::ListRuns, request));
  const Terminal& terminal = invocation.terminal();
  if (invocation.json()) {
    invocation.PrintJson(reply);
    return kDone;
  }
  if (reply.runs().empty() && reply.ended_left_out() == 0 && terminal.out_is_terminal) {
    terminal.out << "No runs yet. Start one with: longhaul submit run.yaml\n";
    return kDone;
  }
  const bool replicas = std::ranges::any_of(
      reply.runs(), [](const v1::RunStatus& run) { return !ReplicasText(run).empty(); });
  std::vector<Column> columns = {{"RUN"},
                                 {"STATE"},
                                 {"STEP", Align::kRight},
                                 {"LOSS", Align::kRight},
                                 {"TOKENS/S", Align::kRight},
                                 {"LEFT", Align::kRight},
                                 {"STAGES", Align::kRight}};
  if (replicas) columns.push_back({"REPLICAS", Align::kRight});
  columns.insert(columns.end(), {{"SUBMITTED"}, {"REASON"}});
  Table table(std::move(columns));
  for (const v1::RunStatus& run : reply.runs()) {
    const double rate = run.tokens_per_second();
    std::vector<TableCell> row = {
        run.run_id(),
        TableCell(run.state(), StateStyle(run.state())),
        StepText(run),
        run.step() > 0 ? RunLossText(run) : "",
        rate > 0 ? GroupedText(rate) : "",
        SecondsText(run.seconds_left()),
        run.stages_size() > 0 ? fmt::format("{}", run.stages_size()) : ""};
    if (replicas) row.emplace_back(ReplicasText(run));
    row.emplace_back(TimeText(run.submitted_unix_ms(), terminal.out_is_terminal));
    row.emplace_back(run.reason());
    table.AddRow(std::move(row));
  }
  table.Print(terminal);
  if (reply.ended_left_out() > 0) {
    const uint64_t listed = uint64_t{request.most_ended()} + reply.ended_left_out();
    terminal.err << fmt::format("{} older runs have ended; longhaul ps --ended {} lists all\n",
                                reply.ended_left_out(), listed);
  }
  return kDone;
}

void WarnIfInsecure(const Terminal& terminal, const Client& client) {
  if (!client.access().insecure) return;
  terminal.err << "INSECURE: the coordinator at " << client.address()
               << " talks without encryption (--insecure); whoever sees its traffic has its token"
               << std::endl;
}

StatusOr<int> ShowStatus(Invocation& invocation, const std::string& run_or_name) {
  if (run_or_name.empty()) return ShowLeadership(invocation);
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  LH_ASSIGN_OR_RETURN(const v1::RunStatus run, client->GetRun(run_or_name));
  if (invocation.json()) {
    invocation.PrintJson(run);
  } else {
    WarnIfInsecure(invocation.terminal(), *client);
    PrintStatus(invocation.terminal(), run);
  }
  return kDone;
}

StatusOr<int> Stop(Invocation& invocation, const StopOptions& options) {
  v1::StopRequest request;
  request.set_run(options.run);
  request.set_now(options.now);
  LH_ASSIGN_OR_RETURN(const v1::StopReply reply,
                      AskOnce(invocation, &v1::ControlService::Stub::StopRun, request,
                              options.request_id, "whether the run is being stopped"));
  NoteRepeated(invocation.terminal(), reply.stored());
  return invocation.PrintReply(reply, reply.message());
}

StatusOr<int> SetReplicas(Invocation& invocation, const ReplicasOptions& options) {
  v1::ReplicasRequest request;
  request.set_run(options.run);
  request.set_replicas(options.replicas);
  LH_ASSIGN_OR_RETURN(const v1::ReplicasReply reply,
                      AskOnce(invocation, &v1::ControlService::Stub::SetReplicas, request,
                              options.request_id, "whether the number of replicas was set"));
  return invocation.PrintReply(reply, reply.message());
}

}  // namespace

void AddRunCommands(Program& program) {
  const auto [list, of_list] = program.AddCommand("ps", "List runs, newest first", ListRuns);
  list->add_option("--ended", of_list->ended,
                   fmt::format("How many runs that have ended to list, the newest; without it, {} "
                               "in a table and all with --json",
                               kEndedInATable))
      ->type_name("N")
      ->check(WholeNumber());

  const auto [status, of_status] = program.AddCommand(
      "status",
      "Show all about a run: why it waits or failed and what to do; without RUN, which coordinator "
      "leads and what its standby and witness have",
      ShowStatus);
  AddRunArgument(status, of_status);
  status->get_option("RUN")->required(false);

  const auto [stop, of_stop] = program.AddCommand(
      "stop", "Stop a run after the step under way, with a checkpoint to resume from", Stop);
  AddRunArgument(stop, &of_stop->run);
  stop->add_flag("--now", of_stop->now,
                 "At once, without a checkpoint: what was trained since the last one is lost");
  AddRequestId(stop, &of_stop->request_id);

  const auto [replicas, of_replicas] = program.AddCommand(
      "replicas", "Let a run go on with another number of replicas, from its next steps on",
      SetReplicas);
  AddRunArgument(replicas, &of_replicas->run);
  replicas->add_option("N", of_replicas->replicas, "How many replicas are to train")
      ->required()
      ->check(WholeNumber());
  AddRequestId(replicas, &of_replicas->request_id);
  replicas->footer(
      "More begin when enough workers are free. train.microbatches is that of one replica, so the "
      "steps\nto come read more or fewer sequences; the learning rate stays.");
}

}  // namespace longhaul::cli
