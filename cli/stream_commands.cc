// `longhaul logs` and `longhaul events`.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/format.h"
#include "cli/patience.h"
#include "cli/program.h"

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

// How long the coordinator may be away from a stream that is followed, and between two tries.
constexpr absl::Duration kStreamPatience = absl::Minutes(5);
constexpr absl::Duration kStreamPause = absl::Milliseconds(500);

// Hands each row of a stream to `take`, once. Where there are several coordinators, a stream that
// is followed goes on with the next one, which has the rows of the one before it.
template <class Request, class Row>
Status EachRow(Invocation& invocation, Client& client,
               std::unique_ptr<grpc::ClientReader<Row>> (v1::ControlService::Stub::*method)(
                   grpc::ClientContext*, const Request&),
               const Request& request, const std::function<void(const Row&)>& take) {
  std::optional<uint64_t> newest;  // the row that was taken last
  Patience patience(kStreamPatience);
  while (true) {
    const std::optional<uint64_t> known = newest;
    Status status = client.Each<Request, Row>(method, request, [&](const Row& row) {
      patience.Heard();
      if (known && row.sequence() <= *known) return true;
      newest = row.sequence();
      take(row);
      return true;
    });
    if (!absl::IsUnavailable(status) || !request.follow() || client.alone()) return status;
    const bool known_away = patience.is_away();
    if (!patience.Lasts(Now())) return status;
    if (!known_away) {
      invocation.terminal().err << fmt::format(
                                       "the coordinator is away; trying {} for up to {}...\n",
                                       absl::StrJoin(client.access().addresses, ", "),
                                       longhaul::FormatDuration(patience.limit()))
                                << std::flush;
    }
    if (invocation.interrupt().WaitFor(kStreamPause)) return absl::CancelledError("interrupted");
  }
}

StatusOr<int> ShowLogs(Invocation& invocation, const StreamOptions& options) {
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  v1::LogsRequest request;
  request.set_run(options.run);
  request.set_follow(options.follow);
  const Terminal& terminal = invocation.terminal();
  LH_RETURN_IF_ERROR((EachRow<v1::LogsRequest, v1::LogEntry>(
      invocation, *client, &v1::ControlService::Stub::ListLogs, request,
      [&](const v1::LogEntry& entry) {
        if (invocation.json()) {
          invocation.PrintJsonLine(entry);
          return;
        }
        const v1::LogLine& line = entry.line();
        terminal.out << fmt::format(
            "{} {} {} {}\n", TimeText(line.unix_ms(), terminal.out_is_terminal),
            Printable(entry.worker_name()),
            Styled(Printable(line.level()), LevelStyle(line.level()), terminal.colour),
            Printable(line.text()));
        if (options.follow) terminal.out.flush();
      })));
  return kDone;
}

StatusOr<int> ShowEvents(Invocation& invocation, const StreamOptions& options) {
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  v1::EventsRequest request;
  request.set_run(options.run);
  request.set_follow(options.follow);
  const Terminal& terminal = invocation.terminal();
  LH_RETURN_IF_ERROR((EachRow<v1::EventsRequest, v1::Event>(
      invocation, *client, &v1::ControlService::Stub::ListEvents, request,
      [&](const v1::Event& event) {
        if (invocation.json()) {
          invocation.PrintJsonLine(event);
          return;
        }
        const std::string run = options.run.empty() ? Printable(event.run_id()) + " " : "";
        terminal.out << fmt::format("{} {}{:<10} {}\n",
                                    TimeText(event.unix_ms(), terminal.out_is_terminal), run,
                                    Printable(event.kind()), Printable(event.text()));
        if (options.follow) terminal.out.flush();
      })));
  return kDone;
}

}  // namespace

void AddStreamCommands(Program& program) {
  const auto [logs, of_logs] =
      program.AddCommand("logs", "Print what the workers of a run logged about it", ShowLogs);
  AddRunArgument(logs, &of_logs->run);
  logs->add_flag("-f,--follow", of_logs->follow, "Go on with new lines as they come");

  const auto [events, of_events] = program.AddCommand(
      "events", "Print what happened to a run: states, workers, checkpoints, links", ShowEvents);
  events->add_option("RUN", of_events->run,
                     "The run's id, or a name: its newest run; without it, events of all runs");
  events->add_flag("-f,--follow", of_events->follow, "Go on with new events as they come");
}

}  // namespace longhaul::cli
