#include "coordinator/cli/plan_view.h"

#include <fmt/core.h>

#include "base/units.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/table.h"

namespace longhaul::cli {
namespace {

std::string LayerRange(uint32_t first, uint32_t count) {
  if (count == 0) return "";
  return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

void PrintStages(const Terminal& terminal, const v1::Plan& plan) {
  Table table({{"STAGE", Align::kRight},
               {"WORKER"},
               {"LAYERS"},
               {"DEPTH", Align::kRight},
               {"THREADS", Align::kRight},
               {"MEMORY", Align::kRight},
               {"AVAILABLE", Align::kRight},
               {"FORWARD", Align::kRight},
               {"BACKWARD", Align::kRight},
               {"OPTIMIZER", Align::kRight}});
  for (const v1::StagePlan& stage : plan.stages()) {
    table.AddRow({fmt::format("{}", stage.stage()), stage.worker_name(),
                  LayerRange(stage.first_layer(), stage.layers()), fmt::format("{}", stage.depth()),
                  fmt::format("{}", stage.threads()),
                  FormatBytes(static_cast<double>(stage.memory_bytes())),
                  FormatBytes(static_cast<double>(stage.memory_available_bytes())),
                  SecondsText(stage.forward_seconds()), SecondsText(stage.backward_seconds()),
                  SecondsText(stage.optimizer_seconds())});
  }
  table.Print(terminal);
}

void PrintLinks(const Terminal& terminal, const v1::Plan& plan) {
  Table table({{"LINK"},
               {"TRANSPORT"},
               {"FORWARD CODEC"},
               {"BYTES", Align::kRight},
               {"BACKWARD CODEC"},
               {"BYTES", Align::kRight}});
  for (const v1::LinkPlan& link : plan.links()) {
    table.AddRow({fmt::format("{} - {}", link.boundary(), link.boundary() + 1), link.transport(),
                  link.forward_codec(), FormatBytes(static_cast<double>(link.forward_bytes())),
                  link.backward_codec(), FormatBytes(static_cast<double>(link.backward_bytes()))});
  }
  terminal.out << '\n';
  table.Print(terminal);
}

}  // namespace

void PrintPlan(const Terminal& terminal, const v1::Plan& plan, uint64_t tokens_per_step) {
  PrintStages(terminal, plan);
  if (plan.links_size() > 0) PrintLinks(terminal, plan);
  const v1::Prediction& prediction = plan.prediction();
  if (prediction.step_seconds() > 0) {
    terminal.out << fmt::format(
        "\npredicted step: {} ({} tokens/s); no schedule is faster than {} here",
        SecondsText(prediction.step_seconds()),
        GroupedText(static_cast<double>(tokens_per_step) / prediction.step_seconds()),
        SecondsText(prediction.lower_bound_seconds()));
    if (!prediction.bottleneck().empty()) {
      terminal.out << fmt::format("; what bounds it: {}", Printable(prediction.bottleneck()));
    }
    terminal.out << '\n';
  }
  if (!plan.explanation().empty()) terminal.out << PrintableLines(plan.explanation()) << '\n';
}

}  // namespace longhaul::cli
