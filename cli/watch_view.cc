#include "cli/watch_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "cli/format.h"
#include "cli/samples.h"
#include "cli/table.h"
#include "run/plan/plan.h"

namespace longhaul::cli {
namespace {

std::string Bar(double share, int columns) {
  const int inside = std::max(columns - 2, 0);
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * inside);
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(inside - full), '.') + "]";
}

std::string Title(const v1::RunStatus& run, bool colour) {
  std::string line = fmt::format("{}  {}", Styled(Printable(run.run_id()), Style::kBold, colour),
                                 Styled(run.state(), StateStyle(run.state()), colour));
  if (!run.schedule().empty()) line += "  " + Printable(run.schedule());
  if (run.epoch() > 0) line += fmt::format("  epoch {}", run.epoch());
  if (run.checkpoint_step() > 0) line += fmt::format("  checkpoint {}", run.checkpoint_step());
  return line;
}

// "2.5 (step 50)", or "2.5, clean 2.4 (step 50)".
std::string ValidationText(const v1::RunStatus& run) {
  std::string clean;
  if (run.has_clean_validation_loss()) {
    clean = fmt::format(", clean {}", LossText(run.clean_validation_loss()));
  }
  return fmt::format("{}{} (step {})", LossText(run.validation_loss()), clean,
                     run.validation_step());
}

std::string ProgressText(const v1::RunStatus& run, int columns) {
  constexpr int kWidestBar = 40;
  const double share =
      run.steps() == 0 ? 0 : static_cast<double>(run.step()) / static_cast<double>(run.steps());
  std::string text = fmt::format("step {}  {}", StepText(run), PercentText(share));
  if (run.seconds_left() > 0) text += fmt::format("  {} left", SecondsText(run.seconds_left()));
  const int room = std::min(kWidestBar, columns - Columns(text) - 2);
  return room < 6 ? text : Bar(share, room) + "  " + text;
}

// " (floor 2.1 s, bound 2.4 s)": what the busiest resource does in a step, and that with fill and
// drain. Empty where the plan is not there, or of an older version.
std::string FloorText(const v1::RunStatus& run) {
  const v1::Prediction& prediction = run.plan().prediction();
  if (!(prediction.floor_seconds() > 0)) return "";
  return fmt::format(" (floor {}, bound {})", SecondsText(prediction.floor_seconds()),
                     SecondsText(prediction.lower_bound_seconds()));
}

// "loss 2.43  validation 2.5, clean 2.4 (step 50)  1,234 tokens/s ..."; `gap` between them.
std::string Numbers(const v1::RunStatus& run, std::string_view gap) {
  std::vector<std::string> parts;
  if (run.step() > 0) parts.push_back(fmt::format("loss {}", RunLossText(run)));
  if (run.has_validation()) {
    parts.push_back("validation " + ValidationText(run));
  }
  if (run.tokens_per_second() > 0) {
    parts.push_back(fmt::format("{} tokens/s", GroupedText(run.tokens_per_second())));
  }
  if (run.step_seconds() > 0) {
    parts.push_back(fmt::format("{} a step{}", SecondsText(run.step_seconds()), FloorText(run)));
  }
  if (run.gradient_norm() != 0) {
    parts.push_back(fmt::format("gradient norm {:.3g}", run.gradient_norm()));
  }
  std::string line;
  for (const std::string& part : parts) line += (line.empty() ? "" : std::string(gap)) + part;
  return line;
}

bool HasReplicas(const v1::RunStatus& run) {
  return std::ranges::any_of(run.stages(),
                             [](const v1::StageStatus& stage) { return stage.replica() > 0; });
}
std::string NameIn(const v1::RunStatus& run, const v1::StageStatus& stage) {
  return ShortName({stage.replica(), stage.stage()}, HasReplicas(run));
}

Table StageTable(const v1::RunStatus& run) {
  const bool groups = std::ranges::any_of(
      run.stages(), [](const v1::StageStatus& stage) { return stage.tensor_ranks() > 1; });
  std::vector<Column> columns = {{HasReplicas(run) ? "REPLICA:STAGE" : "STAGE", Align::kRight},
                                 {"WORKER"}};
  if (groups) columns.push_back({"GROUP"});
  columns.insert(columns.end(), {{"STATE"},
                                 {"LAYERS", Align::kRight},
                                 {"DEPTH", Align::kRight},
                                 {"STEP", Align::kRight},
                                 {"COMPUTE", Align::kRight},
                                 {"OPTIMIZER", Align::kRight},
                                 {"WAITS FOR INPUT", Align::kRight},
                                 {"FOR GRADIENTS", Align::kRight},
                                 {"FOR CODEC", Align::kRight},
                                 {"OUT", Align::kRight},
                                 {"IN", Align::kRight}});
  Table table(std::move(columns));
  const auto share_text = [](bool known, double share) { return known ? PercentText(share) : ""; };
  for (const v1::StageStatus& stage : run.stages()) {
    const std::string state = stage.connected() ? stage.state() : stage.state() + ", disconnected";
    std::vector<TableCell> row = {NameIn(run, stage), stage.worker_name()};
    if (groups) {
      const std::vector<uint32_t> devices(stage.devices().begin(), stage.devices().end());
      row.emplace_back(stage.tensor_ranks() == 0
                           ? ""  // it has no plan yet
                           : GroupText({stage.tensor_ranks(), std::max(stage.expert_ranks(), 1u)},
                                       stage.device_kind(), devices));
    }
    row.insert(row.end(),
               {TableCell(state, stage.connected() ? StateStyle(stage.state()) : Style::kYellow),
                fmt::format("{}", stage.layers()), fmt::format("{}", stage.depth()),
                fmt::format("{}", stage.step()), PercentText(stage.compute_share()),
                PercentText(stage.optimizer_share()), PercentText(stage.wait_input_share()),
                PercentText(stage.wait_gradient_share()), PercentText(stage.codec_wait_share()),
                share_text(stage.has_egress_share(), stage.egress_share()),
                share_text(stage.has_ingress_share(), stage.ingress_share())});
    table.AddRow(std::move(row));
  }
  return table;
}

