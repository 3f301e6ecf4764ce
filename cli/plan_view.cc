#include "cli/plan_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "cli/format.h"
#include "cli/table.h"

namespace longhaul::cli {
namespace {

std::string LayersText(const LayerRange& layers) {
  if (layers.count == 0) return "";
  return layers.count == 1 ? fmt::format("{}", layers.first)
                           : fmt::format("{}-{}", layers.first, layers.end() - 1);
}

std::string NameIn(const Plan& plan, const CellId& id) {
  return ShortName(id, plan.assignment.HasReplicas());
}
std::string StageColumn(const Plan& plan) {
  return plan.assignment.HasReplicas() ? "REPLICA:STAGE" : "STAGE";
}

void PrintStages(const Terminal& terminal, const Plan& plan) {
  const bool groups = std::ranges::any_of(plan.assignment.cells,
                                          [](const Cell& cell) { return cell.group.tensor > 1; });
  std::vector<Column> columns = {{StageColumn(plan), Align::kRight}, {"WORKER"}};
  if (groups) columns.push_back({"GROUP"});
  columns.insert(columns.end(), {{"LAYERS"},
                                 {"DEPTH", Align::kRight},
                                 {"THREADS", Align::kRight},
                                 {"MEMORY", Align::kRight},
                                 {"AVAILABLE", Align::kRight},
                                 {"FORWARD", Align::kRight},
                                 {"BACKWARD", Align::kRight},
                                 {"OPTIMIZER", Align::kRight}});
  Table table(std::move(columns));
  for (size_t i = 0; i < plan.assignment.cells.size(); ++i) {
    const Cell& cell = plan.assignment.cells[i];
    const CellEstimate estimate = i < plan.cells.size() ? plan.cells[i] : CellEstimate{};
    std::vector<TableCell> row = {NameIn(plan, cell.id), cell.worker_name};
    if (groups) {
      row.emplace_back(GroupText(cell.group, estimate.device_kind, cell.devices));
    }
    row.insert(row.end(),
               {LayersText(cell.layers), fmt::format("{}", cell.setting.depth),
                fmt::format("{}", cell.setting.threads),
                FormatBytes(static_cast<double>(cell.memory_bytes)),
                estimate.memory_available_bytes > 0
                    ? FormatBytes(static_cast<double>(estimate.memory_available_bytes))
                    : "-",
                SecondsText(estimate.forward_seconds), SecondsText(estimate.backward_seconds),
                SecondsText(estimate.optimizer_seconds)});
    table.AddRow(std::move(row));
  }
  table.Print(terminal);
}

// What ranks of a stage exchange, and what that takes. Nothing where each has one.
void PrintGroups(const Terminal& terminal, const Plan& plan, uint32_t microbatches) {
  const bool to_experts = std::ranges::any_of(
      plan.assignment.cells, [](const Cell& cell) { return cell.group.expert > 1; });
  std::vector<Column> columns = {
      {"STAGE", Align::kRight}, {"FORWARD BY"}, {"BACKWARD BY"}, {"SENT A STEP", Align::kRight}};
  if (to_experts) columns.push_back({"TO EXPERTS", Align::kRight});
  columns.insert(columns.end(), {{"COLLECTIVES", Align::kRight},
                                 {"OF THE STEP", Align::kRight},
                                 {"BESIDE AN EVEN SHARE", Align::kRight}});
  Table table(std::move(columns));
  const auto bytes = [microbatches](uint64_t of_microbatch) {
    return FormatBytes(static_cast<double>(of_microbatch * microbatches));
  };
  bool any = false;
  for (size_t i = 0; i < plan.assignment.cells.size() && i < plan.cells.size(); ++i) {
    const CellEstimate& cell = plan.cells[i];
    if (!cell.group) continue;
    any = true;
    const double step = plan.prediction.step_seconds;
    const std::optional<double>& inside = cell.group->collective_seconds;
    const double beside =
        cell.forward_seconds + cell.backward_seconds - cell.group->even_share_seconds;
    std::vector<TableCell> row = {
        NameIn(plan, plan.assignment.cells[i].id), Printable(cell.group->forward_collective),
        Printable(cell.group->backward_collective), bytes(cell.group->sent.total())};
    if (to_experts) row.emplace_back(bytes(cell.group->sent.all_to_all));
    row.insert(row.end(), {inside ? SecondsText(*inside * microbatches) : "-",
                           inside && step > 0 ? PercentText(*inside * microbatches / step) : "-",
                           fmt::format("{}{}", beside < 0 ? "-" : "+",
                                       SecondsText(std::abs(beside) * microbatches))});
    table.AddRow(std::move(row));
  }
  if (!any) return;
  terminal.out << "\nranks of a stage exchange, each step:\n";
  table.Print(terminal);
}

// What other numbers of ranks and of parts of experts would do.
void PrintRanks(const Terminal& terminal, const Plan& plan, uint64_t tokens_per_step) {
  if (plan.prediction.ranks.empty()) return;
  const bool experts = std::ranges::any_of(
      plan.prediction.ranks, [](const RanksPrediction& row) { return row.expert > 1; });
  std::vector<Column> columns = {{"RANKS", Align::kRight}};
  if (experts) columns.push_back({"PARTS OF EXPERTS", Align::kRight});
  columns.insert(columns.end(), {{"STEP", Align::kRight},
                                 {"TOKENS/S", Align::kRight},
                                 {"MEMORY", Align::kRight},
                                 {"CHOICE"}});
  Table table(std::move(columns));
  for (const RanksPrediction& row : plan.prediction.ranks) {
    std::vector<TableCell> cells = {fmt::format("{}", row.tensor)};
    if (experts) cells.emplace_back(fmt::format("{}", row.expert));
    if (row.refused.empty()) {
      const bool chosen = !plan.assignment.cells.empty() &&
                          plan.assignment.cells.front().group == Group{row.tensor, row.expert};
      const double rate =
          row.step_seconds > 0 ? static_cast<double>(tokens_per_step) / row.step_seconds : 0;
      cells.insert(cells.end(), {SecondsText(row.step_seconds), GroupedText(rate),
                                 FormatBytes(static_cast<double>(row.memory_bytes)),
                                 std::string(chosen ? "chosen" : "slower")});
    } else {
      const std::string none = "-";
      cells.insert(cells.end(), {none, none, none, Printable(row.refused)});
    }
    table.AddRow(std::move(cells));
  }
  terminal.out << (experts ? "\npredicted with each number of ranks and of parts of experts "
                             "(group: auto):\n"
                           : "\npredicted with each number of ranks (group.tensor: auto):\n");
  table.Print(terminal);
}

void PrintLinks(const Terminal& terminal, const Plan& plan) {
  Table table({{"LINK"},
               {"TRANSPORT"},
               {"FORWARD CODEC"},
               {"BYTES", Align::kRight},
               {"BACKWARD CODEC"},
               {"BYTES", Align::kRight}});
  for (const Edge& edge : plan.assignment.edges) {
    table.AddRow(
        {fmt::format("{} - {}{}", NameIn(plan, edge.from), NameIn(plan, edge.to),
                     edge.kind == EdgeKind::kTied ? ", tied" : ""),
         edge.relays.empty() ? edge.transport
                             : fmt::format("{} of {}", edge.transport, edge.relays.front().name),
         ToString(edge.forward.codec), FormatBytes(static_cast<double>(edge.forward.bytes)),
         ToString(edge.backward.codec), FormatBytes(static_cast<double>(edge.backward.bytes))});
  }
  terminal.out << '\n';
  table.Print(terminal);
}

// The lower bound's parts: what one resource has to do, and what it waits for before and after.
void PrintFloor(const Terminal& terminal, const Prediction& prediction, bool steps_overlap) {
  if (!(prediction.floor_seconds > 0)) return;
  const double fill_and_drain =
      std::max(0.0, prediction.lower_bound_seconds - prediction.floor_seconds);
  terminal.out << fmt::format(
      "steady-state floor: {}, {}% of the predicted step, in which the {} {}; fill and drain{}\n",
      SecondsText(prediction.floor_seconds),
      fmt::format("{:.1f}", 100 * prediction.floor_seconds / prediction.step_seconds),
      Printable(prediction.busiest),
      prediction.busiest_bytes > 0
          ? fmt::format("carries {}", FormatBytes(static_cast<double>(prediction.busiest_bytes)))
          : "is at work",
      steps_overlap ? std::string(": none, because steps overlap")
                    : fmt::format(" of one synchronous step{}: {}",
                                  prediction.exchange_seconds > 0
                                      ? ", and what passes and exchange wait for each other"
                                      : "",
                                  longhaul::FormatDuration(absl::Seconds(fill_and_drain))));
}

// What a stage does all step long, and what it waits for.
void PrintTimes(const Terminal& terminal, const Plan& plan) {
  Table table({{StageColumn(plan), Align::kRight},
               {"COMPUTE", Align::kRight},
               {"CODEC", Align::kRight},
               {"WAIT ABOVE", Align::kRight},
               {"WAIT BELOW", Align::kRight},
               {"OPTIMIZER", Align::kRight},
               {"EGRESS", Align::kRight},
               {"INGRESS", Align::kRight}});
  for (size_t i = 0; i < plan.prediction.cells.size(); ++i) {
    const PredictedCell& cell = plan.prediction.cells[i];
    const auto share = [&](double seconds) {
      return PercentText(seconds / plan.prediction.step_seconds);
    };
    const CellId id = i < plan.assignment.cells.size() ? plan.assignment.cells[i].id : CellId{};
    table.AddRow({NameIn(plan, id), share(cell.compute_seconds), share(cell.codec_seconds),
                  share(cell.wait_above_seconds), share(cell.wait_below_seconds),
                  share(cell.optimizer_seconds), PercentText(cell.egress_share),
                  PercentText(cell.ingress_share)});
  }
  terminal.out << "\npredicted shares of a step:\n";
  table.Print(terminal);
}

void PrintCodecs(const Terminal& terminal, const Prediction& prediction) {
  Table table({{"CODECS"},
               {"STEP", Align::kRight},
               {"TOKENS/S", Align::kRight},
               {"OF THE BOUND", Align::kRight},
               {"BYTES DOWN", Align::kRight},
               {"BYTES UP", Align::kRight},
               {"BOUND BY"}});
  bool all_known = true;
  for (const CodecPrediction& row : prediction.codecs) {
    all_known &= row.codec_times_known;
    const double share = row.step_seconds > 0 ? row.lower_bound_seconds / row.step_seconds : 0;
    table.AddRow({Printable(row.name) + (row.codec_times_known ? "" : " *"),
                  SecondsText(row.step_seconds), GroupedText(row.tokens_per_second),
                  fmt::format("{:.1f}%", 100 * share),
                  FormatBytes(static_cast<double>(row.forward_bytes)),
                  FormatBytes(static_cast<double>(row.backward_bytes)), Printable(row.bottleneck)});
  }
  terminal.out << "\npredicted with other codecs:\n";
  table.Print(terminal);
  if (!all_known) {
    terminal.out << "* encoding and decoding were not measured and count as taking no time\n";
  }
}

}  // namespace

void PrintPlan(const Terminal& terminal, const Plan& plan, const RunSpec& spec) {
  const uint64_t tokens_per_step = spec.TokensPerStep();
  PrintStages(terminal, plan);
  PrintGroups(terminal, plan, spec.train.microbatches);
  PrintRanks(terminal, plan, tokens_per_step);
  if (!plan.assignment.edges.empty()) PrintLinks(terminal, plan);
  const Prediction& prediction = plan.prediction;
  if (prediction.step_seconds > 0) PrintTimes(terminal, plan);
  if (!prediction.codecs.empty()) PrintCodecs(terminal, prediction);
  if (prediction.step_seconds > 0) {
    terminal.out << fmt::format(
        "\npredicted step: {} ({} tokens/s{}); no schedule is faster than {} here",
        SecondsText(prediction.step_seconds),
        GroupedText(static_cast<double>(tokens_per_step) / prediction.step_seconds),
        prediction.exchange_seconds > 0 ? fmt::format(", {} of exchange between replicas",
                                                      SecondsText(prediction.exchange_seconds))
                                        : "",
        SecondsText(prediction.lower_bound_seconds));
    if (!prediction.bottleneck.empty()) {
      terminal.out << fmt::format("; what bounds it: {}", Printable(prediction.bottleneck));
    }
    terminal.out << '\n';
    PrintFloor(terminal, prediction, TraitsOf(spec.pipeline.schedule).overlaps_steps);
  }
  if (!plan.explanation.empty()) terminal.out << PrintableLines(plan.explanation) << '\n';
}

}  // namespace longhaul::cli
