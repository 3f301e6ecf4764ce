// `longhaul logs` and `longhaul events`.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "coordinator/cli/format.h"
#include "coordinator/cli/program.h"

namespace longhaul::cli {
namespace {

struct StreamOptions {
  std::string run;
  bool follow = false;
};

Style LevelStyle(const std::string& level) {
  if (level == "error" || level == "critical") return Style::kRed;
  return level == "warn" || level == "warning" ? Style::kYellow : Style::kPlain;
}

StatusOr<int> ShowLogs(Invocation& invocation, const StreamOptions& options) {
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  v1::LogsRequest request;
  request.set_run(options.run);
  request.set_follow(options.follow);
  const Terminal& terminal = invocation.terminal();
  LH_RETURN_IF_ERROR((client->Each<v1::LogsRequest, v1::LogEntry>(
      &v1::ControlService::Stub::ListLogs, request, [&](const v1::LogEntry& entry) {
        if (invocation.json()) {
          invocation.PrintJsonLine(entry);
          return true;
        }
        const v1::LogLine& line = entry.line();
        terminal.out << fmt::format(
            "{} {} {} {}\n", TimeText(line.unix_ms(), terminal.out_is_terminal),
            Printable(entry.worker_name()),
            Styled(Printable(line.level()), LevelStyle(line.level()), terminal.colour),
            Printable(line.text()));
        if (options.follow) terminal.out.flush();
        return true;
      })));
  return kDone;
}

StatusOr<int> ShowEvents(Invocation& invocation, const StreamOptions& options) {
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  v1::EventsRequest request;
  request.set_run(options.run);
  request.set_follow(options.follow);
  const Terminal& terminal = invocation.terminal();
  LH_RETURN_IF_ERROR((client->Each<v1::EventsRequest, v1::Event>(
      &v1::ControlService::Stub::ListEvents, request, [&](const v1::Event& event) {
        if (invocation.json()) {
          invocation.PrintJsonLine(event);
          return true;
        }
        const std::string run = options.run.empty() ? Printable(event.run_id()) + " " : "";
        terminal.out << fmt::format("{} {}{:<10} {}\n",
                                    TimeText(event.unix_ms(), terminal.out_is_terminal), run,
                                    Printable(event.kind()), Printable(event.text()));
        if (options.follow) terminal.out.flush();
        return true;
      })));
  return kDone;
}

}  // namespace

void AddStreamCommands(Program& program) {
  const auto logs = std::make_shared<StreamOptions>();
  CLI::App* command =
      program.AddCommand("logs", "Print what the workers of a run logged about it",
                         [logs](Invocation& invocation) { return ShowLogs(invocation, *logs); });
  command->add_option("RUN", logs->run, "The run's id, or a name: its newest run")->required();
  command->add_flag("-f,--follow", logs->follow, "Go on with new lines as they come");

  const auto events = std::make_shared<StreamOptions>();
  command = program.AddCommand(
      "events", "Print what happened to a run: states, workers, checkpoints, links",
      [events](Invocation& invocation) { return ShowEvents(invocation, *events); });
  command->add_option("RUN", events->run,
                      "The run's id, or a name: its newest run; without it, events of all runs");
  command->add_flag("-f,--follow", events->follow, "Go on with new events as they come");
}

}  // namespace longhaul::cli
