#include "cli/watch.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/format.h"
#include "cli/patience.h"
#include "cli/samples.h"
#include "cli/watch_view.h"

namespace longhaul::cli {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(5);
constexpr absl::Duration kFirstRetry = absl::Milliseconds(500);
constexpr absl::Duration kLongestRetry = absl::Seconds(5);

// What follows a stream of states onto the terminal.
class View {
 public:
  explicit View(Invocation& invocation)
      : invocation_(invocation), terminal_(invocation.terminal()) {}

  void Show(const v1::RunStatus& run) {
    const bool news = !seen_ || HasNews(last_, run);
    if (invocation_.json()) {
      invocation_.PrintJsonLine(run);
    } else if (terminal_.out_is_terminal) {
      Redraw(run);
    } else if (news) {
      terminal_.out << PlainWatchLine(run, absl::ToUnixMillis(absl::Now())) << std::endl;
      if (HasNewSamples(last_, run)) {
        for (const std::string& line : SampleLines(*run.samples().rbegin(), 0)) {
          terminal_.out << "  " << line << std::endl;
        }
      }
    }
    last_ = run;
    seen_ = true;
  }
  // Below the view; the next Show draws a new one.
  void Note(const std::string& text) {
    drawn_ = 0;
    terminal_.err << text << std::endl;
  }
  bool seen() const { return seen_; }
  const v1::RunStatus& last() const { return last_; }

 private:
  void Redraw(const v1::RunStatus& run) {
    const WindowSize size = terminal_.size();
    std::vector<std::string> lines = WatchLines(run, size.columns, terminal_.colour);
    // What scrolled out of the window could not be redrawn.
    lines.resize(std::min(lines.size(), static_cast<size_t>(std::max(size.rows - 1, 1))));
    std::string text = drawn_ > 0 ? fmt::format("\033[{}A\r\033[J", drawn_) : "";
    for (const std::string& line : lines) text += line + "\n";
    terminal_.out << text << std::flush;
    drawn_ = lines.size();
  }

  Invocation& invocation_;
  const Terminal& terminal_;
  v1::RunStatus last_;
  bool seen_ = false;
  size_t drawn_ = 0;
};

int Ending(Invocation& invocation, View& view) {
  const v1::RunStatus& run = view.last();
  if (run.state() == "done") return kDone;
  if (!invocation.json()) {
    view.Note(fmt::format("{} {} at step {}. {}", Printable(run.run_id()), run.state(),
                          StepText(run), Advice(run)));
  }
  return kFailed;
}

int Interrupted(View& view, const std::string& run) {
  const std::string id = Printable(view.seen() ? view.last().run_id() : run);
  view.Note(
      fmt::format("Interrupted; {0} goes on without you. `longhaul watch {0}` shows it again, "
                  "`longhaul stop {0}` stops it.",
                  id));
  return kInterrupted;
}

// Worth another try, once the run has been seen: the coordinator is away.
bool IsAway(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

StatusOr<int> WatchRun(Invocation& invocation, Client& client, const std::string& run) {
  View view(invocation);
  v1::RunRequest request;
  request.set_run(run);
  Patience patience(kPatience);
  absl::Duration retry = kFirstRetry;
  while (true) {
    const Status status = client.Each<v1::RunRequest, v1::RunStatus>(
        &v1::ControlService::Stub::WatchRun, request, [&](const v1::RunStatus& next) {
          // A name means its newest run; stay with the one that was shown first.
          request.set_run(next.run_id());
          patience.Heard();
          retry = kFirstRetry;
          view.Show(next);
          return true;
        });
    if (invocation.interrupt().fired()) return Interrupted(view, run);
    if (view.seen() && HasEnded(view.last())) return Ending(invocation, view);
    if (!status.ok() && (!view.seen() || !IsAway(status))) return status;
    const bool known_away = patience.is_away();
    const bool lasts = patience.Lasts(Now());
    if (!status.ok() && !lasts) return status;
    if (!known_away) {
      view.Note(
          fmt::format("the coordinator at {} is away; the workers train on. Trying again for "
                      "up to {}...",
                      client.address(), longhaul::FormatDuration(patience.limit())));
    }
    if (invocation.interrupt().WaitFor(retry)) return Interrupted(view, run);
    client.AwaitConnection(absl::Seconds(1));
    retry = std::min(2 * retry, kLongestRetry);
  }
}

void AddWatchCommand(Program& program) {
  const auto [command, run] = program.AddCommand(
      "watch", "Show a run while it trains; Ctrl-C leaves it running",
      +[](Invocation& invocation, const std::string& run_or_name) -> StatusOr<int> {
        LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
        return WatchRun(invocation, *client, run_or_name);
      });
  AddRunArgument(command, run);
  command->footer(
      "Step, losses, tokens/s, time left, what every stage and every link waits for, redrawn in\n"
      "place; on a pipe one line a step. OUT and IN: of the planned rate of a worker's interface.\n"
      "A link waits for its sender (compute, codec, input), for an interface (egress of the "
      "sender,\n"
      "ingress of the receiver) or for the receiver's credits. Exit codes: 0 the run is done,\n"
      "1 it failed or was stopped, 2 wrong usage, 130 interrupted.");
}

}  // namespace longhaul::cli