// What ranks of a stage exchanged in the last step. Empty where each has one.
Table CollectivesTable(const v1::RunStatus& run) {
  Table table({{"RANKS OF STAGE", Align::kRight},
               {"COLLECTIVES", Align::kRight},
               {"OF THE STEP", Align::kRight},
               {"ALL-REDUCE", Align::kRight},
               {"ALL-GATHER", Align::kRight},
               {"REDUCE-SCATTER", Align::kRight},
               {"ALL-TO-ALL", Align::kRight}});
  const auto bytes = [](uint64_t count) {
    return count == 0 ? "" : FormatBytes(static_cast<double>(count));
  };
  for (const v1::StageStatus& stage : run.stages()) {
    if (!stage.has_collectives()) continue;
    const v1::CollectiveUse& use = stage.collectives();
    table.AddRow({NameIn(run, stage), use.has_seconds() ? SecondsText(use.seconds()) : "?",
                  stage.has_collective_share() ? PercentText(stage.collective_share()) : "?",
                  bytes(use.sent().all_reduce()), bytes(use.sent().all_gather()),
                  bytes(use.sent().reduce_scatter()), bytes(use.sent().all_to_all())});
  }
  return table;
}

// How evenly experts were busy in the last step. Empty where the model has none.
Table ExpertsTable(const v1::RunStatus& run) {
  Table table({{"EXPERTS OF STAGE", Align::kRight},
               {"MOST OVER MEAN", Align::kRight},
               {"IN LAYER", Align::kRight},
               {"MEAN OF LAYERS", Align::kRight}});
  const auto times = [](double ratio) { return fmt::format("{:.2f}x", ratio); };
  for (const v1::StageStatus& stage : run.stages()) {
    if (!stage.has_expert_load()) continue;
    const v1::ExpertLoad& load = stage.expert_load();
    table.AddRow({NameIn(run, stage), times(load.highest()), fmt::format("{}", load.layer()),
                  times(load.mean())});
  }
  return table;
}

Table LinkTable(const v1::RunStatus& run) {
  Table table({{"LINK"},
               {"DIRECTION"},
               {"CODEC"},
               {"RATE", Align::kRight},
               {"GOODPUT", Align::kRight},
               {"OF RATE", Align::kRight},
               {"BUSY", Align::kRight},
               {"WAITS FOR"},
               {"STATE"}});
  for (const v1::LinkStatus& link : run.links()) {
    const bool known = link.rate_bits_per_second() > 0;
    table.AddRow({fmt::format("{} > {}", link.from_worker(), link.to_worker()),
                  link.kind() == "tied" ? "tied matrix" : link.direction(), link.codec(),
                  known ? FormatBitsPerSecond(link.rate_bits_per_second()) : "?",
                  FormatBitsPerSecond(link.goodput_bits_per_second()),
                  known ? PercentText(link.bound_share()) : "?", PercentText(link.busy_share()),
                  link.waits_for(), TableCell(link.state(), StateStyle(link.state()))});
  }
  return table;
}

void Append(std::vector<std::string>& lines, const Table& table, int columns, bool colour) {
  if (table.empty()) return;
  lines.emplace_back();
  for (std::string& line : table.Lines(columns, colour)) lines.push_back(std::move(line));
}

// Breaks a sentence between words, so that a long reason is shown whole.
void AppendWrapped(std::vector<std::string>& lines, std::string text, int columns) {
  while (Columns(text) > columns) {
    const std::string head = Shortened(text, columns);
    const size_t space = head.rfind(' ');
    const size_t end = space == std::string::npos || space == 0 ? head.size() : space;
    lines.push_back(text.substr(0, end));
    text.erase(0, end + (end < text.size() && text[end] == ' ' ? 1 : 0));
  }
  if (!text.empty()) lines.push_back(text);
}

}  // namespace

