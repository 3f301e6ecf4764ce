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
                  stage.memory_available_bytes() > 0
                      ? FormatBytes(static_cast<double>(stage.memory_available_bytes()))
                      : "-",
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

// What a stage does all step long, and what it waits for.
void PrintTimes(const Terminal& terminal, const v1::Prediction& prediction) {
  Table table({{"STAGE", Align::kRight},
               {"COMPUTE", Align::kRight},
               {"CODEC", Align::kRight},
               {"WAIT ABOVE", Align::kRight},
               {"WAIT BELOW", Align::kRight},
               {"OPTIMIZER", Align::kRight},
               {"EGRESS", Align::kRight},
               {"INGRESS", Align::kRight}});
  for (int s = 0; s < prediction.stages_size(); ++s) {
    const v1::PredictedStage& stage = prediction.stages(s);
    const auto share = [&](double seconds) {
      return PercentText(seconds / prediction.step_seconds());
    };
    table.AddRow({fmt::format("{}", s), share(stage.compute_seconds()),
                  share(stage.codec_seconds()), share(stage.wait_above_seconds()),
                  share(stage.wait_below_seconds()), share(stage.optimizer_seconds()),
                  PercentText(stage.egress_share()), PercentText(stage.ingress_share())});
  }
  terminal.out << "\npredicted shares of a step:\n";
  table.Print(terminal);
}

void PrintCodecs(const Terminal& terminal, const v1::Prediction& prediction) {
  Table table({{"CODECS"},
               {"STEP", Align::kRight},
               {"TOKENS/S", Align::kRight},
               {"OF THE BOUND", Align::kRight},
               {"BYTES DOWN", Align::kRight},
               {"BYTES UP", Align::kRight},
               {"BOUND BY"}});
  bool all_known = true;
  for (const v1::CodecPrediction& row : prediction.codecs()) {
    all_known &= row.codec_times_known();
    const double share =
        row.step_seconds() > 0 ? row.lower_bound_seconds() / row.step_seconds() : 0;
    table.AddRow(
        {Printable(row.name()) + (row.codec_times_known() ? "" : " *"),
         SecondsText(row.step_seconds()), GroupedText(row.tokens_per_second()),
         fmt::format("{:.1f}%", 100 * share), FormatBytes(static_cast<double>(row.forward_bytes())),
         FormatBytes(static_cast<double>(row.backward_bytes())), Printable(row.bottleneck())});
  }
  terminal.out << "\npredicted with other codecs:\n";
  table.Print(terminal);
  if (!all_known) {
    terminal.out << "* encoding and decoding were not measured and count as taking no time\n";
  }
}

}  // namespace

void PrintPlan(const Terminal& terminal, const v1::Plan& plan, uint64_t tokens_per_step) {
  PrintStages(terminal, plan);
  if (plan.links_size() > 0) PrintLinks(terminal, plan);
  const v1::Prediction& prediction = plan.prediction();
  if (prediction.step_seconds() > 0) PrintTimes(terminal, prediction);
  if (prediction.codecs_size() > 0) PrintCodecs(terminal, prediction);
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