std::vector<std::string> WatchLines(const v1::RunStatus& run, int columns, bool colour) {
  columns = std::max(columns, 20);
  std::vector<std::string> lines;
  // Colours take no columns; a title that is too wide is shown without them.
  const std::string plain_title = Title(run, false);
  lines.push_back(Columns(plain_title) <= columns ? Title(run, colour)
                                                  : Shortened(plain_title, columns));
  AppendWrapped(lines, Printable(run.reason()), columns);
  lines.push_back(Shortened(ProgressText(run, columns), columns));
  if (const std::string numbers = Numbers(run, "  "); !numbers.empty()) {
    lines.push_back(Shortened(numbers, columns));
  }
  Append(lines, StageTable(run), columns, colour);
  Append(lines, CollectivesTable(run), columns, colour);
  Append(lines, ExpertsTable(run), columns, colour);
  Append(lines, LinkTable(run), columns, colour);
  if (!run.samples().empty()) {
    lines.emplace_back();
    for (std::string& line : SampleLines(*run.samples().rbegin(), columns)) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::string PlainWatchLine(const v1::RunStatus& run, int64_t now_unix_ms) {
  std::string line = fmt::format("{} {} {} step {}", TimeText(now_unix_ms, /*terminal=*/false),
                                 Printable(run.run_id()), run.state(), StepText(run));
  if (const std::string numbers = Numbers(run, " "); !numbers.empty()) line += " " + numbers;
  if (run.seconds_left() > 0) line += fmt::format(" {} left", SecondsText(run.seconds_left()));
  if (!run.reason().empty()) line += ": " + Printable(run.reason());
  return line;
}

bool HasNewSamples(const v1::RunStatus& last, const v1::RunStatus& next) {
  if (next.samples().empty()) return false;
  return last.samples().empty() ||
         last.samples().rbegin()->unix_ms() != next.samples().rbegin()->unix_ms();
}

bool HasNews(const v1::RunStatus& last, const v1::RunStatus& next) {
  return last.run_id() != next.run_id() || last.state() != next.state() ||
         last.step() != next.step() || last.reason() != next.reason() ||
         last.epoch() != next.epoch() || last.has_validation() != next.has_validation() ||
         last.validation_step() != next.validation_step() ||
         last.checkpoint_step() != next.checkpoint_step() || HasNewSamples(last, next);
}

void PrintStatus(const Terminal& terminal, const v1::RunStatus& run) {
  const bool human = terminal.out_is_terminal;
  const auto print = [&](std::string_view key, const std::string& value) {
    if (value.empty()) return;
    terminal.out << (human ? fmt::format("{:<12}  {}\n", key, value)
                           : fmt::format("{}\t{}\n", key, value));
  };
  print("run", Printable(run.run_id()));
  print("state", Styled(run.state(), StateStyle(run.state()), terminal.colour));
  print("reason", Printable(run.reason()));
  print("what to do", Advice(run));
  print("step", StepText(run));
  if (run.step() > 0) print("loss", RunLossText(run));
  if (run.has_validation()) {
    print("validation", ValidationText(run));
  }
  if (run.tokens_per_second() > 0) print("tokens/s", GroupedText(run.tokens_per_second()));
  print("step time", SecondsText(run.step_seconds()));
  print("time left", SecondsText(run.seconds_left()));
  if (run.checkpoint_step() > 0) {
    print("checkpoint", fmt::format("step {}", run.checkpoint_step()));
  }
  if (run.copied_step() > 0) {
    print("copies", fmt::format("everything at step {} is held twice", run.copied_step()));
  }
  for (const std::string& warning : run.warnings()) {
    print("warning", Styled(Printable(warning), Style::kYellow, terminal.colour));
  }
  std::string spares;
  for (const std::string& worker : run.spares()) {
    spares += (spares.empty() ? "" : ", ") + Printable(worker);
  }
  print("spares", spares);
  if (!run.replay_source().empty()) {
    print("replay of", Printable(run.replay_source()));
  }
  print("replicas",
        ReplicasText(run) +
            (run.replicas_reason().empty() ? "" : ": " + Printable(run.replicas_reason())));
  print("schedule", Printable(run.schedule()));
  if (run.epoch() > 0) print("epoch", fmt::format("{}", run.epoch()));
  print("submitted", TimeText(run.submitted_unix_ms(), human));
  print("started", TimeText(run.started_unix_ms(), human));
  print("ended", TimeText(run.ended_unix_ms(), human));
  std::string lost;
  for (const std::string& worker : run.workers_lost()) {
    lost += (lost.empty() ? "" : ", ") + Printable(worker);
  }
  print("lost", lost);
  for (const Table& table :
       {StageTable(run), CollectivesTable(run), ExpertsTable(run), LinkTable(run)}) {
    if (table.empty()) continue;
    terminal.out << '\n';
    table.Print(terminal);
  }
  if (run.samples().empty()) return;
  terminal.out << '\n';
  for (const std::string& line : SampleLines(*run.samples().rbegin(), 0)) {
    terminal.out << line << '\n';
  }
}

}  // namespace longhaul::cli
